//! The probe of `blocked-consumer`: no list loses anything, each prints output that makes sense,
//! and wakeful's list waits for nobody.
//!
//! Nothing here is a measurement. A lost event or wake would make a run endless, and the time limit
//! ends it.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use peer_tests::{Language, program};
use serde_json::Value;

/// The time limit for all lists together. Each stopped producer takes one deadline.
const PATIENCE: Duration = Duration::from_mins(2);

const LISTS: usize = 11;

/// Returns the lines that the program prints, as JSON.
fn lines(args: &[&str]) -> Result<Vec<Value>> {
    let mut command = Command::new(program(Language::Rust, "ready-list")?);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > PATIENCE {
            child.kill()?;
            bail!("it does not end: {:?}", child.wait_with_output()?);
        }
        thread::sleep(Duration::from_millis(5));
    }
    let said = child.wait_with_output()?;
    ensure!(said.status.success(), "{said:?}");
    let text = String::from_utf8(said.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn number(line: &Value, name: &str) -> Result<f64> {
    line.get(name).and_then(Value::as_f64).with_context(|| format!("{name} in {line}"))
}

#[test]
fn every_list_delivers_every_event_and_allocates_as_it_says() -> Result<()> {
    let lines = lines(&["throughput", "--producers", "3", "--events", "20000"])?;
    ensure!(lines.len() == LISTS, "{lines:?}");
    for line in &lines {
        ensure!(number(line, "events_per_ms")? > 0.0, "{line}");
        let allocations = number(line, "allocations_per_event")?;
        match line["contender"].as_str() {
            Some("ready-queue-boxed") => ensure!((0.99..1.01).contains(&allocations), "{line}"),
            Some("ready-queue" | "ready-queue-counts") => ensure!(allocations < 0.01, "{line}"),
            _ => ensure!(allocations < 0.5, "{line}"),
        }
    }
    Ok(())
}

#[test]
fn a_sweep_and_the_services_go_on() -> Result<()> {
    for line in lines(&["sweep", "--seconds", "0.05"])? {
        ensure!(number(&line, "operations_per_second")? > 0.0, "{line}");
    }
    for server in ["wakeful", "tokio"] {
        let lines = lines(&["service", "--server", server, "--seconds", "0.05"])?;
        ensure!(lines.len() == 1 && number(&lines[0], "requests_per_second")? > 0.0, "{lines:?}");
    }
    let lists = "ready-queue,mutexed-deque,seg-queue,tokio-mpsc,vyukov";
    for line in lines(&["service", "--contender", lists, "--seconds", "0.05"])? {
        ensure!(number(&line, "requests_per_second")? > 0.0, "{line}");
    }
    Ok(())
}

#[test]
fn nobody_waits_for_a_producer_stopped_in_wakefuls_queue() -> Result<()> {
    let args = ["priority", "--by", "points", "--deadline-ms", "50"];
    for line in lines(&args)? {
        if let Some(why) = line["skipped"].as_str() {
            eprintln!("skipped: {}: {why}", line["contender"]);
            continue;
        }
        let waited = number(&line, "drains_rescued")? + number(&line, "posts_rescued")?;
        match line["contender"].as_str() {
            Some(name) if name.starts_with("ready-queue") => ensure!(waited == 0.0, "{line}"),
            Some("mutexed-deque" | "spinlocked" | "read-write-locked") => {
                ensure!(waited > 0.0, "{line}");
            }
            _ => {}
        }
    }
    Ok(())
}
