//! A `VecDeque` in a mutex, with a separate sleep state. The consumer swaps the whole deque for an
//! empty one, so that it holds the lock only for a moment. Both deques keep their memory. They have
//! some from the start: a producer that is stopped in its push must not hold a lock of the
//! allocator, for which all threads would wait.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use crossbeam_utils::CachePadded;

use crate::bell::Bell;
use crate::list;

pub struct MutexedDeque;

const CAPACITY: usize = 1024;

struct State {
    values: VecDeque<u64>,
    asleep: bool,
}

struct Shared {
    state: CachePadded<Mutex<State>>,
    bell: Bell,
}

impl Shared {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Producer(Arc<Shared>);

pub struct Consumer {
    shared: Arc<Shared>,
    taken: VecDeque<u64>,
}

impl list::ReadyList for MutexedDeque {
    type Producer = Producer;
    type Consumer = Consumer;

    fn build(producers: usize, _pool: usize) -> Result<(Vec<Producer>, Consumer)> {
        let state = State { values: VecDeque::with_capacity(CAPACITY), asleep: false };
        let state = CachePadded::new(Mutex::new(state));
        let shared = Arc::new(Shared { state, bell: Bell::new()? });
        let ends = (0..producers).map(|_| Producer(shared.clone())).collect();
        Ok((ends, Consumer { shared, taken: VecDeque::with_capacity(CAPACITY) }))
    }
}

impl list::Producer for Producer {
    #[inline]
    fn push_at(&mut self, value: u64, mut at: impl FnMut(&'static str)) {
        at("before the push");
        let mut state = self.0.lock();
        at("locked, not pushed");
        state.values.push_back(value);
        let rings = std::mem::replace(&mut state.asleep, false);
        at("pushed, still locked");
        drop(state);
        if rings {
            at("before the ring");
            self.0.bell.ring();
        }
    }
}

impl list::Consumer for Consumer {
    #[inline]
    fn take(&mut self, sink: impl FnMut(u64)) -> usize {
        {
            let mut state = self.shared.lock();
            state.asleep = false;
            std::mem::swap(&mut state.values, &mut self.taken);
        }
        let taken = self.taken.len();
        self.taken.drain(..).for_each(sink);
        taken
    }

    fn arm(&mut self) -> bool {
        let mut state = self.shared.lock();
        state.asleep = state.values.is_empty();
        state.asleep
    }

    fn bell(&self) -> Option<&Bell> {
        Some(&self.shared.bell)
    }
}
