//! Draws p50 against the rate from a table that `wakeful lab … --markdown` printed, for servers of
//! one's choice: `cargo run --example plot-of-a-table -- TABLE.md HEADING OUT.svg SERVER…`.
//!
//! The table is the first one after the heading whose columns are `server` and `p50 at RATE/s`.
//! What it gives in parentheses, the throughput of a saturated server, is left out.

use std::{collections::BTreeMap, error::Error, fs};

use serde_json::json;
use wakeful_load::Run;
use wakeful_load::internals::report;
use wakeful_load::internals::results::Results;

/// By server, and by rate.
type Medians = BTreeMap<String, Vec<(f64, f64)>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [table, heading, out, servers @ ..] = &arguments[..] else {
        return Err("usage: plot-of-a-table TABLE.md HEADING OUT.svg SERVER…".into());
    };
    let medians = medians(&fs::read_to_string(table)?, heading)?;
    let mut runs = Vec::new();
    for server in servers {
        let Some(points) = medians.get(server) else {
            return Err(format!("{table}: no server {server} in the table of {heading}").into());
        };
        for (rate, p50) in points {
            runs.push(run(server, *rate, *p50)?);
        }
    }
    let results = json!({
        "schema": 1, "title": "Median response time against the rate of requests", "command": "",
        "machine": {
            "kernel": "", "cpu": "", "cpus": 0, "memory_mib": 0, "governor": "", "mitigations": [],
            "kernel_command_line": "", "version": "", "started_unix": 0
        },
        "floor": null, "runs": runs, "comparisons": [], "claims": [], "notes": [],
    });
    let results: Results = serde_json::from_value(results)?;
    Ok(fs::write(out, report::readme_plot(&results)?)?)
}

fn medians(text: &str, heading: &str) -> Result<Medians, Box<dyn Error>> {
    let lines = text.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading);
    let mut table = lines.map(cells).skip_while(|cells| cells.first() != Some(&"server"));
    let head = table.next().ok_or_else(|| format!("no table after {heading}"))?;
    let rates: Vec<Option<f64>> = head.iter().map(|head| rate(head)).collect();
    let mut medians = Medians::new();
    for row in table.skip(1).take_while(|cells| cells.len() == head.len()) {
        let times = rates.iter().zip(&row);
        let points = times.filter_map(|(rate, cell)| Some(((*rate)?, time(cell)?)));
        medians.insert(row[0].to_owned(), points.collect());
    }
    Ok(medians)
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// `p50 at 10k/s`.
fn rate(head: &str) -> Option<f64> {
    let number = head.strip_prefix("p50 at ")?.strip_suffix("k/s")?;
    Some(number.parse::<f64>().ok()? * 1e3)
}

/// `9.55 µs`, in nanoseconds.
fn time(cell: &str) -> Option<f64> {
    let (number, unit) = cell.split_once(' ')?;
    let nanoseconds = match unit {
        "µs" => 1e3,
        "ms" => 1e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * nanoseconds)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn run(server: &str, rate: f64, p50: f64) -> serde_json::Result<Run> {
    let nothing = json!({ "count": 0, "mean": 0.0, "min": 0, "max": 0, "curve": [] });
    let mut response = nothing.clone();
    response["p50"] = json!(p50 as u64);
    serde_json::from_value(json!({
        "server": server, "rate": rate, "schedule": "poisson", "seed": 0, "connections": 32,
        "seconds": 0.0, "offered": 0, "answered": 0, "failed": 0, "waited_for_connection": 0,
        "throughput": rate, "response": response, "service": nothing, "send_lag": nothing,
        "cpu": null, "steal": 0.0, "timeline": [], "validity": { "verdict": "valid" },
        "blocks": 1, "repeated": 0,
    }))
}
