//! Posts from another thread, one by one. The probe measures how long it takes until the loop runs
//! a post, and what a post costs the poster.
//!
//! The next post is sent only when the previous one has run, and after the gap. So posts are never
//! batched, and a loop that parks has gone back to sleep. The kernel's count of the sleeps is
//! printed as evidence.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::thread::{pin, sleeps_of_the_loop};
use crate::{Options, clock, finish, times};

/// A post that takes longer than this is lost.
const LOST: u64 = 10_000_000_000;

/// The marks that the loop leaves when it runs a post.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Arrivals {
    at: AtomicU64,
    count: AtomicU64,
}

impl Arrivals {
    /// Makes one for the whole process, so that a post need not count references.
    #[must_use]
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    /// The posted work calls this on the loop.
    #[inline]
    pub fn arrived(&self) {
        self.at.store(clock::now(), Ordering::Relaxed);
        // Only the loop counts.
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// Starts the thread that posts. When everything is measured, it prints the line and ends the
/// process.
pub fn start(
    options: &Options,
    arrivals: &'static Arrivals,
    post: impl FnMut() -> Result<()> + Send + 'static,
) -> Result<()> {
    let options = options.clone();
    thread::Builder::new()
        .name("poster".to_owned())
        .spawn(move || run_and_exit(&options, arrivals, post))
        .context("cannot start a thread")?;
    Ok(())
}

/// Does the same on this thread, for a poster that must be a particular thread.
pub fn run_and_exit(
    options: &Options,
    arrivals: &'static Arrivals,
    post: impl FnMut() -> Result<()>,
) -> ! {
    finish(options.name, measure(options, arrivals, post))
}

fn measure(
    options: &Options,
    arrivals: &Arrivals,
    mut post: impl FnMut() -> Result<()>,
) -> Result<String> {
    pin(options.poster_cpu)?;
    let gap = u64::try_from(options.gap.as_nanos())?;
    let warm_up = u64::from(options.posts / 10 + 1);
    let last = warm_up + u64::from(options.posts);
    let mut latencies = Vec::with_capacity(options.posts as usize);
    let mut costs = Vec::with_capacity(options.posts as usize);
    let mut slept_before = 0;
    for number in 1..=last {
        if number == warm_up + 1 {
            slept_before = sleeps_of_the_loop()?;
        }
        clock::spin(gap);
        let sent = clock::now();
        post()?;
        let posted = clock::now();
        while arrivals.count.load(Ordering::Acquire) < number {
            std::hint::spin_loop();
            if clock::now() > sent + LOST {
                bail!("post {number} did not run within 10 s");
            }
        }
        if number > warm_up {
            let arrived = arrivals.at.load(Ordering::Relaxed);
            latencies.push(arrived.saturating_sub(sent));
            costs.push(posted - sent);
        }
    }
    // After the last post, wait until the loop sleeps again.
    clock::spin(gap);
    let slept = u32::try_from(sleeps_of_the_loop()?.saturating_sub(slept_before))?;
    Ok(format!(
        "{{\"latency\":{},\"cost\":{},\"sleeps_per_post\":{:.4}}}",
        times::json(&mut latencies),
        times::json(&mut costs),
        f64::from(slept) / f64::from(options.posts)
    ))
}
