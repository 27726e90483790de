//! The requests that are due and wait for a connection.
//!
//! The backlog stores no times. It is the schedule once more, from the oldest request that waits,
//! and the number of those that wait. So a server that answers nothing costs no memory, however
//! many requests become due.

use std::iter::Peekable;

use crate::schedule::Arrivals;

/// An iterator over when the waiting requests were due, the oldest first.
#[derive(Debug, Clone)]
pub(super) struct Backlog {
    oldest: u64,
    /// The schedule after the oldest waiting request.
    rest: Peekable<Arrivals>,
    waiting: usize,
}

impl Backlog {
    /// Makes a backlog in which nothing waits.
    pub(super) fn new(arrivals: &Peekable<Arrivals>) -> Self {
        Self { oldest: 0, rest: arrivals.clone(), waiting: 0 }
    }

    /// Adds the request that was just taken from the schedule. `arrivals` is the schedule after
    /// that. While a request waits, every request that is taken from the schedule has to be added.
    pub(super) fn add(&mut self, intended: u64, arrivals: &Peekable<Arrivals>) {
        if self.waiting == 0 {
            self.oldest = intended;
            self.rest.clone_from(arrivals);
        }
        self.waiting += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

impl Iterator for Backlog {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.waiting = self.waiting.checked_sub(1)?;
        let intended = self.oldest;
        if self.waiting > 0 {
            self.oldest = self.rest.next()?;
        }
        Some(intended)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::schedule::Schedule;

    #[test]
    fn what_waits_has_the_times_of_the_schedule() {
        let trace = Schedule::Trace((0..5000).map(|i| i * i).collect());
        for schedule in [Schedule::Poisson(1e4), Schedule::Constant(3e4), trace] {
            let mut arrivals = schedule.arrivals(7).trace_begins_at(5).peekable();
            let mut backlog = Backlog::new(&arrivals);
            let mut expected = VecDeque::new();
            let mut random = fastrand::Rng::with_seed(7);
            for _ in 0..8000 {
                if random.bool() {
                    assert_eq!(backlog.next(), expected.pop_front());
                } else if let Some(intended) = arrivals.next() {
                    // A request that finds a connection does not wait.
                    if !backlog.is_empty() || random.bool() {
                        backlog.add(intended, &arrivals);
                        expected.push_back(intended);
                    }
                }
                arrivals.peek();
                assert_eq!(backlog.is_empty(), expected.is_empty());
            }
            assert!(backlog.eq(expected));
        }
    }
}
