use super::*;

const MS: u64 = 1_000_000;

/// Reviews a group every 10 ms, `times` times, at a load of this many loops' work. The group cannot
/// do more than its active loops can.
fn settle(activity: &mut Activity, now: &mut u64, load: f64, times: u32) -> usize {
    for _ in 0..times {
        *now += 10 * MS;
        let busy = load.min(activity.active() as f64);
        activity.review(*now, busy);
    }
    activity.active()
}

#[test]
fn what_one_loop_can_do_one_loop_does() {
    let (mut activity, mut now) = (Activity::new(16, Targets::default()), 0);
    assert_eq!(settle(&mut activity, &mut now, 0.5, 1_000), 1);
}

#[test]
fn a_group_grows_within_a_few_reviews() {
    let (mut activity, mut now) = (Activity::new(128, Targets::default()), 0);
    // The work of 60 loops: after 40 ms without a pause, each review nearly doubles the number of
    // active loops.
    let active = settle(&mut activity, &mut now, 60.0, 12);
    assert!((60..=128).contains(&active), "{active} after 120 ms");
    let active = settle(&mut activity, &mut now, 60.0, 100);
    assert!((100..=128).contains(&active), "{active} in the end");
}

#[test]
fn a_saturated_group_is_active_as_a_whole() {
    let (mut activity, mut now) = (Activity::new(8, Targets::default()), 0);
    assert_eq!(settle(&mut activity, &mut now, 100.0, 100), 8);
}

#[test]
fn a_group_shrinks_by_one_loop_in_half_a_second() {
    let (mut activity, mut now) = (Activity::new(8, Targets::default()), 0);
    settle(&mut activity, &mut now, 100.0, 100);
    assert_eq!(settle(&mut activity, &mut now, 0.1, 49), 8);
    assert_eq!(settle(&mut activity, &mut now, 0.1, 70), 6);
    assert_eq!(settle(&mut activity, &mut now, 0.1, 1_000), 1);
}

#[test]
fn a_steady_load_moves_nothing() {
    for load in [0.3, 0.61, 1.0, 1.3, 2.0, 3.7] {
        let (mut activity, mut now) = (Activity::new(8, Targets::default()), 0);
        let settled = settle(&mut activity, &mut now, load, 1_000);
        for _ in 0..1_000 {
            assert_eq!(settle(&mut activity, &mut now, load, 1), settled, "at a load of {load}");
        }
        // And there are no more loops than the target needs, except for the ones that the group
        // gives up slowly.
        assert!((settled as f64 - 1.0) * 0.6 * ROOM <= load, "{settled} at a load of {load}");
    }
}

/// Requests of 1 ms each at random times. Each review sees a different handful, which is no reason
/// to change the number of loops.
#[test]
fn a_steady_load_of_few_long_requests_moves_nothing() {
    for (requests, most) in [(1, 1), (3, 1), (5, 2), (10, 4)] {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut comes = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % 1_000) < requests
        };
        let (mut activity, mut waiting) = (Activity::new(16, Targets::default()), 0.0);
        let mut changes = 0;
        for review in 1..6_000 {
            // The average number of requests in 10 ms. Each takes a tenth of a loop's time.
            let came = (0..1_000).filter(|_| comes()).count();
            waiting += came as f64 / 10.0;
            let before = activity.active();
            let busy = f64::min(waiting, before as f64);
            waiting -= busy;
            let active = activity.review(review * 10 * MS, busy);
            assert!(active <= most, "{active} for {requests}");
            changes += u32::from(review > 500 && active != before);
        }
        assert!(changes <= 2, "{changes} in 55 s at {requests}");
    }
}

#[test]
fn a_moment_without_load_lets_nothing_go() {
    let (mut activity, mut now) = (Activity::new(8, Targets::default()), 0);
    settle(&mut activity, &mut now, 4.0, 100);
    let before = activity.active();
    for _ in 0..100 {
        settle(&mut activity, &mut now, 0.0, 20);
        settle(&mut activity, &mut now, 4.0, 1);
    }
    assert_eq!(activity.active(), before);
}

#[test]
fn targets_out_of_range_become_the_nearest() {
    let odd = Activity::new(4, Targets::new().utilisation(f64::NAN).least(9));
    assert_eq!(odd.targets(), Targets::new().utilisation(0.6).least(4));
    let none = Activity::new(0, Targets::new().utilisation(7.0).least(0));
    assert_eq!((none.targets(), none.active()), (Targets::new().utilisation(0.95).least(1), 1));
}
