//! The tables of `shared-socket`.

use wakeful_load::internals::results::{Cell, Column, Table, Unit};
use wakeful_load::internals::validity;

use super::contenders::{LOOPS, OWNED, POLLER};
use super::found::Found;
use super::read_write::{self, WORKLOADS, Workload};

pub(super) fn tables(found: &Found, threads: usize) -> Vec<Table> {
    let mut tables: Vec<Table> = found
        .table
        .iter()
        .zip(WORKLOADS)
        .map(|(it, workload)| reads_and_writes(it, workload))
        .collect();
    if let Some(first) = tables.first_mut() {
        first.note = format!(
            "Values of 1000 bytes, keys at random out of 10,000, one request in flight on each connection. `{OWNED}`, `{POLLER}` and `{LOOPS}` have {threads} threads each; all servers have the \
             CPUs that the generator leaves. `{OWNED}` is the shared poller's service, keys and locks, on loops that own their sockets: the public case's change, and no other. \
             In `{LOOPS}` the keys belong to loops, too: a request for a key of another loop is sent there. A second: requests, as the median of the rounds with the lowest and the highest; higher is better. Times are of all rounds together; lower is better. \
             A percentile with fewer than 100 samples beyond it is left out.",
        );
    }
    tables.extend([crash(found), pickers(found), torture(found)]);
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn reads_and_writes(found: &Workload, workload: (u32, u32, usize)) -> Table {
    let mut rows = Vec::new();
    for name in found.rates.names() {
        for (index, kind) in found.kinds.iter().enumerate() {
            let rate = found.rates.cell(name, |rates| rates.get(index).copied());
            let mut row = vec![Cell::text(name), Cell::text(*kind), rate];
            let whole = found.wholes.get(name);
            let Some(times) = whole.and_then(|whole| whole.recording.by_kind.get(index)) else {
                continue;
            };
            let at = |quantile| {
                let enough = validity::has_enough_beyond(times, quantile);
                enough.then(|| times.value_at_quantile(quantile) as f64)
            };
            let all = [
                Some(times.mean()),
                Some(times.min() as f64),
                Some(times.max() as f64),
                at(0.95),
                at(0.99),
                at(0.999),
                at(0.9999),
            ];
            row.extend(all.map(|time| Cell::of(time.as_slice())));
            rows.push(row);
        }
    }
    let time = |head| Column::new(head, Unit::Nanoseconds);
    let mut columns = vec![text("server"), text(""), Column::new("a second", Unit::PerSecond)];
    columns.extend(["average", "min", "max", "p95", "p99", "p99.9", "p99.99"].map(time));
    Table {
        title: format!("Reads to writes {}", read_write::name(workload)),
        note: String::new(),
        columns,
        rows,
    }
}

fn text(head: &str) -> Column {
    Column::new(head, Unit::Text)
}

fn crash(found: &Found) -> Table {
    let measured = &found.crash;
    let row = |name: &str| {
        let runs: Vec<_> = measured.of(name).iter().flatten().collect();
        let died = runs.iter().filter(|run| run.died.is_some()).count();
        let report = runs.iter().find_map(|run| run.report.as_ref());
        let ended = runs.iter().find_map(|run| run.died.as_deref());
        let how = match (report, ended) {
            (Some(report), _) => {
                format!("{}: {}; freed by {}", report.error, report.used, report.freed)
            }
            // The message may have many lines.
            (None, Some(ended)) => ended.lines().next().unwrap_or_default().to_owned(),
            (None, None) => "it served".to_owned(),
        };
        let sum = |count: fn(&super::traffic::Traffic) -> u64| {
            let sum: u64 = runs.iter().map(|run| count(&run.traffic)).sum();
            Cell::of(&[sum as f64])
        };
        vec![
            Cell::text(name),
            Cell::of(&[died as f64]),
            Cell::of(&[runs.len() as f64]),
            measured.cell(name, |run| Some(run.seconds * 1e9)),
            sum(|traffic| traffic.connections),
            sum(|traffic| traffic.abandoned),
            sum(|traffic| traffic.answers),
            sum(|traffic| traffic.wrong),
            sum(|traffic| traffic.broken),
            Cell::text(how),
        ]
    };
    let count = |head| Column::new(head, Unit::Count);
    Table {
        title: "Connections closed while they are read and written".to_owned(),
        note: "Eight clients; servers with four threads on all CPUs (redis-server with its own setting). Died: in how many of the runs the server ended; 0 \
     is good. Took: the length of a run, until its time was over or the server ended. Abandoned: connections that the client closed while answers \
     were on their way. Answers: those read to the end, with every byte as expected. Wrong: exchanges with a wrong byte; 0 is good. Broken: \
     connections that the server refused or ended, or on which it did not answer; 0 is good. If a server died, attempts to connect again count, too."
            .to_owned(),
        columns: vec![
            text("server"),
            count("died"),
            count("of runs"),
            Column::new("took", Unit::Nanoseconds),
            count("connections"),
            count("abandoned"),
            count("answers"),
            count("wrong"),
            count("broken"),
            text("what happened"),
        ],
        rows: measured.names().map(row).collect(),
    }
}

fn pickers(found: &Found) -> Table {
    let row = |name: &str| vec![Cell::text(name), found.pickers.cell(name, |time| Some(*time))];
    Table {
        title: "What it takes to pick a loop".to_owned(),
        note: "The time that one choice among eight loops takes, from a million choices by one thread; lower is better. Data that threads would share is \
     atomic, but no other thread uses it here."
            .to_owned(),
        columns: vec![text("way"), Column::new("ns a pick", Unit::Number)],
        rows: found.pickers.names().map(row).collect(),
    }
}

fn torture(found: &Found) -> Table {
    let mut rows = Vec::new();
    if let Some(tortured) = &found.torture {
        let row = |(name, count): &(String, f64)| vec![Cell::text(name), Cell::of(&[*count])];
        rows.extend(tortured.counts.iter().map(row));
        rows.push(vec![Cell::text("faults"), Cell::of(&[tortured.faults.len() as f64])]);
    }
    Table {
        title: "Torture".to_owned(),
        note: "The counts of `wakeful-torture --json`. Faults: wrong bytes, leaks and hangs; 0 is good. Errors that the run injected are no faults."
            .to_owned(),
        columns: vec![text("what"), Column::new("how many", Unit::Count)],
        rows,
    }
}
