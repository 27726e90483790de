//! The floor: an eventfd and `epoll_wait`, with no queue that would carry work. The eventfd is
//! edge-triggered and never read, so a post is one write and one return from the wait.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;

use late_wake::{Context, Measure, Options, Result, main as probe, post, thread, version};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

fn main() -> ExitCode {
    let variants: &[(&str, &[Measure])] = &[("park", &[Measure::Post]), ("spin", &[Measure::Post])];
    probe("late-wake-eventfd", version::RUSTIX, variants, run)
}

fn run(options: &Options) -> Result<()> {
    thread::is_the_loop(options.loop_cpu)?;
    let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    let waits = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&waits, bell.as_fd(), epoll::EventData::new_u64(0), flags)?;
    let arrivals = post::Arrivals::new();
    post::start(options, arrivals, move || {
        rustix::io::write(&bell, &1_u64.to_ne_bytes()).map(drop).context("write")
    })?;
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let timeout = (options.variant == "spin").then_some(&at_once);
    let mut events = Vec::with_capacity(16);
    loop {
        events.clear();
        epoll::wait(&waits, rustix::buffer::spare_capacity(&mut events), timeout)?;
        for _ in &events {
            arrivals.arrived();
        }
    }
}
