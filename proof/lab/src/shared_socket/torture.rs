//! The torture run: many threads and loops with random connects, reads, writes, closes and moves,
//! in which every byte is accounted for.
//!
//! It is a separate program, `wakeful-torture`, which is run if it lies beside `wakeful`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use wakeful_load::internals::program::{Program, ProgramError};

use super::parts::TORTURE;
use crate::lab::{Lab, LabError};

const PROGRAM: &str = "wakeful-torture";

/// What the program reports.
#[derive(Debug, Clone, Default)]
pub(super) struct Tortured {
    /// The counts, by name.
    pub(super) counts: Vec<(String, f64)>,
    /// The faults, one line each.
    pub(super) faults: Vec<String>,
}

/// Tells the user how long the run will take.
pub(super) fn expect(lab: &mut Lab<'_>, duration: Duration) {
    if program(lab).is_file() {
        lab.bench.progress.expect(1, duration);
    }
}

fn program(lab: &Lab<'_>) -> PathBuf {
    lab.program.with_file_name(PROGRAM)
}

/// Runs the program. Returns `None` if it is missing.
pub(super) fn run(lab: &mut Lab<'_>, duration: Duration) -> Result<Option<Tortured>, LabError> {
    let path = program(lab);
    if !path.is_file() {
        lab.notes.push(format!(
            "Torture was left out: there is no {}; `cargo build --release -p {PROGRAM}` makes it.",
            path.display()
        ));
        return Ok(None);
    }
    let seed = lab.seed.to_string();
    let seconds = format!("{}s", duration.as_secs());
    let words = [&*path.to_string_lossy(), "--json", "--seed", &seed, "--duration", &seconds]
        .map(str::to_owned);
    let program = Program {
        argv: words.to_vec(),
        cpus: Some(lab.bench.machine_cpus.clone()),
        within: duration * 5 + Duration::from_secs(60),
    };
    // Nothing is timed, so other programs may use the machine.
    let share = std::mem::replace(&mut lab.bench.limits.share, f64::INFINITY);
    let outcome = lab.bench.run_program(&program, TORTURE);
    lab.bench.limits.share = share;
    match outcome {
        Ok(printed) => Ok(Some(Tortured::parse(&printed.value))),
        Err(ProgramError::Interrupted) => Ok(None),
        Err(ProgramError::Bench(error)) => Err(error.into()),
        // The program ends with an error when it has found a fault.
        Err(error) => Ok(Some(Tortured { counts: Vec::new(), faults: vec![error.to_string()] })),
    }
}

impl Tortured {
    /// Parses the JSON that the program prints: any counts, and `faults`.
    fn parse(text: &str) -> Self {
        let Ok(Value::Object(all)) = serde_json::from_str(text) else {
            let faults = vec!["it did not print what was expected".to_owned()];
            return Self { counts: Vec::new(), faults };
        };
        let mut tortured = Self::default();
        for (name, value) in &all {
            match value {
                Value::Array(faults) if name == "faults" => {
                    tortured.faults = faults.iter().map(ToString::to_string).collect();
                }
                Value::Object(group) => {
                    let of = |(inner, value): (&String, &Value)| {
                        Some((format!("{name}: {inner}"), value.as_f64()?))
                    };
                    tortured.counts.extend(group.iter().filter_map(of));
                }
                value => tortured.counts.extend(value.as_f64().map(|value| (name.clone(), value))),
            }
        }
        tortured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_counts_and_what_was_wrong_is_taken_from_what_it_prints() {
        let text = r#"{"seed": 7, "did": {"tcp": 3, "note": "x"}, "faults": ["byte 5 of 3"]}"#;
        let tortured = Tortured::parse(text);
        let counts = [("did: tcp".to_owned(), 3.0), ("seed".to_owned(), 7.0)];
        assert_eq!(tortured.counts, counts);
        assert_eq!(tortured.faults, ["\"byte 5 of 3\""]);
        assert_eq!(Tortured::parse("seed 7").faults.len(), 1);
    }
}
