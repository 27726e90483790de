//! Measures the parameters of the model on this machine.
//!
//! Requests come at one fixed gap and not at random, so that each figure follows from one
//! measurement: the response of a spinning and of a parking server after a gap, and the CPU that a
//! parking server uses for a request. A closed loop gives the service time of requests that are
//! ready together. The time of a poll is measured in a loop here. Groups of requests, at fixed gaps
//! as well, give the one figure that is fitted: how fast cold caches get warm. The loads that
//! [`check`](crate::check) compares with have random gaps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use wakeful_load::Schedule;
use wakeful_load::internals::affinity;
use wakeful_load::internals::statistics::median;

use crate::costs::{Costs, Idle};
use crate::measure::{Laboratory, MeasureError, Measured};
use crate::policy::Policy;
use crate::replay::replay;
use crate::trace::{Length, Trace};

/// Requests per second, falling. Their gaps are no multiples of a timer's tick.
const RATES: [f64; 6] = [48_700.0, 19_400.0, 9_700.0, 3_230.0, 970.0, 197.0];

/// At a higher rate the next request comes while a parking server is still waking, which says
/// nothing about a sleep.
const SLEEPS_BETWEEN: f64 = 10_000.0;

/// The gaps within and between groups, in nanoseconds.
const GROUPS: (u64, u64) = (20_500, 5_080_000);

/// A few more answers than a median needs.
const LEAST_ANSWERS: f64 = 260.0;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// How many blocks of each kind are measured. Their median counts.
    pub rounds: usize,
    /// How long a block is, if that gives enough answers.
    pub block: Duration,
}

/// Measures everything.
///
/// # Errors
///
/// When the server does not start or dies, or the user has ended the measurement.
pub fn calibrate(laboratory: &mut Laboratory<'_>, effort: Effort) -> Result<Costs, MeasureError> {
    let poll = poll(laboratory.server_cpu())?;
    let parks = RATES.map(|rate| rate <= SLEEPS_BETWEEN);
    for (rate, parks) in RATES.iter().zip(parks) {
        laboratory.expect((1 + usize::from(parks)) * effort.rounds, length(*rate, effort));
    }
    laboratory.expect(effort.rounds, effort.block);
    let groups = groups(effort.block);
    laboratory.expect(effort.rounds, effort.block);
    let (mut saturated, mut grouped) = (Vec::new(), Vec::new());
    let mut spinning = RATES.map(|_| Vec::new());
    let mut parking = RATES.map(|_| Vec::new());
    for round in 0..effort.rounds as u64 {
        for (index, rate) in RATES.into_iter().enumerate() {
            let mut measure = |policy| {
                let schedule = Schedule::Constant(rate);
                laboratory.measure(policy, schedule, length(rate, effort), round)
            };
            spinning[index].push(measure(Policy::Spin)?);
            if parks[index] {
                parking[index].push(measure(Policy::Window(0))?);
            }
        }
        let schedule = Schedule::Trace(Arc::from(groups.arrivals.as_slice()));
        grouped.push(laboratory.measure(Policy::Spin, schedule, effort.block, round)?);
        let park = Policy::Window(0);
        saturated.push(laboratory.measure(park, Schedule::Closed, effort.block, round)?);
    }
    let service_batched = of(&saturated, |block| block.cpu_per_request);
    let idle = |index: usize| {
        // The first sleep stands for shorter ones too.
        let slept = (index..RATES.len()).find(|index| parks[*index]).unwrap_or(index);
        let p50 = |blocks: &[Measured]| of(blocks, |block| block.p50);
        let wake = p50(&parking[slept]) - p50(&spinning[slept]);
        Idle {
            gap: 1e9 / RATES[index],
            spinning: p50(&spinning[index]),
            parking: p50(&spinning[index]) + wake.max(0.0),
            parking_cpu: of(&parking[slept], |block| block.cpu_per_request),
        }
    };
    let costs = Costs {
        warming: 0.0,
        poll,
        // A batch of one request costs its own system call.
        service: service_batched + poll,
        service_batched,
        idle: (0..RATES.len()).map(idle).collect(),
    };
    let warming = warming(&groups, of(&grouped, |block| block.p50), &costs);
    Ok(Costs { warming, ..costs })
}

fn groups(block: Duration) -> Trace {
    let length = Length { seconds: block.as_secs() + 1, requests: usize::MAX };
    let mut groups = Trace::groups(GROUPS.0, GROUPS.1, length);
    let end = block.as_nanos();
    groups.arrivals.retain(|at| u128::from(*at) < end);
    groups
}

/// The warming with which the model gives this median for the groups, in nanoseconds. If no warming
/// does, the nearest one.
fn warming(groups: &Trace, p50: f64, costs: &Costs) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..20 {
        let warming = (low + high) / 2.0;
        let costs = Costs { warming, ..costs.clone() };
        let is_below = replay(&groups.arrivals, Policy::Spin, &costs).response(0.5) < p50;
        *(if is_below { &mut low } else { &mut high }) = warming;
    }
    (low + high) / 2.0
}

fn of(blocks: &[Measured], figure: impl Fn(&Measured) -> f64) -> f64 {
    median(&blocks.iter().map(figure).collect::<Vec<f64>>())
}

fn length(rate: f64, effort: Effort) -> Duration {
    effort.block.max(Duration::from_secs_f64(LEAST_ANSWERS / rate))
}

/// A poll of a spinning loop that finds nothing: the loop yields, asks the kernel and reads the
/// clock.
fn poll(cpu: usize) -> Result<f64, MeasureError> {
    const POLLS: u32 = 20_000;
    let failed = |error: std::io::Error| MeasureError::Machine(format!("cannot poll: {error}"));
    let measure = move || {
        affinity::pin_current_thread(&[cpu]).map_err(failed)?;
        let fd =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let mut events = Vec::with_capacity(1024);
        let mut rounds = Vec::new();
        for _ in 0..9 {
            let began = Instant::now();
            for _ in 0..POLLS {
                rustix::thread::sched_yield();
                let buffer = rustix::buffer::spare_capacity(&mut events);
                epoll::wait(&fd, buffer, Some(&Timespec::default()))
                    .map_err(|error| failed(error.into()))?;
                std::hint::black_box(Instant::now());
            }
            rounds.push(began.elapsed().as_nanos() as f64 / f64::from(POLLS));
        }
        Ok(median(&rounds))
    };
    // In a separate thread, so that nothing that is started later inherits the pin.
    let thread = std::thread::spawn(measure);
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::tests::costs;

    #[test]
    fn the_warming_that_was_seen_is_found() {
        let groups = groups(Duration::from_millis(500));
        let costs = Costs { warming: 0.6, ..costs() };
        let seen = replay(&groups.arrivals, Policy::Spin, &costs).response(0.5);
        let found = warming(&groups, seen, &costs);
        assert!((found - 0.6).abs() < 0.01, "{found}");
        assert!(warming(&groups, 0.0, &costs) < 0.01);
    }

    #[test]
    fn a_poll_is_measured() {
        let cpu = affinity::allowed_cpus().unwrap()[0];
        assert!(poll(cpu).unwrap() > 0.0);
    }
}
