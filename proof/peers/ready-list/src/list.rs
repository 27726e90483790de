//! What a ready list is in this program: producers push events, and one consumer takes them, and
//! sleeps when there are none.
//!
//! Every list keeps one promise: the consumer takes everything that was pushed before it sleeps,
//! and a push while it sleeps wakes it. How it does this is up to the list. [`crate::bell`] is for
//! lists without their own sleep state, and `lists` has all lists.

use std::fmt;

use anyhow::Result;

use crate::bell::Bell;

/// A design. An experiment builds it as often as it needs.
pub trait ReadyList {
    /// The side that pushes. There is one for each producing thread.
    type Producer: Producer + 'static;
    /// The side that takes.
    type Consumer: Consumer + 'static;

    /// Makes an empty list with `producers` producers. If the design has pools, each producer's
    /// pool has `pool` nodes.
    fn build(producers: usize, pool: usize) -> Result<(Vec<Self::Producer>, Self::Consumer)>;
}

/// The side that pushes.
pub trait Producer: Send {
    /// Whether the consumer may take two pushes of one producer as one event, with the sum of their
    /// values.
    const COALESCES: bool = false;

    /// Pushes an event with a value, which is not zero, and wakes the consumer if it sleeps. Calls
    /// `at` at every place of the design's own code where a stop could affect others.
    fn push_at(&mut self, value: u64, at: impl FnMut(&'static str));

    /// Pushes an event, without stops.
    #[inline]
    fn push(&mut self, value: u64) {
        self.push_at(value, |_| {});
    }
}

/// The side that takes.
pub trait Consumer: Send {
    /// Passes all events to `sink`, and returns their number. If a producer can make the design's
    /// consumer wait, it waits here.
    fn take(&mut self, sink: impl FnMut(u64)) -> usize;

    /// Announces a sleep. Returns false if something was pushed. After true, pushes ring until the
    /// next [`take`](Self::take).
    fn arm(&mut self) -> bool;

    /// The bell that is rung. `None` if the kernel wakes the consumer itself.
    fn bell(&self) -> Option<&Bell>;

    /// Sleeps until there is an event, and takes all events.
    #[inline]
    fn wait_and_drain(&mut self, mut sink: impl FnMut(u64)) {
        while self.take(&mut sink) == 0 {
            if self.arm()
                && let Some(bell) = self.bell()
            {
                bell.wait();
            }
        }
    }
}

/// All designs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// The kernel's epoll, with an eventfd for each producer.
    KernelEpoll,
    /// wakeful's ready queue, with a pooled node for each event.
    ReadyQueue,
    /// wakeful's ready queue, with a boxed node for each event.
    ReadyQueueBoxed,
    /// wakeful's ready queue, with a count for each producer, which is queued when it leaves zero.
    ReadyQueueCounts,
    /// The kernel's list until 6.17: producers append under a read lock, the consumer has the write
    /// lock.
    ReadWriteLocked,
    /// The kernel's list since 6.18: a spinlock.
    Spinlocked,
    /// A `VecDeque` in a mutex.
    MutexedDeque,
    /// crossbeam's `SegQueue`.
    SegQueue,
    /// `concurrent-queue`, the run queue of smol's executors.
    ConcurrentQueue,
    /// Tokio's unbounded mpsc channel.
    TokioMpsc,
    /// Vyukov's linked queue, whose consumer waits for a push that is half done.
    Vyukov,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = clap::ValueEnum::to_possible_value(self);
        f.write_str(value.as_ref().map_or("?", clap::builder::PossibleValue::get_name))
    }
}

/// A job that works with any design.
pub trait Job {
    /// The result of the job.
    type Output;
    /// Runs the job.
    fn run<L: ReadyList>(self) -> Self::Output;
}

impl Name {
    /// Runs `job` with the design of this name.
    pub fn with<J: Job>(self, job: J) -> J::Output {
        use crate::lists;
        match self {
            Self::KernelEpoll => job.run::<lists::kernel_epoll::KernelEpoll>(),
            Self::ReadyQueue => job.run::<lists::ready_queue::Pooled>(),
            Self::ReadyQueueBoxed => job.run::<lists::ready_queue::Boxed>(),
            Self::ReadyQueueCounts => job.run::<lists::ready_queue::Counts>(),
            Self::ReadWriteLocked => job.run::<lists::read_write_locked::ReadWriteLocked>(),
            Self::Spinlocked => job.run::<lists::spinlocked::Spinlocked>(),
            Self::MutexedDeque => job.run::<lists::mutexed_deque::MutexedDeque>(),
            Self::SegQueue => job.run::<lists::values::Values<crossbeam_queue::SegQueue<u64>>>(),
            Self::ConcurrentQueue => {
                job.run::<lists::values::Values<concurrent_queue::ConcurrentQueue<u64>>>()
            }
            Self::TokioMpsc => job.run::<lists::tokio_mpsc::TokioMpsc>(),
            Self::Vyukov => job.run::<lists::vyukov::Vyukov>(),
        }
    }
}
