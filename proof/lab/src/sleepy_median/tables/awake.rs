//! The tables about held CPUs: what holding brings, and what the machine pays for it.

use wakeful_load::internals::format;
use wakeful_load::internals::results::{Cell, Table, Unit};

use super::super::awake::Held;
use super::super::parts::AWAKE_RATES;
use super::table::table;
use crate::interleaved::Measured;

pub(super) fn tables(found: &[Measured<Held>]) -> impl Iterator<Item = Table> {
    let rates = found.iter().zip(AWAKE_RATES.map(format::short_rate));
    rates.flat_map(|(measured, rate)| [brings(measured, &rate), pays(measured, &rate)])
}

fn brings(measured: &Measured<Held>, rate: &str) -> Table {
    table(
        measured,
        &format!("CPUs that are held: {rate}"),
        "p50 to max: response times; lower is better. Answers: how many a second; all that were requested is good. CPU: the CPU time of the server, \
     and of `wakeful awake` where the server runs under it.",
        &[
            ("p50", Unit::Nanoseconds, |one| one.p50),
            ("p90", Unit::Nanoseconds, |one| one.figures.p90),
            ("p99", Unit::Nanoseconds, |one| one.figures.p99),
            ("p99.9", Unit::Nanoseconds, |one| one.figures.p999),
            ("max", Unit::Nanoseconds, |one| Some(one.figures.max)),
            ("answers", Unit::PerSecond, |one| Some(one.figures.throughput)),
            ("CPU", Unit::Share, |one| one.figures.cpu_share),
        ],
    )
}

fn pays(measured: &Measured<Held>, rate: &str) -> Table {
    let all = table(
        measured,
        &format!("What the machine pays: {rate}"),
        "What all CPUs did together, except the generator's, whoever used them; 100 % is one CPU. Idle: not busy by the kernel's count, as `top` \
     shows it; such a CPU is either polling or halted. A polling CPU takes as much power as a working one. Watts: whole processor packages, with \
     the generator's CPU. Lower is better for busy, polling and watts.",
        &[
            ("busy", Unit::Share, |one| Some(one.pays?.busy)),
            ("stolen", Unit::Share, |one| Some(one.pays?.steal)),
            ("idle", Unit::Share, |one| Some(one.pays?.idle)),
            ("polling", Unit::Share, |one| one.pays?.polling),
            ("halted", Unit::Share, |one| one.pays?.halted),
            ("timer interrupts", Unit::PerSecond, |one| one.pays?.timer),
            ("watts", Unit::Number, |one| one.pays?.watts),
        ],
    );
    without_what_nobody_knows(all)
}

/// Removes the columns of figures that this machine's kernel does not report.
fn without_what_nobody_knows(mut table: Table) -> Table {
    for column in (0..table.columns.len()).rev() {
        if table.rows.iter().all(|row| row[column] == Cell::Absent) {
            table.columns.remove(column);
            table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use wakeful_load::internals::series::Figures;

    use super::super::super::machine::Pays;
    use super::*;

    #[test]
    fn a_machine_has_columns_for_what_its_kernel_tells() {
        let figures = Figures {
            p50: None,
            p90: None,
            p99: None,
            p999: None,
            max: 0.0,
            cpu_per_request: None,
            cpu_share: None,
            throughput: 0.0,
        };
        let of = |pays| Held { p50: None, figures, pays };
        let some = of(Some(Pays { busy: 0.1, polling: Some(0.9), ..Pays::default() }));
        let measured = Measured::canned(vec![("a", vec![some]), ("b", vec![of(None)])]);
        let table = pays(&measured, "10/s");
        let heads: Vec<&str> = table.columns.iter().map(|column| column.head.as_str()).collect();
        assert_eq!(heads, ["server", "busy", "stolen", "idle", "polling"]);
        assert!(table.rows.iter().all(|row| row.len() == heads.len()), "{table:?}");
        assert_eq!(table.rows[0][4], Cell::of(&[0.9]));
        assert_eq!(table.rows[1][4], Cell::Absent);
    }
}
