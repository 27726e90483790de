//! A loop that answers the requests of a trace under a policy, on the model's clock.
//!
//! The loop is free at some time. What has arrived by then is a batch: the first request of it costs [`Costs::service`], and [`Costs::cold`] if it is the first after a gap, each further one
//! [`Costs::service_batched`], and what arrives meanwhile makes the next batch. If nothing has arrived, the loop spins or sleeps as
//! `wakeful`'s own loop does (`event_loop/wait.rs`), and runs when a poll or a wake has found the next request. What a client sees is the
//! time from the arrival to the end of its service, [`Costs::outside`], and what [`Costs::warming`] leaves of the last cold request.

use crate::costs::Costs;
use crate::policy::{Decider, Policy};

/// What came of a trace. Times are nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The responses that clients see, rising.
    pub responses: Vec<u64>,
    /// From the start to the last answer.
    pub elapsed: f64,
    /// CPU for answers.
    pub work: f64,
    /// CPU for polls that found nothing.
    pub spin: f64,
    /// CPU for falling asleep and waking.
    pub wakes: f64,
    /// Spins that an arrival ended.
    pub hits: u64,
    /// Spins that ended without one.
    pub misses: u64,
    /// Sleeps, also those that followed a miss.
    pub parks: u64,
}

impl Outcome {
    /// The response at a quantile of 0 to 1.
    ///
    /// # Panics
    /// There was no request.
    #[must_use]
    pub fn response(&self, quantile: f64) -> f64 {
        let last = self.responses.len() - 1;
        self.responses[(quantile * last as f64).round() as usize] as f64
    }

    /// The same, if at least 100 responses are longer.
    #[must_use]
    pub fn tail(&self, quantile: f64) -> Option<f64> {
        let beyond = (1.0 - quantile) * self.responses.len() as f64;
        (beyond.round() >= 100.0).then(|| self.response(quantile))
    }

    /// The share of a CPU that was used.
    #[must_use]
    pub fn cpu(&self) -> f64 {
        (self.work + self.spin + self.wakes) / self.elapsed.max(1.0)
    }
}

/// How the loop came to run again.
struct Found {
    at: f64,
    /// How long nothing had come; 0 if there was something.
    gap: f64,
}

/// Replays a trace: `arrivals` are nanoseconds since the start, rising.
#[must_use]
pub fn replay(arrivals: &[u64], policy: Policy, costs: &Costs) -> Outcome {
    let mut decider = Decider::new(policy);
    let mut outcome = Outcome::default();
    outcome.responses.reserve(arrivals.len());
    let outside = costs.outside();
    let (mut free, mut next, mut chill) = (0.0, 0, 0.0_f64);
    while let Some(&arrival) = arrivals.get(next) {
        let found = wait(&mut decider, &mut outcome, costs, free, arrival as f64);
        let ready = arrivals[next..].partition_point(|at| *at as f64 <= found.at).max(1);
        let mut done = found.at;
        for (index, at) in arrivals[next..next + ready].iter().enumerate() {
            let (service, cold) = match index {
                0 => (costs.service, costs.cold(found.gap)),
                _ => (costs.service_batched, 0.0),
            };
            done += service + cold;
            outcome.work += service + cold;
            chill = cold.max(chill * costs.warming);
            outcome.responses.push((done - *at as f64 + outside + chill - cold) as u64);
        }
        next += ready;
        free = done;
    }
    outcome.elapsed = free;
    outcome.responses.sort_unstable();
    outcome
}

/// The loop is free, and the next request comes at `arrival`, or has come. When does the loop run?
fn wait(
    decider: &mut Decider,
    outcome: &mut Outcome,
    costs: &Costs,
    free: f64,
    arrival: f64,
) -> Found {
    let gap = (arrival - free).max(0.0);
    if decider.expects_soon() && gap == 0.0 {
        return Found { at: free, gap };
    }
    let window = decider.begin(free as u64) as f64;
    let mut asleep = free;
    if window > 0.0 {
        let polls = |time: f64| (time / costs.poll).ceil() * costs.poll;
        let spun = polls(gap.min(window));
        outcome.spin += spun;
        asleep = free + spun;
        if gap <= window {
            outcome.hits += 1;
            decider.hit(asleep as u64, spun as u64);
            return Found { at: asleep, gap };
        }
        outcome.misses += 1;
        decider.miss(asleep as u64, spun as u64);
    }
    outcome.parks += 1;
    let slept = arrival - asleep;
    // What came meanwhile is found without a sleep.
    let at = if slept > 0.0 {
        outcome.wakes += costs.wake_cpu(slept);
        arrival + costs.wake(slept)
    } else {
        asleep
    };
    decider.parked((at - free) as u64);
    Found { at, gap }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::tests::costs;
    use wakeful::idle::Limits;

    const MS: u64 = 1_000_000;

    fn every(gap: u64, count: u64) -> Vec<u64> {
        (1..=count).map(|number| number * gap).collect()
    }

    #[test]
    fn clients_behind_a_cold_request_see_some_of_it() {
        let arrivals = [10 * MS, 11 * MS / 10 + 10 * MS, 12 * MS / 10 + 10 * MS];
        let outcome = |warming| replay(&arrivals, Policy::Spin, &Costs { warming, ..costs() });
        let (none, half) = (outcome(0.0), outcome(0.5));
        assert!((none.work - half.work).abs() < 1e-6, "it is not the loop's time");
        let more: u64 = half.responses.iter().sum::<u64>() - none.responses.iter().sum::<u64>();
        assert!(more > 0, "{more} ns");
    }

    #[test]
    fn a_spinning_loop_answers_as_its_calibration_says_and_uses_a_cpu() {
        let outcome = replay(&every(100_000, 1000), Policy::Spin, &costs());
        assert!((outcome.response(0.5) - 8_200.0).abs() < 400.0, "{}", outcome.response(0.5));
        assert!((outcome.cpu() - 1.0).abs() < 1e-3, "{}", outcome.cpu());
        assert_eq!((outcome.hits, outcome.parks), (1000, 0));
    }

    #[test]
    fn a_parking_loop_answers_as_its_calibration_says_and_uses_as_much() {
        let outcome = replay(&every(10 * MS, 1000), Policy::Window(0), &costs());
        assert!((outcome.response(0.5) - 68_000.0).abs() < 400.0, "{}", outcome.response(0.5));
        assert!((outcome.cpu() - 24_000.0 / 10e6).abs() < 1e-4, "{}", outcome.cpu());
        assert_eq!((outcome.hits, outcome.parks), (0, 1000));
    }

    #[test]
    fn a_tail_of_few_is_none() {
        let outcome = replay(&every(MS, 1000), Policy::Spin, &costs());
        assert!(outcome.tail(0.9).is_some() && outcome.tail(0.99).is_none());
    }

    #[test]
    fn a_window_that_is_too_short_costs_both() {
        let gaps = every(MS, 1000);
        let park = replay(&gaps, Policy::Window(0), &costs());
        let window = replay(&gaps, Policy::Window(200_000), &costs());
        assert_eq!((window.hits, window.misses, window.parks), (0, 1000, 1000));
        assert!((window.cpu() - park.cpu() - 0.2).abs() < 0.01, "{}", window.cpu());
        let just = replay(&gaps, Policy::Window(MS), &costs());
        assert_eq!((just.hits, just.parks), (1000, 0));
    }

    /// While the first is served the others come: a batch of 1, and one of 3.
    #[test]
    fn what_arrives_during_the_work_is_the_next_batch() {
        let outcome = replay(&[MS, MS + 100, MS + 200, MS + 300], Policy::Spin, &costs());
        let work = 2.0 * 4_000.0 + 2.0 * 3_000.0 + costs().cold(1e6);
        assert!((outcome.work - work).abs() < 1e-6, "{}", outcome.work);
        assert_eq!(outcome.hits, 1);
        let longest = work + costs().outside() - 300.0;
        assert!((outcome.response(1.0) - longest).abs() <= 401.0, "{}", outcome.response(1.0));
    }

    #[test]
    fn more_than_it_can_answer_piles_up_under_every_policy_alike() {
        let limits = Limits { hit_rate: 0.999, max_window: MS, max_cpu: 1.0 };
        let of = |policy| replay(&every(1_000, 20_000), policy, &costs());
        let (spin, park) = (of(Policy::Spin), of(Policy::Window(0)));
        assert!(spin.response(1.0) > 20.0 * MS as f64, "{}", spin.response(1.0));
        assert!((spin.response(0.5) / park.response(0.5) - 1.0).abs() < 0.01);
        let governor = of(Policy::Adaptive(limits));
        assert!((spin.response(0.5) / governor.response(0.5) - 1.0).abs() < 0.01);
    }

    #[test]
    fn the_governor_is_asked_and_told() {
        let limits = Limits { hit_rate: 0.999, max_window: MS, max_cpu: 1.0 };
        let busy = replay(&every(50_000, 10_000), Policy::Adaptive(limits), &costs());
        assert!(busy.parks < 10 && busy.hits > 9_900, "{} {}", busy.parks, busy.hits);
        let idle = replay(&every(20 * MS, 1_000), Policy::Adaptive(limits), &costs());
        assert!(idle.spin < 20.0 * MS as f64, "{}", idle.spin);
    }
}
