//! Measures what the bounds of a turn cost and what they gain. The defaults of `io_batch`,
//! `task_budget` and `turn_budget` follow from it.
//!
//! A low bound costs more system calls, because the loop asks the kernel more often. In return the
//! loop comes sooner to everything else: the length of a turn is how long a timer that has just
//! come due, a post or a high-priority socket waits during a flood. Each line is the best of
//! several rounds, because a disturbance only makes a round longer. The lines are measured in turn.

use std::cell::Cell;
use std::hint::black_box;
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use wakeful::net::UnixStream;
use wakeful::{EventLoop, EventLoopBuilder};

/// Rounds are interleaved: one round of each line, then again.
const ROUNDS: usize = 15;

/// The time, steps and turns of a round.
#[derive(Clone, Copy)]
struct Round {
    time: Duration,
    steps: u64,
    turns: u64,
    longest: Duration,
}

impl Round {
    fn per_step(&self) -> f64 {
        self.time.as_secs_f64() * 1e9 / number(self.steps)
    }
}

/// Converts a count, to compute a ratio.
fn number(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

fn take_turn(event_loop: &mut EventLoop) {
    event_loop.turn(Some(Duration::ZERO)).expect("a turn");
}

fn unbounded() -> EventLoopBuilder {
    EventLoop::builder().task_budget(u32::MAX).turn_budget(Duration::MAX)
}

/// Makes many sockets ready at once. Each brings its task one byte.
fn events(builder: EventLoopBuilder) -> Round {
    const SOCKETS: usize = 800;
    let mut event_loop = builder.build().expect("a loop");
    let (mut peer, socket) = StdUnixStream::pair().expect("a pair of sockets");
    let read = Rc::new(Cell::new(0));
    for _ in 0..SOCKETS {
        // The sockets are duplicates, so one write makes all of them ready.
        let (socket, read) = (socket.try_clone().expect("a descriptor"), read.clone());
        let task = async move {
            let mut socket = UnixStream::from_std(socket).expect("a place on the loop");
            socket.read(&mut [0; 1]).await.expect("a byte");
            read.set(read.get() + 1);
            std::future::pending::<()>().await;
        };
        event_loop.spawn(task).detach();
    }
    // The tasks begin to wait, and the kernel's first events for the new descriptors are over.
    for _ in 0..2 * SOCKETS {
        take_turn(&mut event_loop);
    }
    peer.write_all(&[0; SOCKETS]).expect("room in the buffer");
    let (start, before) = (Instant::now(), event_loop.handle().metrics().turns);
    while read.get() < SOCKETS {
        take_turn(&mut event_loop);
    }
    let (time, turns) = (start.elapsed(), event_loop.handle().metrics().turns - before);
    Round { time, steps: SOCKETS as u64, turns, longest: Duration::ZERO }
}

/// Runs a thousand tasks that are always ready. Each poll of a task computes for `work`.
fn polls(builder: EventLoopBuilder, work: Duration, steps: u64) -> Round {
    let mut event_loop = builder.build().expect("a loop");
    for _ in 0..1_000 {
        let task = async move {
            loop {
                if !work.is_zero() {
                    let end = Instant::now() + work;
                    while black_box(Instant::now()) < end {}
                }
                wakeful::task::yield_now().await;
            }
        };
        event_loop.spawn(task).detach();
    }
    // Wait until all of them have begun.
    while event_loop.handle().metrics().polls < 1_000 {
        take_turn(&mut event_loop);
    }
    let before = event_loop.handle().metrics();
    let mut longest = Duration::ZERO;
    let start = Instant::now();
    let mut at = start;
    while event_loop.handle().metrics().polls - before.polls < steps {
        take_turn(&mut event_loop);
        if !work.is_zero() {
            let now = Instant::now();
            longest = longest.max(now - at);
            at = now;
        }
    }
    let after = event_loop.handle().metrics();
    let (steps, turns) = (after.polls - before.polls, after.turns - before.turns);
    Round { time: start.elapsed(), steps, turns, longest }
}

/// Returns the best round of each setting.
fn best<S>(settings: &[S], measure: impl Fn(&S) -> Round) -> Vec<Round> {
    let mut best: Vec<Option<Round>> = vec![None; settings.len()];
    for _ in 0..ROUNDS {
        for (setting, best) in settings.iter().zip(&mut best) {
            let round = measure(setting);
            if best.is_none_or(|best| round.per_step() < best.per_step()) {
                *best = Some(round);
            }
        }
    }
    best.into_iter().flatten().collect()
}

fn main() {
    println!("io_batch: 800 sockets ready at once, one byte for each task");
    println!("   batch   ns an event   turns   a turn's length");
    let batches = [1, 4, 16, 64, 256, 800];
    for (batch, round) in
        batches.iter().zip(best(&batches, |batch| events(unbounded().io_batch(*batch))))
    {
        let length = round.time.as_secs_f64() * 1e6 / number(round.turns);
        println!("{batch:>8} {:>13.0} {:>7} {length:>14.1} µs", round.per_step(), round.turns);
    }

    println!("\ntask_budget: 1,000 tasks that are always ready and do nothing");
    println!("   polls     ns a poll   turns   a turn's length");
    let budgets = [4, 16, 64, 256, 1024];
    let flood = |budget: &u32| polls(unbounded().task_budget(*budget), Duration::ZERO, 1 << 16);
    for (budget, round) in budgets.iter().zip(best(&budgets, flood)) {
        let length = round.time.as_secs_f64() * 1e6 / number(round.turns);
        println!("{budget:>8} {:>13.1} {:>7} {length:>14.2} µs", round.per_step(), round.turns);
    }

    println!("\nturn_budget: 1,000 tasks that compute for 20 µs in each poll, task_budget 64");
    println!("      µs   µs a poll   polls a turn   a turn's length   the longest");
    let budgets = [0, 50, 100, 250, 500, 1_000, 10_000];
    let work = Duration::from_micros(20);
    // These are few enough that a round on a shared machine may stay undisturbed.
    let slow = |budget: &u64| {
        polls(EventLoop::builder().turn_budget(Duration::from_micros(*budget)), work, 192)
    };
    for (budget, round) in budgets.iter().zip(best(&budgets, slow)) {
        let (a_poll, turns) = (round.per_step() / 1e3, number(round.turns));
        let (length, polls) = (round.time.as_secs_f64() * 1e6 / turns, number(round.steps) / turns);
        let longest = round.longest.as_secs_f64() * 1e6;
        println!("{budget:>8} {a_poll:>11.2} {polls:>14.1} {length:>14.0} µs {longest:>10.0} µs");
    }
}
