//! Probes: small programs in `proof/peers/` that measure inside one process and print one line of
//! JSON.
//!
//! [`measure`] runs the probes of one part of an experiment in [interleaved] rounds. Each probe
//! runs alone on a quiet machine, pinned, for a bounded time. What it prints is read into the
//! experiment's own type. A probe that is missing, fails, hangs or prints something else is left
//! out with a note. It never ends the experiment.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use wakeful_load::internals::bench::{Bench, Undisturbed};
use wakeful_load::internals::program::Program;

use crate::contender::Cpus;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError};
use crate::probe::ReadyProbe;

/// How many characters of output that is not JSON are shown.
const SHOWN: usize = 80;

/// A part of an experiment, with its extent.
#[derive(Debug, Clone)]
pub struct Part {
    /// The name, which is that of [`Probe::part`](crate::probe::Probe::part).
    pub name: &'static str,
    /// Arguments that follow each probe's own. They depend on how thorough the lab is.
    pub arguments: Vec<String>,
    /// How many times each probe runs.
    pub rounds: usize,
    /// The approximate time of a run.
    pub each: Duration,
}

impl Part {
    /// Tells the user how long the part will take.
    pub fn expect(&self, lab: &mut Lab<'_>) {
        let probes = lab.probes.iter().filter(|ready| ready.probe.part == self.name).count();
        lab.bench.progress.expect(self.rounds * probes, self.each);
    }
}

/// Runs the lab's probes of one part in interleaved rounds. If the user ends the measurement,
/// returns what there is so far.
///
/// # Errors
/// The machine is at fault. Probes that are at fault are left out from then on, with a note.
pub fn measure<T: DeserializeOwned>(
    lab: &mut Lab<'_>,
    part: &Part,
) -> Result<Measured<T>, LabError> {
    let of_part = lab.probes.iter().filter(|ready| ready.probe.part == part.name);
    let probes: Vec<ReadyProbe> = of_part.cloned().collect();
    let contenders: Vec<_> = probes.iter().map(|ready| ready.probe.name.clone()).collect();
    interleaved::measure(lab, part.name, &contenders, part.rounds, |lab, one, label| {
        let program = probes[one].program(&lab.bench, part);
        let Undisturbed { value, repeated, spoilt } = lab.bench.run_program(&program, label)?;
        let value = parse(&value).map_err(Failure::LeftOut)?;
        Ok(Undisturbed { value, repeated, spoilt })
    })
}

impl ReadyProbe {
    fn program(&self, bench: &Bench<'_>, part: &Part) -> Program {
        let cpus = &bench.machine_cpus;
        let first = cpus.first().map_or_else(String::new, usize::to_string);
        let last = cpus.last().map_or_else(String::new, usize::to_string);
        let fill_in = |word: &String| word.replace("{first}", &first).replace("{last}", &last);
        let path = self.path.to_string_lossy().into_owned();
        let words = self.probe.arguments.iter().chain(&part.arguments).map(fill_in);
        Program {
            argv: std::iter::once(path).chain(words).collect(),
            cpus: match self.probe.cpus {
                Cpus::One => cpus.first().map(|cpu| vec![*cpu]),
                Cpus::All => Some(cpus.clone()),
                Cpus::Others => bench.server_cpus.clone(),
            },
            // A probe that is slow is of interest, but not one that hangs.
            within: part.each * 5 + self.probe.patience,
        }
    }
}

/// Parses the one line of JSON.
fn parse<T: DeserializeOwned>(printed: &str) -> Result<T, String> {
    let mut lines = printed.lines().filter(|line| !line.trim().is_empty());
    let line = match (lines.next(), lines.next()) {
        (Some(line), None) => line,
        (None, _) => return Err("it printed nothing".to_owned()),
        (Some(_), Some(_)) => return Err("it printed more than one line".to_owned()),
    };
    serde_json::from_str(line).map_err(|error| {
        let start: String = line.chars().take(SHOWN).collect();
        format!("it did not print what was expected ({error}): {start}")
    })
}

/// A distribution of times as probes print it, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Times {
    /// The number of samples.
    pub count: u64,
    /// The smallest time.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile. Absent with fewer than 100 samples beyond it.
    pub p99: Option<f64>,
    /// The largest time.
    pub max: f64,
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::lab::{ProbeRuns, Size, bench_that_never_waits};
    use crate::probe::Probe;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Figure {
        figure: f64,
    }

    /// Measures shell scripts as probes of the part `part`.
    fn measured(scripts: &[(&str, &str)], rounds: usize) -> (Measured<Figure>, Vec<String>) {
        let interrupted = AtomicBool::new(false);
        let bench = bench_that_never_waits(&interrupted);
        let ready = |(name, script): &(&str, &str)| ReadyProbe {
            probe: Probe {
                name: (*name).to_owned(),
                part: "part",
                arguments: ["-c", script, "sh"].map(str::to_owned).to_vec(),
                patience: if *name == "hangs" { Duration::ZERO } else { Duration::from_secs(60) },
                ..Probe::default()
            },
            path: Path::new("/bin/sh").to_owned(),
        };
        let mut lab = Lab {
            bench,
            size: Size::Quick,
            program: PathBuf::new(),
            peers: Vec::new(),
            probes: scripts.iter().map(ready).collect(),
            counted: ProbeRuns::default(),
            notes: Vec::new(),
            seed: 1,
            timer: None,
            parts: Vec::new(),
            rounds: None,
            block: None,
        };
        let arguments = vec!["{last}".to_owned()];
        let part = Part { name: "part", arguments, rounds, each: Duration::ZERO };
        let measured = measure(&mut lab, &part).unwrap();
        let another = Part { name: "another part", ..part };
        let other: Measured<Figure> = measure(&mut lab, &another).unwrap();
        assert!(other.is_empty());
        (measured, lab.notes)
    }

    #[test]
    fn what_probes_print_is_parsed_round_by_round() {
        let script = r#"printf '\n{"figure": %s.5, "more": 1}\n' "$1""#;
        let (measured, notes) = measured(&[("a", script), ("b", script)], 2);
        let last = wakeful_load::internals::affinity::allowed_cpus().unwrap().pop().unwrap();
        let expected = Some(last as f64 + 0.5);
        assert_eq!(measured.figures("a", |figure| Some(figure.figure)), [expected; 2]);
        assert_eq!(measured.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(measured.figures("c", |figure| Some(figure.figure)), []);
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn rounds_are_interleaved_there_and_back() {
        let file = std::env::temp_dir().join(format!("wakeful-probes-{}", std::process::id()));
        std::fs::remove_file(&file).ok();
        let script =
            |name: &str| format!("printf {name} >>{}; echo '{{\"figure\": 1}}'", file.display());
        let (a, b, c) = (script("a"), script("b"), script("c"));
        measured(&[("a", &a), ("b", &b), ("c", &c)], 3);
        let order = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).ok();
        assert_eq!(order, "abccbaabc");
    }

    #[test]
    fn one_that_fails_or_prints_garbage_is_left_out_with_a_note() {
        let good = r#"echo '{"figure": 1}'"#;
        let scripts = [
            ("good", good),
            ("fails", "echo no such kernel >&2; exit 1"),
            ("prints garbage", "echo hello"),
            ("prints another thing", r#"echo '{"number": 1}'"#),
            ("prints nothing", "true"),
            ("prints twice", r#"echo '{"figure": 1}'; echo '{"figure": 2}'"#),
            ("hangs", "echo stuck >&2; sleep 600"),
            ("fails later", r#"echo '{"figure": 1}'; test -n "" "#),
        ];
        let (measured, notes) = measured(&scripts, 2);
        assert_eq!(measured.names().collect::<Vec<_>>(), ["good"]);
        assert!(measured.failure("fails").is_some_and(|why| why.contains("no such kernel")));
        assert_eq!(measured.failure("good"), None);
        assert_eq!(measured.of("good").iter().flatten().count(), 2);
        assert_eq!(notes.len(), scripts.len() - 1, "each once: {notes:?}");
        for (note, why) in notes.iter().zip([
            "status 1: no such kernel",
            "hello",
            "missing field `figure`",
            "printed nothing",
            "more than one line",
            "did not end within",
            "status 1",
        ]) {
            assert!(note.contains("was left out") && note.contains(why), "{note}");
        }
    }

    #[test]
    fn what_failed_once_is_not_there_in_any_round() {
        let file = std::env::temp_dir().join(format!("wakeful-once-{}", std::process::id()));
        std::fs::remove_file(&file).ok();
        let script = format!("set -e; mkdir {}; echo '{{\"figure\": 1}}'", file.display());
        let (measured, notes) = measured(&[("once", &script)], 2);
        std::fs::remove_dir(&file).ok();
        assert!(measured.is_empty() && notes.len() == 1, "{notes:?}");
    }
}
