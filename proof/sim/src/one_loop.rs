//! One loop on the model's clock: it waits under a policy, and answers in batches.
//!
//! The loop is free at some time. Everything that has arrived by then is a batch. Its first request
//! costs [`Costs::service`], and also [`Costs::cold`] if it is the first after a gap. Each further
//! request costs [`Costs::service_batched`]. What arrives in the meantime makes the next batch. If
//! nothing has arrived, the loop spins or sleeps like the loop of `wakeful` (`event_loop/wait.rs`),
//! and runs when a poll or a wake has found the next request. A loop that holds sleeps, and its
//! wake takes longer if its CPU was not held until then. A client sees the time from the arrival to
//! the end of its service, plus [`Costs::outside`], plus what [`Costs::warming`] leaves of the last
//! cold request.
//!
//! What the loop does until the next request depends only on when that request comes. So the loop
//! is told about the request, and only then works out the time in between.

use crate::costs::Costs;
use crate::outcome::Outcome;
use crate::policy::{Decider, Policy};

/// How the loop came to run again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) at: f64,
    /// How long nothing had come. 0 if there was something.
    gap: f64,
}

/// A loop. Times are in nanoseconds.
#[derive(Debug)]
pub(crate) struct Loop<'a> {
    decider: Decider,
    costs: &'a Costs,
    outside: f64,
    /// Since when there is nothing to do, or until when there is something to do.
    free: f64,
    /// Before the first request of a batch: how long nothing had come.
    gap: Option<f64>,
    /// How long the last request waited for cold caches, as the client of the next one sees it.
    chill: f64,
    /// CPU before this time is not in the outcome.
    counted_from: f64,
    /// How long the loop has worked, including the time before `counted_from`.
    busy: f64,
    outcome: Outcome,
}

impl<'a> Loop<'a> {
    pub(crate) fn new(policy: Policy, costs: &'a Costs) -> Self {
        Self {
            decider: Decider::new(policy),
            costs,
            outside: costs.outside(),
            free: 0.0,
            gap: None,
            chill: 0.0,
            counted_from: 0.0,
            busy: 0.0,
            outcome: Outcome::default(),
        }
    }

    /// Counts the CPU from this time on.
    pub(crate) fn counted_from(self, time: f64) -> Self {
        Self { counted_from: time, ..self }
    }

    /// Waits for the next request, which comes at `arrival` or has come. Returns when the loop
    /// runs.
    pub(crate) fn wait(&mut self, arrival: f64) -> Found {
        let free = self.free;
        let gap = (arrival - free).max(0.0);
        if self.decider.expects_soon() && gap == 0.0 {
            return Found { at: free, gap };
        }
        if let Decider::Hold(hold) = &mut self.decider {
            let (limit, wake) = (hold.limit(), hold.wake);
            hold.event_after(gap);
            return self.wait_held(arrival, limit, wake);
        }
        let window = self.decider.begin(free as u64) as f64;
        let mut asleep = free;
        if window > 0.0 {
            let polls = |time: f64| (time / self.costs.poll).ceil() * self.costs.poll;
            let spun = polls(gap.min(window));
            self.spin(spun);
            asleep = free + spun;
            if gap <= window {
                self.outcome.hits += 1;
                self.decider.hit(asleep as u64, spun as u64);
                return Found { at: asleep, gap };
            }
            self.outcome.misses += 1;
            self.decider.miss(asleep as u64, spun as u64);
        }
        self.outcome.parks += 1;
        let slept = arrival - asleep;
        // What came in the meantime is found without a sleep.
        let at = if slept > 0.0 {
            if arrival >= self.counted_from {
                self.outcome.wakes += self.costs.wake_cpu(slept);
            }
            arrival + self.costs.wake(slept)
        } else {
            asleep
        };
        self.decider.parked((at - free) as u64);
        Found { at, gap }
    }

    /// Sleeps until `arrival`, with the CPU held for at most `limit`.
    fn wait_held(&mut self, arrival: f64, limit: f64, held_wake: f64) -> Found {
        let gap = arrival - self.free;
        self.outcome.held += self.counted(gap.min(limit));
        self.outcome.parks += 1;
        let is_counted = arrival >= self.counted_from;
        let (wake, mut wake_cpu) = if gap < limit {
            self.outcome.hits += 1;
            (held_wake, held_wake)
        } else {
            let halted = gap - limit;
            (self.costs.wake(halted), self.costs.wake_cpu(halted))
        };
        if gap >= limit && limit > 0.0 {
            // It wakes to end the hold.
            self.outcome.misses += 1;
            wake_cpu += held_wake;
        }
        if is_counted {
            self.outcome.wakes += wake_cpu;
        }
        Found { at: arrival + wake, gap }
    }

    /// Waits until `end`, before which nothing comes any more.
    pub(crate) fn wait_in_vain(&mut self, end: f64) {
        if let Decider::Hold(hold) = &self.decider {
            let held = (end - self.free).clamp(0.0, hold.limit());
            self.outcome.held += self.counted(held);
            return;
        }
        let window = self.decider.begin(self.free as u64) as f64;
        self.spin((end - self.free).clamp(0.0, window));
    }

    /// Runs. What the loop answers from here on is a batch.
    pub(crate) fn run(&mut self, found: Found) {
        self.free = found.at;
        self.gap = Some(found.gap);
    }

    /// Answers the next request of the batch, which arrived at `arrival` and takes `longer` more
    /// than others. Returns the response that its client sees.
    pub(crate) fn answer(&mut self, arrival: f64, longer: f64) -> f64 {
        let costs = self.costs;
        let (service, cold) = match self.gap.take() {
            Some(gap) => (costs.service + longer, costs.cold(gap)),
            None => (costs.service_batched + longer, 0.0),
        };
        if self.free >= self.counted_from {
            self.outcome.work += service + cold;
        }
        self.busy += service + cold;
        self.free += service + cold;
        self.chill = cold.max(self.chill * costs.warming);
        self.free - arrival + self.outside + self.chill - cold
    }

    /// Returns when the loop has answered everything that it was given.
    pub(crate) fn free(&self) -> f64 {
        self.free
    }

    /// Returns how long the loop has worked until `now`. It has been told of everything until then.
    pub(crate) fn busy_until(&self, now: f64) -> f64 {
        self.busy - (self.free - now).max(0.0)
    }

    /// Returns the CPU that the loop used, and its idle periods.
    pub(crate) fn into_outcome(self) -> Outcome {
        self.outcome
    }

    /// Spins for this long from the time when the loop was free.
    fn spin(&mut self, time: f64) {
        self.outcome.spin += self.counted(time);
    }

    /// Returns how much of a time that begins when the loop was free is in the outcome.
    fn counted(&self, time: f64) -> f64 {
        time.min((self.free + time - self.counted_from).max(0.0))
    }
}
