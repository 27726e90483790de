//! Compares how much quinn carries on wakeful and on Tokio. It uses one connection over loopback.
//! Server and client have a thread each, pinned to different CPUs, both on the same runtime.
//!
//! `quinn_throughput [--rounds N] [--seconds S] [--idle POLICY] [--load bulk|requests]`
//!
//! A round has four blocks: wakeful, Tokio, Tokio, wakeful. The next round begins with Tokio. So
//! each round gives two ratios of neighbours, and one ratio of each runtime to itself.

mod block;
mod contender;
mod load;
mod statistics;
#[path = "../../../../ports/adapters/examples/quinn/runtime.rs"]
mod wakeful_runtime;

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use wakeful::IdlePolicy;

use self::block::{Measured, measure};
use self::contender::Contender;
use self::load::Load;
use self::statistics::{Spread, median};

const USAGE: &str =
    "usage: quinn_throughput [--rounds N] [--seconds S] [--idle POLICY] [--load bulk|requests]";

struct Settings {
    rounds: usize,
    block: Duration,
    idle: IdlePolicy,
    loads: Vec<Load>,
}

fn main() -> ExitCode {
    let Some(settings) = settings(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    println!("load average before: {}", load_average());
    for load in &settings.loads {
        if let Err(error) = compare(&settings, *load) {
            eprintln!("quinn_throughput: {error}");
            return ExitCode::FAILURE;
        }
    }
    println!("load average after: {}", load_average());
    ExitCode::SUCCESS
}

fn settings(mut args: impl Iterator<Item = String>) -> Option<Settings> {
    fn parse<T: FromStr>(value: Option<String>) -> Option<T> {
        value?.parse().ok()
    }
    let mut settings = Settings {
        rounds: 8,
        block: Duration::from_secs(1),
        idle: IdlePolicy::default(),
        loads: vec![Load::Bulk, Load::Requests],
    };
    while let Some(name) = args.next() {
        let value = args.next();
        match &name[..] {
            "--rounds" => {
                settings.rounds = parse(value).filter(|rounds| (1..=1000).contains(rounds))?;
            }
            "--seconds" => {
                let seconds = parse(value).filter(|seconds| (0.05..=60.0).contains(seconds))?;
                settings.block = Duration::from_secs_f64(seconds);
            }
            "--idle" => settings.idle = parse(value)?,
            "--load" => settings.loads = vec![parse(value)?],
            _ => return None,
        }
    }
    Some(settings)
}

/// The blocks of a round, each contender's in the order in which they ran.
struct Round {
    ours: [Measured; 2],
    theirs: [Measured; 2],
}

/// Runs the rounds, and prints the results.
fn compare(settings: &Settings, load: Load) -> std::io::Result<()> {
    let wakeful = Contender::Wakeful(settings.idle);
    let block = |contender| measure(contender, load, settings.block);
    let mut rounds = Vec::new();
    for number in 0..settings.rounds {
        rounds.push(if number % 2 == 0 {
            let first = block(wakeful)?;
            let theirs = [block(Contender::Tokio)?, block(Contender::Tokio)?];
            Round { ours: [first, block(wakeful)?], theirs }
        } else {
            let first = block(Contender::Tokio)?;
            let ours = [block(wakeful)?, block(wakeful)?];
            Round { ours, theirs: [first, block(Contender::Tokio)?] }
        });
    }
    println!("{load}, {} rounds of 4 blocks of {:?}:", settings.rounds, settings.block);
    let side = |contender: Contender, blocks: fn(&Round) -> &[Measured; 2]| {
        let of = |field: fn(&Measured) -> f64| {
            median(rounds.iter().flat_map(blocks).map(field).collect())
        };
        println!(
            "  {contender}: {:.0} {}, server {:.0} % and client {:.0} % of a CPU",
            of(|block| block.rate),
            load.unit(),
            100.0 * of(|block| block.server_cpu),
            100.0 * of(|block| block.client_cpu),
        );
    };
    side(wakeful, |round| &round.ours);
    side(Contender::Tokio, |round| &round.theirs);
    ratios("throughput", &rounds, |block| block.rate);
    ratios("per CPU time", &rounds, Measured::per_cpu_time);
    Ok(())
}

/// Prints the ratio of wakeful to Tokio, and of each to itself.
fn ratios(name: &str, rounds: &[Round], of: fn(&Measured) -> f64) {
    let each = |ratio: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(ratio).collect());
    let neighbours = rounds.iter().flat_map(|Round { ours, theirs }| {
        [of(&ours[0]) / of(&theirs[0]), of(&ours[1]) / of(&theirs[1])]
    });
    println!(
        "  {name}, wakeful / tokio: {}; A/A: wakeful {}, tokio {}",
        Spread::of(neighbours.collect()),
        each(&|round| of(&round.ours[0]) / of(&round.ours[1])),
        each(&|round| of(&round.theirs[0]) / of(&round.theirs[1])),
    );
}

fn load_average() -> String {
    let read = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    read.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
