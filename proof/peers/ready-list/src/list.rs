//! What a ready list is, for this program: producers that push events, and one consumer that takes
//! them and sleeps when there are none.
//!
//! Every list keeps one promise: what was pushed before the consumer sleeps is taken first, and
//! what is pushed while it sleeps wakes it. How is the list's own affair: see [`crate::bell`] for
//! those that bring no sleep state, and `lists` for all.

use std::fmt;

use anyhow::Result;

use crate::bell::Bell;

/// A design, to be built as often as an experiment needs it.
pub trait ReadyList {
    /// Pushes. One for each producing thread.
    type Producer: Producer + 'static;
    /// Takes.
    type Consumer: Consumer + 'static;

    /// An empty list with so many producers, whose pools have so many nodes each, if the design has
    /// pools.
    fn build(producers: usize, pool: usize) -> Result<(Vec<Self::Producer>, Self::Consumer)>;
}

/// The side that pushes.
pub trait Producer: Send {
    /// Whether two pushes of one producer may be taken as one, with the sum of their values.
    const COALESCES: bool = false;

    /// Pushes an event with a value, which is not zero, and wakes the consumer if it sleeps. `at`
    /// is called at every place of the design's own code where a stop could matter to others.
    fn push_at(&mut self, value: u64, at: impl FnMut(&'static str));

    /// Pushes an event, without being stopped.
    #[inline]
    fn push(&mut self, value: u64) {
        self.push_at(value, |_| {});
    }
}

/// The side that takes.
pub trait Consumer: Send {
    /// Hands everything that is there to `sink`, and returns how many events that were. Designs
    /// whose consumer can be made to wait by a producer wait here.
    fn take(&mut self, sink: impl FnMut(u64)) -> usize;

    /// Announces a sleep. False: something was pushed. From true until the next
    /// [`take`](Self::take), pushes ring.
    fn arm(&mut self) -> bool;

    /// What is rung. None: the kernel wakes the consumer itself.
    fn bell(&self) -> Option<&Bell>;

    /// Sleeps until something is there, and takes it.
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

/// Every design there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// The kernel's epoll, with an eventfd for each producer.
    KernelEpoll,
    /// wakeful's ready queue, a pooled node for each event.
    ReadyQueue,
    /// wakeful's ready queue, a boxed node for each event.
    ReadyQueueBoxed,
    /// wakeful's ready queue, a count for each producer, queued when it leaves zero.
    ReadyQueueCounts,
    /// The kernel's list until 6.17: producers append under a read lock, the consumer has the write
    /// lock.
    ReadWriteLocked,
    /// The kernel's list since 6.18: a spinlock.
    Spinlocked,
    /// A mutexed `VecDeque`.
    MutexedDeque,
    /// crossbeam's `SegQueue`.
    SegQueue,
    /// `concurrent-queue`, which smol's executors have as their run queue.
    ConcurrentQueue,
    /// Tokio's unbounded mpsc channel.
    TokioMpsc,
    /// Vyukov's linked queue, whose consumer waits for a half-done push.
    Vyukov,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = clap::ValueEnum::to_possible_value(self);
        f.write_str(value.as_ref().map_or("?", clap::builder::PossibleValue::get_name))
    }
}

/// Something to do with any design.
pub trait Job {
    /// What comes of it.
    type Output;
    /// Does it.
    fn run<L: ReadyList>(self) -> Self::Output;
}

impl Name {
    /// Does `job` with the design of this name.
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
