//! A neighbour on the server's CPU: a thread of ordinary priority that only counts. It stays until
//! the end of a block, or leaves in the middle of one.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use wakeful_load::internals::affinity;
use wakeful_load::internals::bench::{Block, Companion};
use wakeful_load::internals::series::Figures;
use wakeful_load::internals::servers::Server;
use wakeful_load::internals::statistics::median;

use super::cases::{self, Case};
use crate::contender::Cpus;
use crate::interleaved::{Failure, Measured};
use crate::lab::{Lab, LabError};

/// How long the hog stays in the comeback's measured time, and how long it is gone.
pub(super) const HOG_STAYS: Duration = Duration::from_secs(1);
pub(super) const HOG_IS_GONE: Duration = Duration::from_millis(1500);

/// A server beside a hog.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside {
    pub(super) figures: Figures,
    /// The hog's share of the CPU in the measured time, 0 to 1.
    pub(super) hog: Option<f64>,
    /// How far the hog counted per second.
    pub(super) counted: Option<f64>,
}

/// A server whose hog has left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comeback {
    /// The median response time while the hog was there, in nanoseconds.
    pub(super) beside: f64,
    /// The median response time once it has settled, in nanoseconds.
    pub(super) settled: f64,
    /// The time from the hog's end to the middle of the first slice whose median is close to the
    /// settled one, in nanoseconds.
    pub(super) back_after: f64,
}

/// Measures servers, each with a hog on its CPU.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    part: &str,
    cases: &[Case],
    rounds: usize,
) -> Result<Measured<Beside>, LabError> {
    let figures = |block: &Block, hog: Hog| {
        Ok(Beside { figures: Figures::of(block), hog: hog.share, counted: hog.counted })
    };
    cases::measure(lab, part, cases, rounds, |lab, _| Hog::new(lab, None), figures)
}

/// Measures servers whose hog leaves when `stays` of the measured time has passed.
pub(super) fn comeback(
    lab: &mut Lab<'_>,
    part: &str,
    cases: &[Case],
    rounds: usize,
    stays: Duration,
) -> Result<Measured<Option<Comeback>>, LabError> {
    let hog = |lab: &Lab<'_>, _: &Case| Hog::new(lab, Some(stays));
    cases::measure(lab, part, cases, rounds, hog, |block, mut hog| {
        hog.end();
        let recording = &block.measurement.recording;
        let slices = recording.intervals.iter();
        let p50s: Vec<f64> = slices.map(|slice| slice.value_at_quantile(0.5) as f64).collect();
        Ok(hog.left_after.and_then(|left_after| came_back(&p50s, recording.interval, left_after)))
    })
}

/// A median of at most this many times the settled one is close to it.
const NEARLY: f64 = 1.5;

/// Computes a comeback from the medians of slices of the measured time. The last third of the
/// slices without the hog counts as settled.
fn came_back(p50s: &[f64], slice: Duration, left_after: Duration) -> Option<Comeback> {
    let first = left_after.as_secs_f64() / slice.as_secs_f64();
    let (beside, after) = p50s.split_at_checked(first.round() as usize)?;
    let settled = median(after.rchunks(after.len().div_ceil(3).max(1)).next()?);
    let found = after.iter().position(|p50| *p50 <= NEARLY * settled)?;
    let at = (beside.len() + found) as f64 + 0.5;
    Some(Comeback {
        beside: if beside.is_empty() { return None } else { median(beside) },
        settled,
        back_after: (at - first) * slice.as_nanos() as f64,
    })
}

struct Hog {
    cpu: usize,
    /// How long the hog stays. `None` means until the end.
    stays: Option<Duration>,
    running: Option<Running>,
    began: Option<(Instant, Option<f64>, u64)>,
    share: Option<f64>,
    counted: Option<f64>,
    left_after: Option<Duration>,
}

struct Running {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    /// The file in which the kernel reports the thread's CPU time.
    schedstat: PathBuf,
    thread: JoinHandle<()>,
    /// A thread that ends the hog in time, and returns when it did so.
    bouncer: Option<JoinHandle<Instant>>,
}

impl Hog {
    fn new(lab: &Lab<'_>, stays: Option<Duration>) -> Result<Self, Failure> {
        let cpu = Cpus::One.of(&lab.bench).and_then(|cpus| cpus.first().copied());
        let cpu = cpu.ok_or_else(|| Failure::LeftOut("there is only one CPU".to_owned()))?;
        let (running, began, share, counted, left_after) = (None, None, None, None, None);
        Ok(Self { cpu, stays, running, began, share, counted, left_after })
    }

    /// Ends the hog, if there is one.
    fn end(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.stop.store(true, Ordering::Relaxed);
        // The thread only counts, and cannot panic.
        let _ = running.thread.join();
        let left = running.bouncer.and_then(|bouncer| bouncer.join().ok());
        self.left_after = left.zip(self.began).map(|(left, (began, ..))| left - began);
    }
}

impl Companion for Hog {
    fn server_started(&mut self, _: &Server) -> io::Result<()> {
        self.end();
        self.running = Some(Running::start(self.cpu)?);
        Ok(())
    }

    fn window_begins(&mut self) {
        let Some(running) = &mut self.running else { return };
        let began = Instant::now();
        self.began = Some((began, running.cpu_time(), running.count.load(Ordering::Relaxed)));
        if let Some(stays) = self.stays {
            let stop = running.stop.clone();
            let bouncer = thread::Builder::new().name("bouncer".to_owned()).spawn(move || {
                thread::sleep(stays.saturating_sub(began.elapsed()));
                stop.store(true, Ordering::Relaxed);
                Instant::now()
            });
            running.bouncer = bouncer.ok();
        }
    }

    fn window_ended(&mut self) {
        let (Some(running), Some((at, used, counted))) = (&self.running, self.began) else {
            return;
        };
        let seconds = at.elapsed().as_secs_f64();
        let now = running.cpu_time();
        self.share = now.zip(used).map(|(now, used)| (now - used) / seconds);
        let further = running.count.load(Ordering::Relaxed) - counted;
        self.counted = Some(further as f64 / seconds);
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.end();
    }
}

impl Running {
    fn start(cpu: usize) -> io::Result<Self> {
        let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counter) = (stop.clone(), count.clone());
        let (say, said) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name("hog".to_owned()).spawn(move || {
            let ready = affinity::pin_current_thread(&[cpu])
                .and_then(|()| fs::read_link("/proc/thread-self"));
            let is_ready = ready.is_ok();
            // Sending fails only if the receiver is gone. Then no hog is needed.
            let _ = say.send(ready);
            while is_ready && !stopped.load(Ordering::Relaxed) {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        let this = said.recv().map_err(|_| io::Error::other("the hog has ended"))??;
        let schedstat = PathBuf::from("/proc").join(this).join("schedstat");
        Ok(Self { stop, count, schedstat, thread, bouncer: None })
    }

    /// Returns the CPU time of the hog in seconds, if the kernel reports it.
    fn cpu_time(&self) -> Option<f64> {
        let text = fs::read_to_string(&self.schedstat).ok()?;
        let nanoseconds: u64 = text.split_whitespace().next()?.parse().ok()?;
        Some(nanoseconds as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(100);

    #[test]
    fn the_first_slice_like_the_last_ones_is_the_comeback() {
        let mut p50s = vec![30e3; 10];
        p50s.extend([31e3, 29e3, 9e3, 8e3]);
        p50s.extend([8e3; 6]);
        let found = came_back(&p50s, SLICE, Duration::from_secs(1)).unwrap();
        assert!((found.back_after - 250e6).abs() < 1.0, "{found:?}");
        assert_eq!((found.beside, found.settled), (30e3, 8e3));
        let late = came_back(&p50s, SLICE, Duration::from_millis(1040)).unwrap();
        assert!((late.back_after - 210e6).abs() < 1.0, "{late:?}");
        assert!(came_back(&p50s, SLICE, Duration::from_secs(2)).is_none(), "nothing behind it");
    }

    #[test]
    fn a_hog_counts_until_it_is_stopped_and_the_kernel_knows_of_it() {
        let cpu = affinity::allowed_cpus().unwrap()[0];
        let hog = Running::start(cpu).unwrap();
        let before = hog.count.load(Ordering::Relaxed);
        while hog.cpu_time().unwrap() < 0.01 || hog.count.load(Ordering::Relaxed) == before {
            thread::sleep(Duration::from_millis(1));
        }
        hog.stop.store(true, Ordering::Relaxed);
        hog.thread.join().unwrap();
    }
}
