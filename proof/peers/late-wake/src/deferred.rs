//! The public case. A loop sleeps with an idle descriptor and a timer far away. Post #1 wakes it,
//! and queues work on the loop itself, in the way that the runtime provides. While the handler of
//! post #1 still runs, another thread sends post #2. The probe measures how long it takes until the
//! queued work has run, and until post #2 has run, and how often the loop slept in between.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::thread::{own_sleeps, pin, wait_until_the_loop_sleeps};
use crate::{Options, clock, finish, times};

/// How long the handler of post #1 waits for post #2.
const SECOND_WITHIN: u64 = 100_000_000;

/// The loop's own count of its parks, if it has one.
type Parks = Box<dyn Fn() -> u64 + Send + Sync>;

/// The marks that the loop leaves.
#[derive(Default)]
pub struct Marks {
    parks: Option<Parks>,
    first: Mark,
    local: Mark,
    second: Mark,
    second_is_posted: AtomicBool,
}

#[derive(Default)]
#[repr(align(128))]
struct Mark {
    /// 0 until it has run.
    at: AtomicU64,
    sleeps: AtomicU64,
    parks: AtomicU64,
}

impl Marks {
    /// Makes one for the whole process.
    #[must_use]
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    /// Makes one with the loop's own count of its parks.
    #[must_use]
    pub fn counting(parks: impl Fn() -> u64 + Send + Sync + 'static) -> &'static Self {
        Box::leak(Box::new(Self { parks: Some(Box::new(parks)), ..Self::default() }))
    }

    /// Post #1 calls this on the loop. Then it queues its work, and calls
    /// [`until_second`](Self::until_second).
    pub fn first(&self) {
        self.set(&self.first);
    }

    /// Post #1 calls this at its end. It returns when post #2 is on its way.
    pub fn until_second(&self) {
        let end = clock::now() + SECOND_WITHIN;
        while !self.second_is_posted.load(Ordering::Acquire) && clock::now() < end {
            std::hint::spin_loop();
        }
    }

    /// The work that post #1 queued calls this on the loop.
    pub fn local(&self) {
        self.set(&self.local);
    }

    /// Post #2 calls this on the loop.
    pub fn second(&self) {
        self.set(&self.second);
    }

    fn set(&self, mark: &Mark) {
        let at = clock::now();
        mark.sleeps.store(own_sleeps(), Ordering::Relaxed);
        mark.parks.store(self.parks.as_ref().map_or(0, |parks| parks()), Ordering::Relaxed);
        mark.at.store(at, Ordering::Release);
    }

    fn reset(&self) {
        for mark in [&self.first, &self.local, &self.second] {
            mark.at.store(0, Ordering::Relaxed);
        }
        self.second_is_posted.store(false, Ordering::Release);
    }
}

impl Mark {
    fn at(&self) -> u64 {
        self.at.load(Ordering::Acquire)
    }
}

/// Starts the thread that posts. The loop's timer was set just before. When everything is measured,
/// the thread prints the line and ends the process.
pub fn start(
    options: &Options,
    marks: &'static Marks,
    mut first: impl FnMut() -> Result<()> + Send + 'static,
    mut second: impl FnMut() -> Result<()> + Send + 'static,
) -> Result<()> {
    let options = options.clone();
    let due = clock::now() + u64::try_from(options.timer.as_nanos())?;
    thread::Builder::new()
        .name("poster".to_owned())
        .spawn(move || finish(options.name, measure(&options, marks, due, &mut first, &mut second)))
        .context("cannot start a thread")?;
    Ok(())
}

fn measure(
    options: &Options,
    marks: &Marks,
    due: u64,
    first: &mut dyn FnMut() -> Result<()>,
    second: &mut dyn FnMut() -> Result<()>,
) -> Result<String> {
    pin(options.poster_cpu)?;
    let (mut local, mut of_second, mut sleeps, mut parks) = (Vec::new(), Vec::new(), 0, 0);
    let mut timer_left = None;
    for _ in 0..options.times {
        thread::sleep(options.gap);
        wait_until_the_loop_sleeps()?;
        let left = due.saturating_sub(clock::now());
        // The probe must report what is late.
        if timer_left.is_some() && u128::from(left) < options.timer.as_nanos() / 2 {
            break;
        }
        timer_left.get_or_insert(left);
        marks.reset();
        let first_at = clock::now();
        first()?;
        wait_for(&marks.first, due)?;
        let second_at = clock::now();
        second()?;
        marks.second_is_posted.store(true, Ordering::Release);
        wait_for(&marks.local, due)?;
        wait_for(&marks.second, due)?;
        local.push(marks.local.at() - first_at);
        of_second.push(marks.second.at().saturating_sub(second_at));
        for done in [&marks.local, &marks.second] {
            let between = |of: fn(&Mark) -> &AtomicU64| {
                of(done).load(Ordering::Relaxed) - of(&marks.first).load(Ordering::Relaxed)
            };
            sleeps = sleeps.max(between(|mark| &mark.sleeps));
            parks = parks.max(between(|mark| &mark.parks));
        }
    }
    let parks = marks.parks.as_ref().map_or_else(|| "null".to_owned(), |_| parks.to_string());
    Ok(format!(
        "{{\"local\":{},\"second\":{},\"timer_left\":{},\"sleeps\":{sleeps},\"parks\":{parks}}}",
        times::json(&mut local),
        times::json(&mut of_second),
        timer_left.unwrap_or_default()
    ))
}

/// Spins for a while, because most marks come at once.
fn wait_for(mark: &Mark, due: u64) -> Result<()> {
    let start = clock::now();
    while mark.at() == 0 {
        let now = clock::now();
        if now > due + 5_000_000_000 {
            bail!("something that was posted did not even run when the timer was due");
        }
        if now > start + 10_000_000 {
            thread::sleep(Duration::from_millis(1));
        } else {
            std::hint::spin_loop();
        }
    }
    Ok(())
}
