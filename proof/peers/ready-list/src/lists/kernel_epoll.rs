//! The kernel's own ready list, used as the public stress test uses it: an eventfd for each
//! producer, one level-triggered epoll, a wait for at most as many events as there are producers,
//! and a read of each eventfd.

use std::os::fd::OwnedFd;

use anyhow::Result;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::{Errno, read, write};

use crate::bell::Bell;
use crate::list;

pub struct KernelEpoll;

pub struct Producer(OwnedFd);

pub struct Consumer {
    epoll: OwnedFd,
    counters: Vec<OwnedFd>,
    events: Events,
}

struct Events(Vec<Event>);

#[allow(unsafe_code)] // An event may carry a pointer, which keeps it on its thread.
// SAFETY: these events carry numbers, and no pointers.
unsafe impl Send for Events {}

impl list::ReadyList for KernelEpoll {
    type Producer = Producer;
    type Consumer = Consumer;

    fn build(producers: usize, _pool: usize) -> Result<(Vec<Producer>, Consumer)> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut counters = Vec::new();
        for index in 0..producers {
            let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            epoll::add(&epoll, &counter, EventData::new_u64(index as u64), EventFlags::IN)?;
            counters.push(counter);
        }
        let ends: std::io::Result<Vec<_>> =
            counters.iter().map(|counter| Ok(Producer(counter.try_clone()?))).collect();
        Ok((ends?, Consumer { epoll, counters, events: Events(Vec::with_capacity(producers)) }))
    }
}

impl list::Producer for Producer {
    const COALESCES: bool = true;

    #[inline]
    fn push_at(&mut self, value: u64, _at: impl FnMut(&'static str)) {
        while write(&self.0, &value.to_ne_bytes()) == Err(Errno::AGAIN) {
            std::thread::yield_now();
        }
    }
}

impl Consumer {
    #[inline]
    fn wait(&mut self, timeout: Option<&Timespec>, mut sink: impl FnMut(u64)) -> usize {
        let events = &mut self.events.0;
        events.clear();
        // An interrupted wait found nothing.
        let _ = epoll::wait(&self.epoll, spare_capacity(events), timeout);
        let mut taken = 0;
        for event in &self.events.0 {
            let mut count = [0; 8];
            let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            if self.counters.get(index).is_some_and(|fd| read(fd, &mut count) == Ok(8)) {
                sink(u64::from_ne_bytes(count));
                taken += 1;
            }
        }
        taken
    }
}

impl list::Consumer for Consumer {
    fn take(&mut self, sink: impl FnMut(u64)) -> usize {
        self.wait(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }), sink)
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn bell(&self) -> Option<&Bell> {
        None
    }

    /// One system call for both, as in the public stress test.
    #[inline]
    fn wait_and_drain(&mut self, mut sink: impl FnMut(u64)) {
        while self.wait(None, &mut sink) == 0 {}
    }
}
