//! A server under one load, compared with others under theirs: settings of the governor, its cap,
//! and what companions see.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use wakeful_load::internals::bench::{Block, Companion, Load, Undisturbed};
use wakeful_load::internals::procfs::ProcessCpu;
use wakeful_load::internals::series::Figures;
use wakeful_load::internals::servers::Server;

use crate::contender::Contender;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError};

/// A contender under a load.
pub(super) struct Case {
    /// The name in tables, which is unique within its part.
    pub(super) name: String,
    pub(super) contender: Contender,
    pub(super) load: Load,
}

impl Case {
    pub(super) fn new(contender: Contender, load: &Load) -> Self {
        Self { name: contender.name.clone(), contender, load: load.clone() }
    }
}

/// Tells the user how long the cases will take.
pub(super) fn expect(lab: &mut Lab<'_>, cases: &[Case], rounds: usize) {
    for case in cases {
        let each = lab.bench.expected_time(&case.load);
        lab.bench.progress.expect(rounds, each);
    }
}

/// Measures each case once per round, with its own companion. `figures` computes the result from
/// the block and the companion, or leaves the case out.
pub(super) fn measure<C: Companion + Send, T>(
    lab: &mut Lab<'_>,
    part: &str,
    cases: &[Case],
    rounds: usize,
    mut companion: impl FnMut(&Lab<'_>, &Case) -> Result<C, Failure>,
    figures: impl Fn(&Block, C) -> Result<T, Failure>,
) -> Result<Measured<T>, LabError> {
    let names: Vec<_> = cases.iter().map(|case| case.name.clone()).collect();
    let mut round = vec![0; cases.len()];
    interleaved::measure(lab, part, &names, rounds, |lab, one, label| {
        let case = &cases[one];
        let mut load = case.load.clone();
        let seed = load.plan.get_seed() + round[one];
        load.plan = load.plan.seed(seed);
        round[one] += 1;
        let mut beside = companion(lab, case)?;
        let own_cpus = lab.bench.server_cpus.clone();
        lab.bench.server_cpus = case.contender.cpus.of(&lab.bench);
        let block = lab.bench.block_beside(&case.contender.server, &load, label, &mut beside);
        lab.bench.server_cpus = own_cpus;
        let block = block?;
        if block.measurement.interrupted {
            return Err(Failure::Interrupted);
        }
        let (repeated, spoilt) = (block.repeated, block.spoilt);
        Ok(Undisturbed { value: figures(&block, beside)?, repeated, spoilt })
    })
}

/// Measures cases of which only the block's own figures are wanted.
pub(super) fn plain(
    lab: &mut Lab<'_>,
    part: &str,
    cases: &[Case],
    rounds: usize,
) -> Result<Measured<Figures>, LabError> {
    measure(lab, part, cases, rounds, |_, _| Ok(()), |block, ()| Ok(Figures::of(block)))
}

/// The CPU use of a server with a capped spin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capped {
    pub(super) figures: Figures,
    /// The CPU time in the busiest second of the measured time, if that lasted long enough.
    pub(super) busiest_second: Option<f64>,
}

/// Measures with [`Seconds`] as the companion.
pub(super) fn capped(
    lab: &mut Lab<'_>,
    part: &str,
    cases: &[Case],
    rounds: usize,
) -> Result<Measured<Capped>, LabError> {
    let companion = |_: &Lab<'_>, _: &Case| Ok(Seconds::default());
    measure(lab, part, cases, rounds, companion, |block, seconds| {
        let busiest_second = busiest_second(&seconds.readings());
        Ok(Capped { figures: Figures::of(block), busiest_second })
    })
}

/// The time between two readings.
const STEP: Duration = Duration::from_millis(100);

/// Reads the server's CPU time ten times per second, on its own thread.
#[derive(Default)]
struct Seconds {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<(Instant, ProcessCpu)>>>,
    window: Option<Range<Instant>>,
}

impl Seconds {
    /// Returns the seconds since the first reading in the measured time, with the CPU seconds since
    /// then.
    fn readings(mut self) -> Vec<(f64, f64)> {
        let read = self.thread.take().and_then(|thread| thread.join().ok());
        let mut read = read.unwrap_or_default();
        read.retain(|(at, _)| self.window.as_ref().is_some_and(|window| window.contains(at)));
        let Some((begin, first)) = read.first().cloned() else { return Vec::new() };
        let since_first = |(at, cpu): (Instant, ProcessCpu)| {
            ((at - begin).as_secs_f64(), cpu.used_since(&first).total().as_secs_f64())
        };
        read.into_iter().map(since_first).collect()
    }
}

impl Companion for Seconds {
    fn server_started(&mut self, server: &Server) -> io::Result<()> {
        // If the block is measured again, the thread of the previous attempt has to end.
        self.stop.store(true, Ordering::Relaxed);
        self.stop = Arc::default();
        let pid = server.pid().ok_or_else(|| io::Error::other("its process is not known"))?;
        let stop = self.stop.clone();
        let read = move || {
            let mut all = Vec::new();
            while let (false, Ok(cpu)) = (stop.load(Ordering::Relaxed), ProcessCpu::read(pid)) {
                all.push((Instant::now(), cpu));
                thread::sleep(STEP);
            }
            all
        };
        // This is not the generator's thread, whose CPU the new thread would inherit.
        self.thread = Some(thread::Builder::new().name("seconds".to_owned()).spawn(read)?);
        Ok(())
    }

    fn window_begins(&mut self) {
        let now = Instant::now();
        self.window = Some(now..now);
    }

    fn window_ended(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(window) = &mut self.window {
            window.end = Instant::now();
        }
    }
}

impl Drop for Seconds {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Returns the most CPU time per second, in any stretch of a second or slightly more. The kernel
/// counts CPU time in ticks of about 4 ms.
fn busiest_second(read: &[(f64, f64)]) -> Option<f64> {
    let from = |(index, (start, used)): (usize, &(f64, f64))| {
        let later = read[index..].iter().find(|(at, _)| at - start >= 1.0)?;
        Some((later.1 - used) / (later.0 - start))
    };
    read.iter().enumerate().filter_map(from).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_second_is_found_wherever_it_begins() {
        // The server is idle, then uses half a CPU for 1.2 s, and then is idle.
        let used = |at: f64| (at - 0.5).clamp(0.0, 1.2) / 2.0;
        let read: Vec<_> =
            (0..30).map(|step| f64::from(step) / 10.0).map(|at| (at, used(at))).collect();
        let busiest = busiest_second(&read).unwrap();
        assert!((busiest - 0.5).abs() < 0.05, "{busiest}");
        assert_eq!(busiest_second(&read[..10]), None, "less than a second");
    }
}
