//! The results of groups as a table.

use wakeful_load::Rate;
use wakeful_load::internals::results::{Cell, Column, Table, Unit};

use super::Seen;

/// Returns a table with a row for each group. If loops hold, it also has what that costs at `price`
/// of a spin.
#[must_use]
pub fn table(seen: &[Seen], price: f64) -> Table {
    let holds = seen.iter().any(|seen| seen.setting.placing.holds());
    let columns = [
        ("rate", Unit::Text),
        ("loops", Unit::Text),
        ("policy", Unit::Text),
        ("p50", Unit::Nanoseconds),
        ("p99", Unit::Nanoseconds),
        ("CPUs", Unit::Number),
        ("active loops", Unit::Number),
        ("moves/s", Unit::PerSecond),
        ("busiest loop", Unit::Share),
    ];
    let mut columns = columns.map(|(head, unit)| Column::new(head, unit)).to_vec();
    if holds {
        columns.push(Column::new("held", Unit::Number));
        columns.push(Column::new(&format!("CPUs, held at {price}"), Unit::Number));
    }
    Table {
        title: "Groups of loops".to_owned(),
        note: "CPUs: the CPU time of all loops together (work, spins and wakes), as a number of CPUs. Active loops: the mean over the run; only concentrate and hold have fewer than all. Moves: all since the start. Busiest loop: the share of its time in which it works. A group that cannot keep up with the load has no quantiles.".to_owned(),
        columns,
        rows: seen.iter().map(|seen| row(seen, holds.then_some(price))).collect(),
    }
}

/// What a reader of the figures has to know.
#[must_use]
pub fn note(connections: usize) -> String {
    format!(
        "{connections} connections with the same rate and random gaps. Each loop has a CPU. Moves are counted from the start, everything else after five seconds."
    )
}

fn row(seen: &Seen, price: Option<f64>) -> Vec<Cell> {
    let figure = |value: f64| Cell::of(&[value]);
    let quantile = |quantile| match seen.total.tail(quantile) {
        Some(response) if !seen.is_overloaded() => figure(response),
        _ => Cell::Absent,
    };
    let mut cells = vec![
        Cell::text(Rate(seen.setting.rate).to_string()),
        Cell::text(seen.setting.loops.to_string()),
        Cell::text(seen.setting.placing.name()),
        quantile(0.5),
        quantile(0.99),
        figure(seen.total.cpu()),
        figure(seen.active),
        figure(seen.moves as f64 / seen.setting.seconds as f64),
        figure(seen.busiest),
    ];
    if let Some(price) = price {
        cells.push(figure(seen.total.held / seen.total.elapsed));
        cells.push(figure(seen.total.priced(price)));
    }
    cells
}
