//! What every probe must do: measure a little, print one line of JSON that makes sense, and refuse
//! unknown arguments.
//!
//! Nothing here is a measurement. The counts are tiny, and times are compared only with the loop's
//! own timer.

use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use peer_tests::{Language, PATIENCE, program};
use serde_json::Value;

/// Program, language, what it measures, variant.
type Probe = (&'static str, Language, &'static str, &'static str);

const PROBES: &[Probe] = &[
    ("late-wake-eventfd", Language::Rust, "post", "park"),
    ("late-wake-eventfd", Language::Rust, "post", "spin"),
    ("late-wake-wakeful", Language::Rust, "post", "run"),
    ("late-wake-wakeful", Language::Rust, "post", "run-spin"),
    ("late-wake-wakeful", Language::Rust, "post", "channel"),
    ("late-wake-wakeful", Language::Rust, "post", "channel-spin"),
    ("late-wake-wakeful", Language::Rust, "deferred", "task"),
    ("late-wake-wakeful", Language::Rust, "deferred", "this-turn"),
    ("late-wake-wakeful", Language::Rust, "deferred", "next-turn"),
    ("late-wake-tokio", Language::Rust, "post", "current-thread"),
    ("late-wake-tokio", Language::Rust, "post", "current-thread-mpsc"),
    ("late-wake-tokio", Language::Rust, "post", "current-thread-burn"),
    ("late-wake-tokio", Language::Rust, "post", "current-thread-burn-mpsc"),
    ("late-wake-tokio", Language::Rust, "post", "multi-thread"),
    ("late-wake-tokio", Language::Rust, "post", "multi-thread-mpsc"),
    ("late-wake-tokio", Language::Rust, "deferred", "current-thread"),
    ("late-wake-tokio", Language::Rust, "deferred", "multi-thread"),
    ("late-wake-glommio", Language::Rust, "post", "default"),
    ("late-wake-monoio", Language::Rust, "post", "uring"),
    ("late-wake-monoio", Language::Rust, "post", "epoll"),
    ("late-wake-compio", Language::Rust, "post", "default"),
    ("late-wake-libevent", Language::C, "deferred", "normal"),
    ("late-wake-libevent", Language::C, "deferred", "internal"),
    ("late-wake-libuv", Language::C, "deferred", "default"),
    ("late-wake-asio", Language::C, "deferred", "post"),
    ("late-wake-asio", Language::C, "deferred", "defer"),
];

const POSTS: f64 = 20.0;

/// Runs a check for every probe that is built, and names all probes for which it fails. Probes in C
/// may be missing.
fn for_each(check: impl Fn(&Probe) -> Result<()>) {
    let mut failed = Vec::new();
    for probe in PROBES {
        let outcome = match program(probe.1, probe.0) {
            Ok(path) if path.exists() => check(probe),
            Ok(_) if probe.1 == Language::C => {
                eprintln!("not built: {}", probe.0);
                Ok(())
            }
            Ok(path) => Err(anyhow::anyhow!("{} is not built", path.display())),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            failed.push(format!("{} {} {}: {error:#}", probe.0, probe.2, probe.3));
        }
    }
    assert!(failed.is_empty(), "\n  {}", failed.join("\n  "));
}

/// Returns what the probe prints until it ends by itself.
fn output(probe: &Probe, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(program(probe.1, probe.0)?);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > PATIENCE {
            child.kill()?;
            let said = child.wait_with_output()?;
            bail!("it does not end: {said:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(child.wait_with_output()?)
}

/// Returns the first and the last of the CPUs that may be used.
fn cpus() -> Result<(String, String)> {
    let set = rustix::thread::sched_getaffinity(None)?;
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let first = cpus.next().context("no CPU")?;
    Ok((first.to_string(), cpus.next_back().unwrap_or(first).to_string()))
}

fn measure(probe: &Probe) -> Result<Value> {
    let (first, last) = cpus()?;
    let mut args = vec!["--measure", probe.2, "--variant", probe.3];
    args.extend(["--loop-cpu", &first, "--poster-cpu", &last]);
    args.extend(match probe.2 {
        "post" => ["--posts", "20", "--gap-us", "2000"].as_slice(),
        _ => &["--timer-ms", "1000", "--times", "3", "--gap-us", "20000"],
    });
    let said = output(probe, &args)?;
    ensure!(said.status.success(), "{said:?}");
    let text = String::from_utf8(said.stdout)?;
    ensure!(text.trim_end().lines().count() == 1, "not one line: {text}");
    Ok(serde_json::from_str(&text)?)
}

fn number(value: &Value, path: &[&str]) -> Result<f64> {
    let found = path.iter().try_fold(value, |value, name| value.get(name));
    found.and_then(Value::as_f64).with_context(|| format!("{path:?} in {value}"))
}

/// Checks that a distribution does not contradict itself.
fn check_times(value: &Value, name: &str) -> Result<()> {
    let figures = ["min", "p50", "p90", "max"].map(|figure| number(value, &[name, figure]));
    let figures = figures.into_iter().collect::<Result<Vec<f64>>>()?;
    ensure!(figures[0] > 0.0 && figures.is_sorted(), "{name} in {value}");
    Ok(())
}

#[test]
fn a_probe_of_posts_prints_what_each_took_and_how_often_the_loop_slept() {
    for_each(|probe| {
        if probe.2 != "post" {
            return Ok(());
        }
        let found = measure(probe)?;
        for name in ["latency", "cost"] {
            check_times(&found, name)?;
            ensure!(number(&found, &[name, "count"])? == POSTS, "{found}");
        }
        let sleeps = number(&found, &["sleeps_per_post"])?;
        let spins = probe.3.contains("spin") || probe.3.contains("burn");
        ensure!(if spins { sleeps < 0.5 } else { sleeps > 0.5 }, "{sleeps} sleeps a post");
        Ok(())
    });
}

#[test]
fn deferred_work_is_late_only_by_an_internal_event() {
    for_each(|probe| {
        if probe.2 != "deferred" {
            return Ok(());
        }
        let mut found = measure(probe)?;
        // A page that comes from the disk is a sleep, too: it comes once.
        if probe.3 != "internal" && number(&found, &["sleeps"])? > 0.0 {
            found = measure(probe)?;
        }
        let left = number(&found, &["timer_left"])?;
        let sleeps = number(&found, &["sleeps"])?;
        for name in ["local", "second"] {
            check_times(&found, name)?;
            // Post #2 is later than post #1 by what the machine takes in between: a hypervisor may
            // take 10 ms.
            let late = number(&found, &[name, "p50"])? >= 0.5 * left;
            ensure!(late == (probe.3 == "internal"), "{name}: {found}");
        }
        ensure!((sleeps > 0.0) == (probe.3 == "internal"), "{sleeps} sleeps: {found}");
        if probe.0 == "late-wake-wakeful" {
            ensure!(number(&found, &["parks"])? == 0.0, "{found}");
        }
        Ok(())
    });
}

#[test]
fn what_a_probe_does_not_know_is_named() {
    for_each(|probe| {
        for (args, named) in [
            (["--variant", "no-such-thing"].as_slice(), "no-such-thing"),
            (&["--times", "many"], "many"),
            (&["--no-such-flag", "1"], "--no-such-flag"),
            (&["--times"], "--times"),
        ] {
            let said = output(probe, args)?;
            let text = String::from_utf8(said.stderr)?;
            ensure!(said.status.code() == Some(2), "{args:?}: {}", said.status);
            ensure!(text.contains(named), "{args:?}: {text}");
        }
        let said = output(probe, &["--version"])?;
        let text = String::from_utf8(said.stdout)?;
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        ensure!(said.status.success() && words.len() == 3 && words[0] == probe.0, "{text}");
        Ok(())
    });
}
