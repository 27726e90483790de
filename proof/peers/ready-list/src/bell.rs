//! How a sleeping consumer is woken: in the same way for every list except the kernel's own. It is
//! also the way of wakeful's loops.
//!
//! The [`Bell`] is an eventfd, registered edge-triggered in an epoll and never read: a ring is one
//! system call, and so is a wait. [`Sleeper`] is the sleep state for lists that have none of their
//! own: a flag beside the list. The consumer sets the flag and then looks at the list once more. A
//! producer pushes and then looks at the flag. Because of the fences in between, at least one of
//! them sees the other.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

use anyhow::Result;
use crossbeam_utils::CachePadded;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

/// Clones refer to the same bell.
#[derive(Clone)]
pub struct Bell(Arc<Inner>);

struct Inner {
    event: OwnedFd,
    epoll: OwnedFd,
    rings: CachePadded<AtomicU64>,
}

impl Bell {
    pub fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &event, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
        Ok(Self(Arc::new(Inner { event, epoll, rings: CachePadded::default() })))
    }

    pub fn ring(&self) {
        self.0.rings.fetch_add(1, Relaxed);
        // It fails only after 2^64 rings.
        let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
    }

    /// Waits for a ring since the last wait. May return early.
    pub fn wait(&self) {
        // On the stack, because a wake must not allocate.
        let mut event = [MaybeUninit::uninit()];
        // An interrupted wait is an early return.
        let _ = epoll::wait(&self.0.epoll, &mut event, None);
    }

    /// Returns how often it was rung.
    pub fn rings(&self) -> u64 {
        self.0.rings.load(Relaxed)
    }
}

impl AsFd for Bell {
    /// Returns the descriptor to register, edge-triggered, if the consumer also waits for other
    /// things.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

impl wakeful::internals::Ring for Bell {
    fn ring(&self) {
        self.ring();
    }
}

impl std::task::Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// The flag, with the bell. Clones refer to the same flag.
#[derive(Clone)]
pub struct Sleeper {
    asleep: Arc<CachePadded<AtomicBool>>,
    pub bell: Bell,
}

impl Sleeper {
    pub fn new() -> Result<Self> {
        Ok(Self { asleep: Arc::default(), bell: Bell::new()? })
    }

    /// A producer calls this after its push. It wakes the consumer if the consumer sleeps, and no
    /// other producer is about to wake it.
    #[inline]
    pub fn after_push(&self, mut at: impl FnMut(&'static str)) {
        fence(SeqCst);
        if self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed) {
            at("before the ring");
            self.bell.ring();
        }
    }

    /// Sets the flag, for the consumer. The consumer must look at its list once more before it
    /// waits.
    #[inline]
    pub fn raise(&self) {
        self.asleep.store(true, Relaxed);
        fence(SeqCst);
    }

    /// The consumer is awake again.
    #[inline]
    pub fn lower(&self) {
        if self.asleep.load(Relaxed) {
            self.asleep.store(false, Relaxed);
        }
    }
}
