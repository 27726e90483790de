//! Producers that lose their CPU by themselves, wherever they are: to a busy loop of a higher
//! priority, or because their control group has used up its quota. The consumer runs at real-time
//! priority on the same CPU, and drains now and then. The probe reports its longest drain.
//!
//! A watchdog ends drains that reach the deadline: it tells the producers to pause after their
//! push, and gives them the CPU until they do.

use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::thread::{Pid, futex};

use crate::list::{Consumer, Producer, ReadyList};
use crate::priority::cgroup::Quota;
use crate::priority::gate::ALL;
use crate::priority::interrupt;
use crate::priority::trial::CONSUMER;
use crate::scheduling::{self, Policy, this_thread};

const PRODUCERS: usize = 4;

/// What the producers together get of each 100 ms under a quota, in microseconds.
const QUOTA: u32 = 2_000;

/// The priority of producers that are let go. It is not above the consumer's: otherwise producers
/// whose pool is full would keep the consumer from draining. Spinning threads yield, so threads of
/// equal priority take turns.
const RESCUED: Policy = CONSUMER;

/// What takes the CPU from the producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Hog,
    Quota,
}

/// What the consumer saw.
#[derive(Debug, Default)]
pub struct Drains {
    pub count: u64,
    pub events: u64,
    pub longest: Duration,
    /// How many drains took more than a millisecond.
    pub over_1ms: u64,
    /// How many drains only the watchdog ended.
    pub rescued: u64,
}

struct Common {
    cpu: usize,
    start: Instant,
    stop: AtomicBool,
    /// If it is not zero, producers wait after their push.
    pause: AtomicU32,
    /// How many producers have not ended.
    producing: AtomicU32,
    /// When the current drain began, in nanoseconds since the start. 0 between drains.
    since: AtomicU64,
}

impl Common {
    fn enter(&self, policy: Policy) -> Result<()> {
        scheduling::pin(self.cpu)?;
        scheduling::set_policy(this_thread(), policy).context("cannot set a thread's policy")
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    fn wait_while_paused(&self) {
        if self.pause.load(SeqCst) == 0 {
            return;
        }
        while self.pause.load(SeqCst) != 0 {
            let _ = futex::wait(&self.pause, futex::Flags::PRIVATE, 1, None);
        }
    }

    fn resume(&self) {
        self.pause.store(0, SeqCst);
        let _ = futex::wake(&self.pause, futex::Flags::PRIVATE, ALL);
    }
}

pub fn run<L: ReadyList>(
    by: By,
    cpu: usize,
    duration: Duration,
    deadline: Duration,
) -> Result<Drains> {
    let (ends, consumer) = L::build(PRODUCERS, 1024)?;
    let quota = match by {
        By::Hog => None,
        By::Quota => {
            interrupt::put_off().context("cannot put signals off")?;
            Some(Quota::new(QUOTA)?)
        }
    };
    let common = &Common {
        cpu,
        start: Instant::now(),
        stop: AtomicBool::new(false),
        pause: AtomicU32::new(0),
        producing: AtomicU32::new(u32::try_from(PRODUCERS)?),
        since: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        let (say, threads) = std::sync::mpsc::channel();
        let producing: Vec<_> = ends
            .into_iter()
            .map(|producer| {
                let say = say.clone();
                scope.spawn(move || {
                    // First, because an idle thread may not run again soon.
                    say.send(this_thread())?;
                    let entered = common.enter(Policy::Idle);
                    produce(producer, common);
                    entered
                })
            })
            .collect();
        let hog = (by == By::Hog).then(|| {
            scope.spawn(move || {
                let entered = common.enter(Policy::Other);
                while !common.stop.load(SeqCst) && entered.is_ok() {
                    std::hint::spin_loop();
                }
                entered
            })
        });
        let threads: Vec<Pid> = threads.iter().take(PRODUCERS).collect();
        let watched = threads.iter().try_for_each(|&thread| match &quota {
            Some(quota) => {
                // The thread has the controller's real-time priority until it gives it up, and a
                // group may not take such a thread.
                scheduling::set_policy(thread, Policy::Idle)?;
                quota.add(thread)
            }
            None => Ok(()),
        });
        let consuming = scope.spawn(move || {
            common.enter(CONSUMER)?;
            anyhow::Ok(consume(consumer, common))
        });
        let watched = watched.and_then(|()| {
            watch(common, &threads, quota.as_ref(), common.start + duration, deadline)
        });
        common.stop.store(true, SeqCst);
        // The producers end after their push. At their own priority that could take long.
        let released: Vec<Result<()>> =
            threads.iter().map(|&thread| release(thread, quota.as_ref())).collect();
        common.resume();
        let mut drains = consuming.join().expect("the consumer does not panic")?;
        for producer in producing {
            producer.join().expect("a producer does not panic")?;
        }
        if let Some(hog) = hog {
            hog.join().expect("no panic")?;
        }
        drop(quota);
        for outcome in released {
            match outcome {
                // The thread had ended before.
                Err(error) if is_no_such_thread(&error) => {}
                outcome => outcome?,
            }
        }
        drains.rescued = watched?;
        Ok(drains)
    })
}

/// Lets a thread run at once.
fn release(thread: Pid, quota: Option<&Quota>) -> Result<()> {
    if let Some(quota) = quota {
        quota.remove(thread)?;
    }
    scheduling::set_policy(thread, RESCUED).context("cannot set a thread's policy")
}

fn is_no_such_thread(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.and_then(io::Error::raw_os_error) == Some(libc::ESRCH)
}

fn produce(mut producer: impl Producer, common: &Common) {
    while !common.stop.load(SeqCst) {
        producer.push(1);
        common.wait_while_paused();
    }
    common.producing.fetch_sub(1, SeqCst);
}

fn consume(mut consumer: impl Consumer, common: &Common) -> Drains {
    let mut drains = Drains::default();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    while !common.stop.load(SeqCst) {
        // The consumer drains at random times, so that it meets the producers anywhere.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        thread::sleep(Duration::from_micros(100 + random % 900));
        common.since.store(common.now(), SeqCst);
        let start = Instant::now();
        consumer.take(|value| drains.events += value);
        let took = start.elapsed();
        common.since.store(0, SeqCst);
        drains.count += 1;
        drains.longest = drains.longest.max(took);
        drains.over_1ms += u64::from(took > Duration::from_millis(1));
    }
    // A producer whose pool is full ends only when the pool is drained.
    while common.producing.load(SeqCst) > 0 {
        consumer.take(|_| ());
        thread::sleep(Duration::from_micros(100));
    }
    drains
}

/// Ends drains that reach the deadline, until the time is over or a signal asks the program to end.
/// Returns how many drains it ended.
fn watch(
    common: &Common,
    threads: &[Pid],
    quota: Option<&Quota>,
    until: Instant,
    deadline: Duration,
) -> Result<u64> {
    let mut rescued = 0;
    while Instant::now() < until && !interrupt::is_wanted() {
        thread::sleep(Duration::from_millis(2));
        let since = common.since.load(SeqCst);
        if since == 0 || Duration::from_nanos(common.now().saturating_sub(since)) < deadline {
            continue;
        }
        rescued += 1;
        common.pause.store(1, SeqCst);
        for &thread in threads {
            release(thread, quota)?;
        }
        while common.since.load(SeqCst) == since {
            thread::sleep(Duration::from_millis(1));
        }
        for &thread in threads {
            scheduling::set_policy(thread, Policy::Idle)?;
            if let Some(quota) = quota {
                quota.add(thread)?;
            }
        }
        common.resume();
    }
    Ok(rescued)
}
