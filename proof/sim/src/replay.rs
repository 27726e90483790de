//! Replays a trace through one loop under a policy.

use crate::costs::Costs;
use crate::one_loop::Loop;
use crate::outcome::Outcome;
use crate::policy::Policy;

/// Replays a trace. `arrivals` are nanoseconds since the start, rising.
#[must_use]
pub fn replay(arrivals: &[u64], policy: Policy, costs: &Costs) -> Outcome {
    let mut one = Loop::new(policy, costs);
    let mut responses = Vec::with_capacity(arrivals.len());
    let mut next = 0;
    while let Some(&arrival) = arrivals.get(next) {
        let found = one.wait(arrival as f64);
        let ready = arrivals[next..].partition_point(|at| *at as f64 <= found.at).max(1);
        one.run(found);
        let batch = &arrivals[next..next + ready];
        responses.extend(batch.iter().map(|at| one.answer(*at as f64, 0.0) as u64));
        next += ready;
    }
    responses.sort_unstable();
    Outcome { responses, elapsed: one.free(), ..one.into_outcome() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::tests::costs;
    use wakeful::internals::GovernorLimits;

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

    /// The others come while the first is served: a batch of 1, and one of 3.
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
        let limits = GovernorLimits { hit_rate: 0.999, max_window: MS, max_cpu: 1.0 };
        let of = |policy| replay(&every(1_000, 20_000), policy, &costs());
        let (spin, park) = (of(Policy::Spin), of(Policy::Window(0)));
        assert!(spin.response(1.0) > 20.0 * MS as f64, "{}", spin.response(1.0));
        assert!((spin.response(0.5) / park.response(0.5) - 1.0).abs() < 0.01);
        let governor = of(Policy::Adaptive(limits));
        assert!((spin.response(0.5) / governor.response(0.5) - 1.0).abs() < 0.01);
    }

    #[test]
    fn the_governor_is_asked_and_told() {
        let limits = GovernorLimits { hit_rate: 0.999, max_window: MS, max_cpu: 1.0 };
        let busy = replay(&every(50_000, 10_000), Policy::Adaptive(limits), &costs());
        assert!(busy.parks < 10 && busy.hits > 9_900, "{} {}", busy.parks, busy.hits);
        let idle = replay(&every(20 * MS, 1_000), Policy::Adaptive(limits), &costs());
        assert!(idle.spin < 20.0 * MS as f64, "{}", idle.spin);
    }
}
