//! The results as tables, in the form of those of `wakeful load` and `wakeful lab`.

use wakeful_load::internals::results::{
    Cell, Claim, Column, Machine, Results, SCHEMA, Table, Unit, Verdict,
};
use wakeful_load::internals::{format, table};

pub use wakeful_load::internals::table::Style;

use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::verdict::{Compared, Standing};

/// Returns the outcome of each trace under each policy, and a verdict for each trace.
#[must_use]
pub fn of_comparisons(compared: &[Compared], machine: Machine, notes: Vec<String>) -> Results {
    let columns = [
        ("trace", Unit::Text),
        ("policy", Unit::Text),
        ("p50", Unit::Nanoseconds),
        ("p90", Unit::Nanoseconds),
        ("p99", Unit::Nanoseconds),
        ("CPU", Unit::Share),
        ("work", Unit::Share),
        ("spin", Unit::Share),
        ("wakes", Unit::Share),
        ("met by a spin", Unit::Share),
    ];
    let table = Table {
        title: "Arrival traces under each policy".to_owned(),
        note: "CPU is the share of one CPU: work, spins and wakes. What finds the loop busy is met by no spin and needs no wake. A quantile with fewer than 100 responses beyond it is left out.".to_owned(),
        columns: columns.map(|(head, unit)| Column::new(head, unit)).to_vec(),
        rows: compared.iter().flat_map(rows).collect(),
    };
    results(
        "wakeful-sim: the governor against fixed windows",
        machine,
        vec![table],
        compared.iter().map(claim).collect(),
        notes,
    )
}

/// Returns results with everything that all of them have in common.
#[must_use]
pub fn results(
    title: &str,
    machine: Machine,
    tables: Vec<Table>,
    claims: Vec<Claim>,
    notes: Vec<String>,
) -> Results {
    Results {
        tradeoffs: Vec::new(),
        schema: SCHEMA,
        title: title.to_owned(),
        command: command_line(),
        machine,
        floor: None,
        runs: Vec::new(),
        comparisons: Vec::new(),
        tables,
        claims,
        notes,
    }
}

/// Returns the results as text: tables, verdicts, notes.
#[must_use]
pub fn text(results: &Results, style: Style) -> String {
    let paragraphs = if style == Style::Markdown { "\n" } else { "" };
    let mut text = table::tables(results, style);
    if !results.claims.is_empty() {
        text = text + "\n" + &table::claims(results, style);
    }
    text.push('\n');
    for note in &results.notes {
        text = text + note + "\n" + paragraphs;
    }
    text
}

fn rows(compared: &Compared) -> Vec<Vec<Cell>> {
    let figure = |value: f64| Cell::of(&[value]);
    let row = |(policy, outcome): &(Policy, Outcome)| {
        let share = |time: f64| figure(time / outcome.elapsed);
        let tail = |quantile| outcome.tail(quantile).map_or(Cell::Absent, figure);
        let times = [figure(outcome.response(0.5)), tail(0.9), tail(0.99)];
        let words = [Cell::text(&compared.trace), Cell::text(policy.name())];
        let met = outcome.hits as f64 / outcome.responses.len() as f64;
        let shares = [
            figure(outcome.cpu()),
            share(outcome.work),
            share(outcome.spin),
            share(outcome.wakes),
            figure(met),
        ];
        words.into_iter().chain(times).chain(shares).collect()
    };
    compared.outcomes.iter().map(row).collect()
}

fn claim(compared: &Compared) -> Claim {
    let governor = compared.governor();
    let against = |(policy, outcome, standing): (Policy, &Outcome, Standing)| {
        let how = match standing {
            Standing::Beats => "beats it",
            Standing::Cheaper => "has its p50 for less",
            Standing::Faster => "has a better p50 for as much",
            Standing::Behind => return None,
        };
        Some(format!("{} {how} ({})", policy.name(), point(outcome)))
    };
    let others: Vec<String> = compared.standings().filter_map(against).collect();
    let others = if others.is_empty() { "none is near".to_owned() } else { others.join("; ") };
    Claim {
        claim: format!("{}: no fixed window beats the governor", compared.trace),
        measured: format!("governor {}; {others}", point(governor)),
        verdict: if compared.is_beaten() { Verdict::DoesNotHold } else { Verdict::Holds },
    }
}

fn point(outcome: &Outcome) -> String {
    let p99 = outcome.tail(0.99).map(|p99| format!(", p99 {}", format::time(p99)));
    let (p50, cpu) = (format::time(outcome.response(0.5)), format::percent(outcome.cpu()));
    format!("{p50} at {cpu}{}", p99.unwrap_or_default())
}

/// Quotes an argument for a shell.
#[must_use]
pub fn command_line() -> String {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    let arguments = shlex::try_join(arguments.iter().map(String::as_str));
    format!("wakeful-sim {}", arguments.unwrap_or_default()).trim_end().to_owned()
}
