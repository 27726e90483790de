//! One measurement of a contender, and the table of all measurements.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::time::Duration;

use crate::contenders::{CONTENDERS, LOOPS, Server};
use crate::load::{Kind, Load};
use crate::threads::{cpu_times, used};

/// Four connections keep a loop busy for 0.7 of its time. Eight others take 0.1 in all.
const EXPENSIVE: (usize, f64, u64) = (4, 700.0, 1000);
const CHEAP: (usize, f64, u64) = (8, 1000.0, 100);

/// The work of a request that finds out which thread serves a connection, in microseconds. It is
/// much more than anything else takes at that time.
const PROBE: u64 = 3000;

/// The most connections that are opened to get enough of them on one loop.
const MOST_TRIES: usize = 100;

/// The pause between two connections that come while the server works.
const PAUSE: Duration = Duration::from_millis(20);

pub struct Run {
    /// Response times in nanoseconds.
    cheap: Vec<u64>,
    expensive: Vec<u64>,
    late: Vec<u64>,
    /// The CPU use of each loop, the busiest first. 1.0 is a whole CPU.
    cpu: Vec<f64>,
    /// How many expensive and cheap connections each thread has at the end.
    places: Vec<(usize, usize)>,
    /// How many connections moved. Only wakeful reports this.
    moved: Option<u64>,
}

/// Measures one server. `steps` steps take a microsecond.
pub fn measure(server: Server, steps: u64, measured: Duration, seed: u64) -> io::Result<Run> {
    let mut load = Load::new(server.addr, seed);
    let mut expensive = kind(EXPENSIVE, steps);
    let mut cheap = kind(CHEAP, steps);

    expensive.connections = on_one_loop(&mut load, &server, EXPENSIVE.0, steps)?;
    load.go_on(&[&expensive], Duration::from_secs(1))?;
    for _ in 0..CHEAP.0 {
        cheap.connections.push(load.connect()?);
        load.go_on(&[&expensive], PAUSE)?;
    }
    load.go_on(&[&expensive, &cheap], Duration::from_secs(2))?;

    let before = cpu_times(server.pid())?;
    let begin = load.now();
    load.late.clear();
    load.go_on(&[&expensive, &cheap], measured)?;
    let after = cpu_times(server.pid())?;
    let answers = load.answers()?;

    let times = |kind: &Kind| -> Vec<u64> {
        let of_kind = answers.iter().filter(|answer| kind.connections.contains(&answer.connection));
        of_kind.filter(|a| a.due >= begin).map(|a| a.at - a.due).collect()
    };
    let (of_cheap, of_expensive) = (times(&cheap), times(&expensive));
    let mut cpu: Vec<f64> = used(&before, &after)
        .iter()
        .map(|(_, used)| used.as_secs_f64() / measured.as_secs_f64())
        .collect();
    cpu.sort_by(|a, b| b.total_cmp(a));
    cpu.truncate(LOOPS);

    let mut places = BTreeMap::<u32, (usize, usize)>::new();
    for connection in &expensive.connections {
        places.entry(thread_of(&mut load, &server, *connection, steps)?).or_default().0 += 1;
    }
    for connection in &cheap.connections {
        places.entry(thread_of(&mut load, &server, *connection, steps)?).or_default().1 += 1;
    }
    let mut places: Vec<_> = places.into_values().collect();
    places.sort_unstable_by(|a, b| b.cmp(a));
    let late = std::mem::take(&mut load.late);
    drop(load);
    let moved = server.end()?.parse().ok();
    Ok(Run { cheap: of_cheap, expensive: of_expensive, late, cpu, places, moved })
}

fn kind((_, rate, microseconds): (usize, f64, u64), steps: u64) -> Kind {
    Kind { connections: Vec::new(), rate, steps: steps * microseconds }
}

/// Opens connections until enough of them are served by one loop, and closes the others. On Tokio
/// no thread owns a connection, so the choice means nothing there.
fn on_one_loop(
    load: &mut Load,
    server: &Server,
    many: usize,
    steps: u64,
) -> io::Result<Vec<usize>> {
    let mut found = BTreeMap::<u32, Vec<usize>>::new();
    for _ in 0..MOST_TRIES {
        let connection = load.connect()?;
        let of_thread = found.entry(thread_of(load, server, connection, steps)?).or_default();
        of_thread.push(connection);
        if of_thread.len() == many {
            let chosen = of_thread.clone();
            let others = found.into_values().flatten().filter(|it| !chosen.contains(it));
            others.into_iter().try_for_each(|other| load.close(other))?;
            return Ok(chosen);
        }
    }
    Err(io::Error::other("no loop gets enough connections"))
}

/// Returns the thread that works when this connection sends a request while no other does.
fn thread_of(load: &mut Load, server: &Server, connection: usize, steps: u64) -> io::Result<u32> {
    let before = cpu_times(server.pid())?;
    load.ask_alone(connection, steps * PROBE)?;
    // The kernel accounts for a thread's time when the thread sleeps.
    std::thread::sleep(Duration::from_millis(5));
    let used = used(&before, &cpu_times(server.pid())?);
    let most = used.into_iter().max_by_key(|(_, used)| *used);
    most.map(|(thread, _)| thread).ok_or_else(|| io::Error::other("the server has no thread"))
}

impl Run {
    /// Returns one line for the person who watches.
    pub fn in_short(&self) -> String {
        format!(
            "p99 of the cheap ones {}, of the expensive ones {}; CPU {}; in the end {}; moved {:?}; sent late by {} at p50 and {} at p99",
            millis(quantile(&self.cheap, 990)),
            millis(quantile(&self.expensive, 990)),
            cpu(&self.cpu),
            places(&self.places),
            self.moved,
            millis(quantile(&self.late, 500)),
            millis(quantile(&self.late, 990)),
        )
    }
}

/// Returns a table with a row for each contender, over all rounds together.
pub fn table(runs: &[Vec<Run>]) -> String {
    let mut table = String::from(
        "| server | cheap: p50 | p90 | p99 | p99 of each round | expensive: p50 | p90 | p99 | CPU of the loops | expensive + cheap on each loop in the end | moved |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (contender, runs) in CONTENDERS.iter().zip(runs) {
        let all =
            |of: fn(&Run) -> &Vec<u64>| -> Vec<u64> { runs.iter().flat_map(of).copied().collect() };
        let quantiles = |times: Vec<u64>| {
            [500, 900, 990].map(|part| millis(quantile(&times, part))).join(" | ")
        };
        let each = |of: &dyn Fn(&Run) -> String| runs.iter().map(of).collect::<Vec<_>>().join(", ");
        let is_tokio = runs.iter().all(|run| run.moved.is_none());
        let rounds = f64::from(u32::try_from(runs.len()).unwrap_or(u32::MAX));
        let mean = |nth: usize| runs.iter().map(|run| run.cpu[nth]).sum::<f64>() / rounds;
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} |",
            contender.name,
            quantiles(all(|run| &run.cheap)),
            each(&|run| millis(quantile(&run.cheap, 990))),
            quantiles(all(|run| &run.expensive)),
            cpu(&[mean(0), mean(1)]),
            if is_tokio { "any".to_owned() } else { each(&|run| places(&run.places)) },
            if is_tokio { String::new() } else { each(&|run| run.moved.unwrap_or(0).to_string()) },
        );
    }
    let late: Vec<u64> = runs.iter().flatten().flat_map(|run| &run.late).copied().collect();
    let (half, most) = (millis(quantile(&late, 500)), millis(quantile(&late, 990)));
    let _ = writeln!(
        table,
        "\nRequests were sent {half} (p50) and {most} (p99) after they were due: that is in every figure."
    );
    table
}

/// Returns a quantile. `part` is in thousandths.
fn quantile(times: &[u64], part: usize) -> u64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let nth = (sorted.len() * part).div_ceil(1000);
    sorted.get(nth.saturating_sub(1)).copied().unwrap_or(0)
}

fn millis(nanos: u64) -> String {
    format!("{:.2} ms", Duration::from_nanos(nanos).as_secs_f64() * 1e3)
}

fn cpu(loops: &[f64]) -> String {
    loops.iter().map(|cpu| format!("{:.0} %", cpu * 100.0)).collect::<Vec<_>>().join(" + ")
}

fn places(places: &[(usize, usize)]) -> String {
    places.iter().map(|(e, c)| format!("{e}+{c}")).collect::<Vec<_>>().join(" / ")
}
