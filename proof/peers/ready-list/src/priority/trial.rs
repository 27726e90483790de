//! One producer is stopped in the middle of its push. The trial measures how long the consumer
//! waits for events that other producers, or the same one, have pushed.
//!
//! All threads share one CPU, as on a real system whose high-priority consumer has preempted a
//! low-priority producer. The consumer is at `SCHED_FIFO`, the stopped producer at `SCHED_IDLE`,
//! and a busy loop of ordinary priority is between them. Another producer is not stopped. There are
//! two questions:
//!
//! * [`State::Awake`]: the consumer is awake and drains. How long does it take until it has all
//!   events whose push was complete?
//! * [`State::Asleep`]: the consumer sleeps, and the stopped producer may be the one that has to
//!   wake it. How long does it take from the beginning of the other producer's push until the
//!   consumer has that event?
//!
//! If a wait reaches the deadline, the stopped producer is let go, at a high priority.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::thread::Pid;

use crate::list::{Consumer, Producer, ReadyList};
use crate::priority::gate::{self, Arrival};
use crate::priority::stepping;
use crate::scheduling::{self, Policy, this_thread};

/// The consumer's priority. Controllers have a higher one, and the other producer has a lower one.
pub const CONSUMER: Policy = Policy::Fifo(10);
const OTHER_PRODUCER: Policy = Policy::Fifo(5);
/// The priority of producers that are let go so that the run can end.
pub const RESCUED: Policy = Policy::Fifo(20);
pub const CONTROLLER: Policy = Policy::Fifo(30);

/// How long the other producer may take before it counts as blocked.
const BLOCKED: Duration = Duration::from_millis(5);

/// The time between two looks of the controller. A yield would not be enough: the controller may be
/// on the consumer's CPU, and has the higher priority.
const LOOK: Duration = Duration::from_micros(50);

/// How many events the stopped producer pushed before. Each of these counts 1, and the other
/// producer's event counts [`OTHERS`].
pub const BEFORE: u64 = 3;
const OTHERS: u64 = 1 << 32;

/// Where to stop.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// Where the design's own code calls this name.
    At(&'static str),
    /// After the instruction of this number.
    Behind(u64),
}

/// What the consumer does meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Awake,
    Asleep,
}

/// The result of a trial.
#[derive(Debug, Clone, Copy)]
pub struct Waited {
    pub time: Duration,
    /// It did not end before the deadline.
    pub rescued: bool,
}

/// What the threads of a trial tell each other.
struct Common {
    cpu: usize,
    /// When the other producer began its push, in nanoseconds since the origin.
    other_began: AtomicU64,
    /// The sum of what the consumer has taken.
    taken: AtomicU64,
    origin: Instant,
}

impl Common {
    fn enter(&self, policy: Policy) -> Result<()> {
        scheduling::pin(self.cpu)?;
        scheduling::set_policy(this_thread(), policy).context("cannot set a thread's policy")
    }
}

/// Runs a trial. Returns nothing if the push ended before it came to the stop.
pub fn run<L: ReadyList>(
    stop: Stop,
    state: State,
    cpu: usize,
    deadline: Duration,
) -> Result<Option<Waited>> {
    gate::close();
    let (mut ends, consumer) = L::build(2, 64)?;
    let (stopped, other) = (ends.remove(0), ends.remove(0));
    let common = &Common {
        cpu,
        other_began: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        origin: Instant::now(),
    };
    let (goal_sender, goal) = channel();
    let (consumer_done, taken) = channel();
    let (consumer_is, consumer_thread) = channel();
    let (stopped_is, stopped_thread) = channel();
    let (stopped_go, may_start) = channel();
    let (other_go, other_may) = channel();
    let (other_is_done, other_done) = channel();
    thread::scope(|scope| {
        let consuming = scope.spawn(move || match state {
            State::Awake => drain_when_told::<L>(consumer, common, &goal, &consumer_done),
            State::Asleep => sleep_and_drain::<L>(consumer, common, &consumer_is, &consumer_done),
        });
        let stopping = scope.spawn(move || {
            common.enter(RESCUED)?;
            let mut stopped = stopped;
            // Whatever a first push sets up, here or in the allocator, must not be part of the
            // measurement.
            (0..BEFORE).for_each(|_| stopped.push(1));
            stopped_is.send(this_thread())?;
            may_start.recv()?;
            push_and_stop(&mut stopped, stop);
            gate::ended();
            anyhow::Ok(())
        });
        let others = scope.spawn(move || {
            common.enter(OTHER_PRODUCER)?;
            let mut other = other;
            other_may.recv()?;
            common.other_began.store(nanoseconds(common.origin), SeqCst);
            other.push(OTHERS);
            // Nobody waits for it any more if it was late.
            let _ = other_is_done.send(());
            anyhow::Ok(())
        });
        let mut victim = None;
        let outcome = (|| {
            let stopped = stopped_thread.recv()?;
            victim = Some(stopped);
            if state == State::Asleep {
                until_asleep(consumer_thread.recv()?, &common.taken)?;
            }
            stopped_go.send(())?;
            let arrival = gate::arrival();
            if arrival == Arrival::Stopped {
                scheduling::set_policy(stopped, Policy::Idle)?;
            }
            other_go.send(())?;
            let all = other_done.recv_timeout(BLOCKED).is_ok();
            let _ = goal_sender.send(if all { BEFORE + OTHERS } else { BEFORE });
            let waited = if let Ok(time) = taken.recv_timeout(deadline) {
                Waited { time, rescued: false }
            } else {
                scheduling::set_policy(stopped, RESCUED)?;
                gate::open();
                Waited { time: taken.recv()?, rescued: true }
            };
            anyhow::Ok((arrival == Arrival::Stopped).then_some(waited))
        })();
        // At its own priority, beside the busy loop, it would take very long to end.
        if let Some(thread) = victim {
            // This fails if the thread has ended.
            let _ = scheduling::set_policy(thread, RESCUED);
        }
        gate::open();
        consuming.join().expect("the consumer does not panic")?;
        stopping.join().expect("the producer does not panic")?;
        others.join().expect("the producer does not panic")?;
        outcome
    })
}

fn nanoseconds(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn push_and_stop(producer: &mut impl Producer, stop: Stop) {
    match stop {
        Stop::At(name) => producer.push_at(1, |at| {
            if at == name {
                gate::stop_here();
            }
        }),
        Stop::Behind(number) => stepping::stepped(number, || producer.push(1)),
    }
}

fn drain_when_told<L: ReadyList>(
    mut consumer: L::Consumer,
    common: &Common,
    goal: &Receiver<u64>,
    done: &Sender<Duration>,
) -> Result<()> {
    common.enter(CONSUMER)?;
    // If the controller has failed, it is gone.
    let Ok(goal) = goal.recv() else { return Ok(()) };
    let start = Instant::now();
    let mut sum = 0;
    while sum % OTHERS < goal % OTHERS || sum / OTHERS < goal / OTHERS {
        consumer.take(|value| sum += value);
    }
    done.send(start.elapsed())?;
    Ok(())
}

fn sleep_and_drain<L: ReadyList>(
    mut consumer: L::Consumer,
    common: &Common,
    is: &Sender<Pid>,
    done: &Sender<Duration>,
) -> Result<()> {
    common.enter(CONSUMER)?;
    is.send(this_thread())?;
    let mut sum = 0;
    while sum < OTHERS {
        consumer.wait_and_drain(|value| sum += value);
        common.taken.store(sum, SeqCst);
    }
    let began = common.other_began.load(SeqCst);
    done.send(Duration::from_nanos(nanoseconds(common.origin).saturating_sub(began)))?;
    Ok(())
}

/// Waits until the consumer has taken what the stopped producer pushed before, and sleeps.
fn until_asleep(thread: Pid, taken: &AtomicU64) -> Result<()> {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    while taken.load(SeqCst) < BEFORE {
        thread::sleep(LOOK);
    }
    loop {
        let stat = std::fs::read_to_string(&path)?;
        // The name, in parentheses, may have spaces.
        if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')) {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
}
