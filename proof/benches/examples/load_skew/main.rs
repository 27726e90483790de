//! Load skew: the connections of one loop become ten times as expensive as all others.
//! `load-skew.sh` runs this program.
//!
//! First, four connections are opened that one loop serves. Each of their requests asks for a
//! millisecond of computing, so their loop works 0.7 of its time. Then eight other connections
//! come, whose requests ask for a tenth of that. The server's strategy decides which loops serve
//! them. The program prints the response times of both kinds, and where the connections are in the
//! end. It does so for each of wakeful's strategies, with and without moving, and for Tokio, whose
//! two workers take tasks from each other.
//!
//! `load_skew [--rounds N] [--seconds N] [--servers-under COMMAND]`. It starts itself as the server
//! of each contender: `COMMAND load_skew serve CONTENDER`.

mod contenders;
mod load;
mod on_tokio;
mod on_wakeful;
mod run;
mod threads;
mod work;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use contenders::{CONTENDERS, Server};
use run::Run;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = if let ["serve", name] = words[..] {
        contenders::serve(name)
    } else {
        let Some(settings) = Settings::of(&args) else {
            eprintln!("usage: load_skew [--rounds N] [--seconds N] [--servers-under COMMAND]");
            return ExitCode::from(2);
        };
        compare(&settings)
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load_skew: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Settings {
    rounds: u64,
    measured: Duration,
    /// The command that starts the servers, in words.
    under: String,
}

impl Settings {
    fn of(args: &[String]) -> Option<Self> {
        let mut settings =
            Self { rounds: 3, measured: Duration::from_secs(6), under: String::new() };
        for pair in args.chunks(2) {
            let [flag, value] = pair else { return None };
            let number = || value.parse().ok().filter(|number| (1..=100).contains(number));
            match flag.as_str() {
                "--rounds" => settings.rounds = number()?,
                "--seconds" => settings.measured = Duration::from_secs(number()?),
                "--servers-under" => settings.under.clone_from(value),
                _ => return None,
            }
        }
        Some(settings)
    }
}

/// Measures in interleaved rounds. Each round has every contender once.
fn compare(settings: &Settings) -> io::Result<()> {
    let Settings { rounds, measured, under } = settings;
    let steps = work::steps_in(Duration::from_micros(1));
    let mut runs: Vec<Vec<Run>> = CONTENDERS.iter().map(|_| Vec::new()).collect();
    for round in 0..*rounds {
        for (number, (contender, runs)) in CONTENDERS.iter().zip(&mut runs).enumerate() {
            let server = Server::start(contender.name, under)?;
            let run = run::measure(server, steps, *measured, round)?;
            eprintln!(
                "round {} of {rounds}, {} of {}: {}: {}",
                round + 1,
                number + 1,
                CONTENDERS.len(),
                contender.name,
                run.in_short()
            );
            runs.push(run);
        }
    }
    print!("{}", run::table(&runs));
    Ok(())
}
