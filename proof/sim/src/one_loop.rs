//! One loop on the model's clock: it waits under a policy, and answers in batches.
//!
//! The loop is free at some time. What has arrived by then is a batch: the first request of it
//! costs [`Costs::service`], and [`Costs::cold`] if it is the first after a gap, each further one
//! [`Costs::service_batched`], and what arrives meanwhile makes the next batch. If nothing has
//! arrived, the loop spins or sleeps as `wakeful`'s own loop does (`event_loop/wait.rs`), and runs
//! when a poll or a wake has found the next request. A loop that holds sleeps, and what a wake
//! takes depends on whether its CPU was held until then. What a client sees is the time from the
//! arrival to the end of its service, [`Costs::outside`], and what [`Costs::warming`] leaves of the
//! last cold request.
//!
//! What it does until the next request comes depends on nothing but when that is. So it is told of
//! that one, and works out the time in between only then.

use crate::costs::Costs;
use crate::outcome::Outcome;
use crate::policy::{Decider, Policy};

/// How the loop came to run again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) at: f64,
    /// How long nothing had come; 0 if there was something.
    gap: f64,
}

/// A loop. Times are nanoseconds.
#[derive(Debug)]
pub(crate) struct Loop<'a> {
    decider: Decider,
    costs: &'a Costs,
    outside: f64,
    /// Since when there is nothing to do, or until when there is.
    free: f64,
    /// Before the first request of a batch: how long nothing had come.
    gap: Option<f64>,
    /// What the last request waited for cold caches, as the next one's client sees it.
    chill: f64,
    /// CPU before this time is not in the outcome.
    counted_from: f64,
    /// For how long it has worked, also before that.
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

    /// One whose CPU is counted from this time on.
    pub(crate) fn counted_from(self, time: f64) -> Self {
        Self { counted_from: time, ..self }
    }

    /// The next request comes at `arrival`, or has come. When does the loop run?
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
        // What came meanwhile is found without a sleep.
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

    /// It sleeps until `arrival`, with its CPU held for `limit` at most.
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
            // It wakes to let go.
            self.outcome.misses += 1;
            wake_cpu += held_wake;
        }
        if is_counted {
            self.outcome.wakes += wake_cpu;
        }
        Found { at: arrival + wake, gap }
    }

    /// Nothing comes any more until `end`.
    pub(crate) fn wait_in_vain(&mut self, end: f64) {
        if let Decider::Hold(hold) = &self.decider {
            let held = (end - self.free).clamp(0.0, hold.limit());
            self.outcome.held += self.counted(held);
            return;
        }
        let window = self.decider.begin(self.free as u64) as f64;
        self.spin((end - self.free).clamp(0.0, window));
    }

    /// It runs. What it answers from here on is a batch.
    pub(crate) fn run(&mut self, found: Found) {
        self.free = found.at;
        self.gap = Some(found.gap);
    }

    /// The next request of the batch, that arrived at `arrival` and takes so much `longer` than
    /// others: the response that its client sees.
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

    /// When it has answered everything that it was given.
    pub(crate) fn free(&self) -> f64 {
        self.free
    }

    /// For how long it has worked until `now`, by which it has been told of everything.
    pub(crate) fn busy_until(&self, now: f64) -> f64 {
        self.busy - (self.free - now).max(0.0)
    }

    /// The CPU that it used, and its idle periods.
    pub(crate) fn into_outcome(self) -> Outcome {
        self.outcome
    }

    /// It spins for so long from when it was free.
    fn spin(&mut self, time: f64) {
        self.outcome.spin += self.counted(time);
    }

    /// How much of so long a time from when it was free is in the outcome.
    fn counted(&self, time: f64) -> f64 {
        time.min((self.free + time - self.counted_from).max(0.0))
    }
}
