//! The page: what was found, on what it was measured, and the plots.

use super::{
    ReportError,
    escape::escape,
    html::{Ids, plain_table, table},
    plots,
};
use crate::{
    format,
    results::{Cell, Machine, Percentiles, Results, Run, Validity, Verdict},
    table::floor_for,
};

/// A table of more runs than this is folded away.
const MANY: usize = 30;

const STYLE: &str = include_str!("style.css");

pub(super) fn page(results: &Results) -> Result<String, ReportError> {
    let title = escape(&results.title);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n"
    );
    out.push_str(&verdict(results));
    out.push_str(&claims(results));
    out.push_str(&tables(results));
    if !results.notes.is_empty() || results.runs.iter().any(|run| run.repeated > 0) {
        out.push_str(&notes(results));
    }
    out.push_str(&runs(results));
    for (heading, figures) in plots::sections(results, &mut Ids::default())? {
        if !figures.is_empty() {
            out.push_str(&format!("<section>\n<h2>{heading}</h2>\n{figures}</section>\n"));
        }
    }
    out.push_str(&floor(results));
    out.push_str(&record(results));
    out.push_str("</main>\n</body>\n</html>\n");
    Ok(out)
}

/// Whether the figures may be believed, and if not, why.
fn verdict(results: &Results) -> String {
    let count = results.runs.iter().filter(|run| !run.saturated).count();
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for run in results.runs.iter().filter(|run| !run.saturated) {
        if let Validity::Invalid { reasons: why, up_to } = &run.validity {
            let beyond = up_to.as_ref().map_or(String::new(), |up_to| format!(" beyond {up_to}"));
            let name = format!("{}, {}{beyond}", run.server, format::asked(run.rate));
            reasons.push((name, why.iter().map(String::as_str).collect()));
        }
    }
    if reasons.is_empty() {
        let s = if count == 1 { "" } else { "s" };
        return match count {
            // An experiment without runs has its claims for a verdict.
            0 if !results.tables.is_empty() => String::new(),
            0 => "<p class=\"verdict\">– Nothing was measured by itself</p>\n".to_owned(),
            count => format!("<p class=\"verdict good\">✓ VALID: {count} run{s}</p>\n"),
        };
    }
    let bad = reasons.len();
    let mut out = format!(
        "<div class=\"verdict bad\"><p>✗ INVALID: {bad} of {count} runs must not be believed, or not beyond a percentile</p>\n<ul>\n"
    );
    for (name, why) in reasons {
        let why = if why.is_empty() { "no reason was given".to_owned() } else { why.join("; ") };
        out.push_str(&format!("<li><b>{}</b>: {}</li>\n", escape(&name), escape(&why)));
    }
    out.push_str("</ul></div>\n");
    out
}

fn claims(results: &Results) -> String {
    if results.claims.is_empty() {
        return String::new();
    }
    let mut out = String::from("<section>\n<h2>Claims</h2>\n<ul class=\"claims\">\n");
    for claim in &results.claims {
        let class = match claim.verdict {
            Verdict::Holds => "good",
            Verdict::DoesNotHold => "bad",
            Verdict::CannotTell => "open",
        };
        out.push_str(&format!(
            "<li class=\"{class}\"><b>{}</b> {}<br/><span class=\"note\">{}</span></li>\n",
            format::verdict(claim.verdict),
            escape(&claim.claim),
            escape(&claim.measured)
        ));
    }
    out.push_str("</ul>\n</section>\n");
    out
}

fn tables(results: &Results) -> String {
    let mut out = String::new();
    for table in &results.tables {
        let header: Vec<&str> = table.columns.iter().map(|column| column.head.as_str()).collect();
        let row = |row: &Vec<Cell>| {
            let cells = row.iter().zip(&table.columns);
            cells.map(|(cell, column)| format::cell(cell, column.unit)).collect()
        };
        let rows: Vec<Vec<String>> = table.rows.iter().map(row).collect();
        out.push_str(&format!("<section>\n<h2>{}</h2>\n", escape(&table.title)));
        out.push_str(&plain_table(&table.title, &header, &rows));
        if !table.note.is_empty() {
            out.push_str(&format!("<p class=\"note\">{}</p>\n", escape(&table.note)));
        }
        out.push_str("</section>\n");
    }
    out
}

fn notes(results: &Results) -> String {
    let mut out = String::from("<section>\n<h2>Notes</h2>\n<ul>\n");
    for note in &results.notes {
        out.push_str(&format!("<li>{}</li>\n", escape(note)));
    }
    for run in results.runs.iter().filter(|run| run.repeated > 0) {
        let (server, rate) = (escape(&run.server), format::asked(run.rate));
        out.push_str(&format!(
            "<li>{server}, {rate}: {} of {} blocks were spoilt by other programs and measured \
             again.</li>\n",
            run.repeated, run.blocks
        ));
    }
    out.push_str("</ul>\n</section>\n");
    out
}

fn runs(results: &Results) -> String {
    if results.runs.is_empty() {
        return String::new();
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
    let table = table("Runs", &header, &rows);
    let note = "<p class=\"note\">CPU: 100 % is one whole CPU. waited: requests that waited for a \
                connection. lag: how much later than intended requests were sent. *: under twice \
                the floor.</p>\n";
    let note = match results.runs.iter().any(|run| run.saturated) {
        true => format!("{note}<p class=\"note\">{}</p>\n", format::SATURATED_NOTE),
        false => note.to_owned(),
    };
    let runs = if rows.len() > MANY {
        let count = rows.len();
        format!(
            "<details class=\"group\"><summary>All {count} runs</summary>\n{table}{note}</details>"
        )
    } else {
        format!("{table}{note}")
    };
    format!("<section>\n<h2>Runs</h2>\n{runs}</section>\n")
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

fn floor(results: &Results) -> String {
    let Some(floor) = &results.floor else { return String::new() };
    let row = |name: &str, times| {
        std::iter::once(name.to_owned()).chain(plots::row_of(times)).collect::<Vec<_>>()
    };
    let rows = [row("response", &floor.response), row("send lag", &floor.send_lag)];
    let header = ["", "samples", "p50", "p90", "p99", "p99.9", "p99.99", "max", "mean"];
    let table = table("The floor", &header, &rows);
    format!(
        "<section>\n<h2>The floor</h2>\n<p>What the generator and the kernel take by themselves, \
         against a server that does nothing, at {}.</p>\n{table}</section>\n",
        format::rate(floor.rate)
    )
}

fn record(results: &Results) -> String {
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
    } = &results.machine;
    let mut out = String::from("<section>\n<h2>The machine</h2>\n<dl>\n");
    let mut entry = |name: &str, text: &str| {
        out.push_str(&format!("<dt>{name}</dt><dd>{}</dd>\n", escape(text)));
    };
    entry("Started", &format::date(*started_unix));
    entry("Version", version);
    entry("CPU", &format!("{cpu}, {cpus} online"));
    entry("Hypervisor", hypervisor.as_deref().unwrap_or("none"));
    entry("Memory", &format!("{} MiB", format::count(*memory_mib)));
    entry("Governor", governor);
    entry("Kernel", kernel);
    entry("Kernel's command line", kernel_command_line);
    for mitigation in mitigations {
        entry("Vulnerability", mitigation);
    }
    out.push_str("</dl>\n<h2>The command</h2>\n");
    out.push_str(&format!("<pre><code>{}</code></pre>\n</section>\n", escape(&results.command)));
    out
}
