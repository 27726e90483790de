//! The page: the results, the machine, and the plots. Its text is in `templates/report/page.html`;
//! this file fills it.

use askama::Template;

use super::{
    ReportError,
    html::{Ids, plain_table, table},
    plots,
    rendered::rendered,
};
use crate::{
    format,
    results::{Cell, Claim, Machine, Percentiles, Results, Run, Validity, Verdict},
    table::floor_for,
};

/// A table of more runs than this is folded.
const MANY: usize = 30;

#[derive(Template)]
#[template(path = "report/page.html")]
struct Page<'a> {
    results: &'a Results,
    style: &'static str,
    /// The number of runs that are judged, which are all but the saturated ones.
    judged: usize,
    /// The names of the invalid runs, and the reasons.
    invalid: Vec<(String, String)>,
    /// The class and the word of each claim's verdict, and the claim.
    claims: Vec<(&'static str, &'static str, &'a Claim)>,
    /// The title, the rendered table and the note of each table.
    tables: Vec<(&'a str, String, &'a str)>,
    notes: Vec<String>,
    runs: Option<Runs>,
    sections: Vec<plots::Section>,
    /// The rate and the rendered table of the floor.
    floor: Option<(String, String)>,
    machine: Vec<(&'static str, String)>,
}

struct Runs {
    table: String,
    is_folded: bool,
    note: Option<&'static str>,
}

pub(super) fn page(results: &Results) -> Result<String, ReportError> {
    let page = rendered(&Page {
        results,
        style: include_str!("style.css"),
        judged: results.runs.iter().filter(|run| !run.saturated).count(),
        invalid: results.runs.iter().filter_map(invalid).collect(),
        claims: results.claims.iter().map(claim).collect(),
        tables: tables(results)?,
        notes: notes(results),
        runs: runs(results)?,
        sections: plots::sections(results, &mut Ids::default())?,
        floor: floor(results)?,
        machine: machine(&results.machine),
    })?;
    Ok(page + "\n")
}

/// Returns the name of an invalid run, and the reason. Returns `None` for other runs and for
/// saturated ones.
fn invalid(run: &Run) -> Option<(String, String)> {
    let Validity::Invalid { reasons, up_to } = &run.validity else { return None };
    if run.saturated {
        return None;
    }
    let beyond = up_to.as_ref().map_or(String::new(), |up_to| format!(" beyond {up_to}"));
    let name = format!("{}, {}{beyond}", run.server, format::asked(run.rate));
    let why =
        if reasons.is_empty() { "no reason was given".to_owned() } else { reasons.join("; ") };
    Some((name, why))
}

fn claim(claim: &Claim) -> (&'static str, &'static str, &Claim) {
    let class = match claim.verdict {
        Verdict::Holds => "good",
        Verdict::DoesNotHold => "bad",
        Verdict::CannotTell => "open",
    };
    (class, format::verdict(claim.verdict), claim)
}

fn tables(results: &Results) -> Result<Vec<(&str, String, &str)>, ReportError> {
    let all = results.tables.iter().map(|table| {
        let header: Vec<&str> = table.columns.iter().map(|column| column.head.as_str()).collect();
        let row = |row: &Vec<Cell>| {
            let cells = row.iter().zip(&table.columns);
            cells.map(|(cell, column)| format::cell(cell, column.unit)).collect()
        };
        let rows: Vec<Vec<String>> = table.rows.iter().map(row).collect();
        let drawn = plain_table(&table.title, &header, &rows)?;
        Ok((table.title.as_str(), drawn, table.note.as_str()))
    });
    all.collect()
}

fn notes(results: &Results) -> Vec<String> {
    let repeated = results.runs.iter().filter(|run| run.repeated > 0).map(|run| {
        format!(
            "{}, {}: {} of {} blocks were spoilt by other programs and measured again.",
            run.server,
            format::asked(run.rate),
            run.repeated,
            run.blocks
        )
    });
    results.notes.iter().cloned().chain(repeated).collect()
}

fn runs(results: &Results) -> Result<Option<Runs>, ReportError> {
    if results.runs.is_empty() {
        return Ok(None);
    }
    let header = [
        "server",
        "rate",
        "valid",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "throughput",
        "CPU",
        "CPU a request",
        "failed",
        "waited",
        "lag p99",
        "steal",
        "seconds",
        "blocks",
        "repeated",
        "connections",
        "schedule",
        "seed",
    ];
    let floor = |run| floor_for(run, results.floor.as_ref());
    let rows: Vec<Vec<String>> = results.runs.iter().map(|run| row(run, &floor(run))).collect();
    let is_saturated = results.runs.iter().any(|run| run.saturated);
    Ok(Some(Runs {
        table: table("Runs", &header, &rows)?,
        is_folded: rows.len() > MANY,
        note: is_saturated.then_some(format::SATURATED_NOTE),
    }))
}

fn row(run: &Run, floor: &Percentiles) -> Vec<String> {
    let times = &run.response;
    let unknown = || "not known".to_owned();
    let mut row = vec![
        run.server.clone(),
        format::asked(run.rate),
        match &run.validity {
            _ if run.saturated => "saturated".to_owned(),
            Validity::Valid => "✓ valid".to_owned(),
            Validity::Invalid { up_to: Some(up_to), .. } => format!("✓ to {up_to}, ✗ beyond"),
            Validity::Invalid { .. } => "✗ INVALID".to_owned(),
        },
    ];
    row.extend(
        [
            (times.p50, floor.p50),
            (times.p90, floor.p90),
            (times.p99, floor.p99),
            (times.p999, floor.p999),
        ]
        .map(|(time, floor)| format::marked_time(time, floor)),
    );
    row.extend([
        format::time(times.max as f64),
        format::rate(run.throughput),
        run.cpu.map_or_else(unknown, |cpu| format::percent(cpu.share)),
        format::cpu_a_request(run).map_or_else(unknown, |seconds| format::time(seconds * 1e9)),
        format::count(run.failed),
        format::count(run.waited_for_connection),
        format::maybe_time(run.send_lag.p99),
        format::percent(run.steal),
        format::number(run.seconds),
        run.blocks.to_string(),
        run.repeated.to_string(),
        format::count(run.connections as u64),
        run.schedule.clone(),
        run.seed.to_string(),
    ]);
    row
}

fn floor(results: &Results) -> Result<Option<(String, String)>, ReportError> {
    let Some(floor) = &results.floor else { return Ok(None) };
    let row = |name: &str, times| {
        std::iter::once(name.to_owned()).chain(plots::row_of(times)).collect::<Vec<_>>()
    };
    let rows = [row("response", &floor.response), row("send lag", &floor.send_lag)];
    let header = ["", "samples", "p50", "p90", "p99", "p99.9", "p99.99", "max", "mean"];
    Ok(Some((format::rate(floor.rate), table("The floor", &header, &rows)?)))
}

fn machine(machine: &Machine) -> Vec<(&'static str, String)> {
    let Machine {
        kernel,
        cpu,
        cpus,
        hypervisor,
        memory_mib,
        governor,
        mitigations,
        kernel_command_line,
        version,
        started_unix,
    } = machine;
    let mut entries = vec![
        ("Started", format::date(*started_unix)),
        ("Version", version.clone()),
        ("CPU", format!("{cpu}, {cpus} online")),
        ("Hypervisor", hypervisor.clone().unwrap_or_else(|| "none".to_owned())),
        ("Memory", format!("{} MiB", format::count(*memory_mib))),
        ("Governor", governor.clone()),
        ("Kernel", kernel.clone()),
        ("Kernel's command line", kernel_command_line.clone()),
    ];
    entries.extend(mitigations.iter().map(|mitigation| ("Vulnerability", mitigation.clone())));
    entries
}
