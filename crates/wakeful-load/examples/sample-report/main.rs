//! A report of made-up figures, to look at: `cargo run --example sample-report -- OUT.html`.
//!
//! `OUT-frontier.svg` and `OUT-made-up.svg` beside it are p50 against CPU, `OUT.svg` is the
//! README's plot of the same figures; `OUT-small.html` and `OUT-small.svg` are of a few of them.

use std::{error::Error, fs, path::PathBuf};

use wakeful_load::internals::{
    report,
    table::{self, Style},
};

mod sample;

fn main() -> Result<(), Box<dyn Error>> {
    let out: PathBuf = std::env::args_os().nth(1).ok_or("usage: sample-report OUT.html")?.into();
    let results = sample::results();
    fs::write(&out, report::html(&results)?)?;
    fs::write(out.with_extension("svg"), report::readme_plot(&results)?)?;
    let beside =
        |name: &str| PathBuf::from(format!("{}-{name}.svg", out.with_extension("").display()));
    if let Some(frontier) = report::frontier_plot(&results)? {
        fs::write(beside("frontier"), frontier)?;
    }
    for tradeoff in &results.tradeoffs {
        fs::write(beside(&tradeoff.name), report::tradeoff_plot(tradeoff)?)?;
    }
    print!("{}", table::runs(&results, Style::Terminal));

    let small = PathBuf::from(format!("{}-small", out.with_extension("").display()));
    let servers = ["tokio-current-thread", "wakeful", "go-net", "smol", "nginx", "monoio"];
    let some = |servers: &[&str], most: f64| {
        let mut results = sample::results();
        results.title = "Sample data, not a measurement: a few servers".to_owned();
        results.runs.retain(|run| servers.contains(&run.server.as_str()));
        results.runs.retain(|run| run.rate.is_none_or(|rate| rate <= most));
        results
    };
    let (few, all) = (some(&servers[..4], 1_000.0), some(&servers, 1e9));
    fs::write(small.with_extension("html"), report::html(&few)?)?;
    fs::write(small.with_extension("svg"), report::readme_plot(&all)?)?;
    Ok(())
}
