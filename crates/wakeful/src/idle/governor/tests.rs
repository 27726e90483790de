use super::*;

const MS: u64 = 1_000_000;

fn limits() -> GovernorLimits {
    GovernorLimits { hit_rate: 0.9, max_window: MS, max_cpu: 1.0 }
}

/// The results of simulated idle periods.
#[derive(Default)]
struct Seen {
    now: u64,
    hits: u32,
    parks: u32,
    spun: u64,
}

impl Seen {
    /// Simulates one idle period that an event ends after `gap`, whatever the loop does meanwhile.
    fn idle(&mut self, governor: &mut Governor, gap: u64) {
        let window = governor.begin(self.now);
        if gap <= window {
            self.now += gap;
            self.spun += gap;
            self.hits += 1;
            governor.hit(self.now, gap);
            return;
        }
        if window > 0 {
            self.spun += window;
            governor.miss(self.now + window, window);
        }
        self.parks += 1;
        self.now += gap;
        governor.parked(gap);
    }
}

/// An exponential random number. The sequence is always the same.
fn exponential(mean: f64, seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    let uniform = ((*seed >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    (-mean * uniform.ln()) as u64
}

fn poisson(governor: &mut Governor, mean: f64, periods: u32) -> Seen {
    let (mut seen, mut seed) = (Seen::default(), 42);
    for _ in 0..periods {
        seen.idle(governor, exponential(mean, &mut seed));
    }
    seen
}

#[test]
fn the_hit_rate_means_what_it_says() {
    for rate in [0.6, 0.9, 0.99] {
        let mut governor =
            Governor::new(GovernorLimits { hit_rate: rate, max_window: 4 * MS, ..limits() });
        let seen = poisson(&mut governor, 200_000.0, 20_000);
        let met = f64::from(seen.hits) / 20_000.0;
        assert!((met - rate).abs() < 0.05, "{rate}: {met}");
        // Of exponential gaps, the share of the time that is spun is the share that is met.
        let spun = seen.spun as f64 / seen.now as f64;
        assert!(spun < rate + 0.06, "{rate}: {spun}");
    }
}

#[test]
fn a_window_that_meets_the_median_is_used_although_it_misses_the_rate() {
    let mut governor = Governor::new(limits());
    let seen = poisson(&mut governor, 1e6, 5_000);
    assert!(seen.hits > 5_000 * 55 / 100, "{}", seen.hits);
}

#[test]
fn what_no_window_pays_for_is_slept_through() {
    let mut governor = Governor::new(limits());
    let seen = poisson(&mut governor, 10e6, 5_000);
    // One gap in ten ends within the window, which is no traffic.
    assert!(seen.spun < seen.now / 500, "{} of {} ns", seen.spun, seen.now);
}

#[test]
fn where_the_window_is_long_attempts_are_rare() {
    let mut governor = Governor::new(GovernorLimits { max_window: 16 * MS, ..limits() });
    let seen = poisson(&mut governor, 45e6, 5_000);
    // Three gaps in ten end within the window.
    assert!(seen.spun < seen.now / 12, "{} of {} ns", seen.spun, seen.now);
}

#[test]
fn without_traffic_nothing_is_spun() {
    let mut governor = Governor::new(limits());
    poisson(&mut governor, 50_000.0, 1_000);
    let mut seen = Seen::default();
    (0..1_000).for_each(|_| seen.idle(&mut governor, 1_000 * MS));
    assert!(seen.spun < 20 * MS, "{}", seen.spun);
}

#[test]
fn a_timer_that_ends_every_spin_is_no_traffic() {
    let mut governor = Governor::new(limits());
    let (mut now, mut spun) = (0, 0);
    for _ in 0..1_000 {
        let window = governor.begin(now);
        now += MS / 2;
        if window > 0 {
            spun += MS / 2;
            governor.cut_short(now, MS / 2);
        }
    }
    assert!(spun < 20 * MS, "{spun}");
}

#[test]
fn it_comes_back_with_the_traffic() {
    let mut governor = Governor::new(limits());
    let mut seen = Seen::default();
    (0..1_000).for_each(|_| seen.idle(&mut governor, 1_000 * MS));
    let from = seen.now;
    while seen.hits < 100 {
        seen.idle(&mut governor, 50_000);
        assert!(seen.now - from < 300 * MS, "{} hits", seen.hits);
    }
}

/// Half the time an event comes every 50 µs, half the time every 3 ms. Each change must be found
/// again.
#[test]
fn bursts_are_met_however_many_came_before() {
    let mut governor = Governor::new(limits());
    let mut seen = Seen::default();
    for burst in 0..50 {
        let (until, hits) = (seen.now + 100 * MS, seen.hits);
        while seen.now < until {
            seen.idle(&mut governor, 50_000);
        }
        assert!(seen.hits - hits > 1_900, "{} of burst {burst}", seen.hits - hits);
        while seen.now < until + 100 * MS {
            seen.idle(&mut governor, 3 * MS);
        }
    }
}

/// A night of few requests, in which each trial fails, and then a busy day. The next trial must
/// decide, and not what the night has taught.
#[test]
fn what_was_learnt_before_a_sleep_does_not_overrule_a_trial() {
    let mut governor = Governor::new(GovernorLimits { hit_rate: 0.99, ..limits() });
    let (mut seen, mut seed) = (poisson(&mut governor, 5e6, 5_000), 1);
    let (from, by_night) = (seen.now, seen.hits);
    while seen.hits < by_night + 1_000 {
        seen.idle(&mut governor, exponential(100_000.0, &mut seed));
        assert!(seen.now - from < 400 * MS, "{} hits", seen.hits);
    }
}

/// At night most trials fail, and a few succeed by chance. That must not make the loop sleep
/// through the day.
#[test]
fn busy_times_between_quiet_ones_are_spun_through() {
    let mut governor = Governor::new(GovernorLimits { hit_rate: 0.99, ..limits() });
    let (mut seen, mut seed, mut by_day) = (Seen::default(), 3, (0, 0));
    for half_day in 1..=100 {
        let is_day = half_day % 2 == 0;
        let mean = if is_day { 100_000.0 } else { 3e6 };
        let (hits, mut periods) = (seen.hits, 0);
        while seen.now < half_day * 100 * MS {
            seen.idle(&mut governor, exponential(mean, &mut seed));
            periods += 1;
        }
        if is_day {
            by_day = (by_day.0 + seen.hits - hits, by_day.1 + periods);
        }
    }
    assert!(by_day.0 > by_day.1 / 100 * 95, "{by_day:?}");
}

/// Three short gaps and a long one: a short window meets as much as the longest.
#[test]
fn events_in_groups_cost_short_windows() {
    let mut governor = Governor::new(limits());
    let (mut seen, mut seed) = (Seen::default(), 5);
    for period in 0..10_000 {
        let mean = if period % 4 == 0 { 20e6 } else { 10_000.0 };
        seen.idle(&mut governor, exponential(mean, &mut seed));
    }
    assert!(seen.hits > 10_000 * 70 / 100, "{} hits", seen.hits);
    // With the longest window after each group it would be a twentieth.
    assert!(seen.spun < seen.now / 60, "{} of {} ns", seen.spun, seen.now);
}

#[test]
fn another_load_is_learnt_within_a_few_idle_periods() {
    let mut governor = Governor::new(GovernorLimits { max_window: 4 * MS, ..limits() });
    let mut seen = Seen::default();
    (0..5_000).for_each(|_| seen.idle(&mut governor, 10_000));
    let before = seen.parks;
    (0..200).for_each(|_| seen.idle(&mut governor, MS));
    assert!(seen.parks - before < 40, "{}", seen.parks - before);
}

/// A peer on the same CPU answers only while the loop sleeps. So there are short gaps after a
/// sleep, but none after a spin.
#[test]
fn short_gaps_behind_a_sleep_prove_nothing() {
    let mut governor = Governor::new(limits());
    let (mut now, mut spun) = (0, 0);
    while now < 10_000 * MS {
        let window = governor.begin(now);
        if window > 0 {
            now += window;
            spun += window;
            governor.miss(now, window);
        }
        now += 3_000;
        governor.parked(window + 3_000);
    }
    // In ten seconds the loop tries again every 0.2 s.
    assert!(spun < 300 * MS, "{spun}");
}

#[test]
fn a_neighbour_is_given_way_for_longer_and_longer() {
    let mut governor = Governor::new(limits());
    let (mut now, mut disturbed) = (0, 0_u32);
    while now < 2_000 * MS {
        if governor.begin(now) > 0 {
            disturbed += 1;
            governor.disturbed(now, 0);
        }
        now += 100_000;
        governor.parked(100_000);
    }
    assert!((20..=30).contains(&disturbed), "{disturbed} times in 2 s");
}

/// After the longest pause the loop spins undisturbed for `undisturbed`, and is then disturbed once
/// more. Returns how long it sleeps then.
fn pause_behind(undisturbed: u64) -> u64 {
    let mut governor = Governor::new(limits());
    let mut now = 0;
    for _ in 0..20 {
        governor.disturbed(now, 0);
        now += LONGEST_PAUSE_BESIDE;
    }
    let ends = now + undisturbed;
    while now < ends {
        if governor.begin(now) == 0 {
            governor.parked(10_000);
        } else {
            governor.hit(now + 10_000, 10_000);
        }
        now += 10_000;
    }
    governor.disturbed(now, 0);
    let began = now;
    while governor.begin(now) == 0 {
        now += 10_000;
        governor.parked(10_000);
    }
    now - began
}

#[test]
fn who_was_left_alone_for_some_slices_trusts_again() {
    assert!(pause_behind(10 * MS) >= LONGEST_PAUSE_BESIDE);
    assert!(pause_behind(40 * MS) < 2 * SHORTEST_PAUSE);
}

#[test]
fn the_cap_holds_over_every_second() {
    let mut governor = Governor::new(GovernorLimits { max_cpu: 0.3, ..limits() });
    let (mut seen, mut seed) = (Seen::default(), 1);
    let mut second = (0, 0);
    while seen.now < 10_000 * MS {
        seen.idle(&mut governor, exponential(100_000.0, &mut seed));
        if seen.now - second.0 >= 1_000 * MS {
            assert!(seen.spun - second.1 <= 332 * MS, "{}", seen.spun - second.1);
            second = (seen.now, seen.spun);
        }
    }
    assert!(seen.spun > 10 * 280 * MS, "what is allowed is used: {}", seen.spun);
}

#[test]
fn a_window_of_nothing_and_a_share_of_nothing_never_spin() {
    for limits in
        [GovernorLimits { max_window: 0, ..limits() }, GovernorLimits { max_cpu: 0.0, ..limits() }]
    {
        let mut governor = Governor::new(limits);
        assert_eq!(poisson(&mut governor, 10_000.0, 1_000).spun, 0);
    }
}

#[test]
fn limits_out_of_range_become_the_nearest() {
    let limits = GovernorLimits { hit_rate: f64::NAN, max_window: u64::MAX, max_cpu: 7.0 };
    let governor = Governor::new(limits);
    assert_eq!(governor.limits().max_window, LONGEST_WINDOW);
    assert!((governor.limits().max_cpu - 1.0).abs() < f64::EPSILON);
}
