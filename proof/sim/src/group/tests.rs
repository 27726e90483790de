use wakeful::group::Targets;

use super::*;
use crate::costs::Calibration;
use crate::policy::{HELD_WAKE, Hold, HoldLength, Policy, SILENCE};

fn limits(costs: &Costs) -> GovernorLimits {
    GovernorLimits { hit_rate: 0.999, max_window: costs.max_window(), max_cpu: 1.0 }
}

fn setting(placing: Placing, loops: usize, rate: f64) -> Setting {
    Setting {
        placing,
        loops,
        rate,
        work: 0.0,
        connections: 64,
        life: None,
        seconds: 7,
        seed: 1,
        targets: Targets::default(),
        moving: Moving::default(),
        hold: Hold { length: HoldLength::Silence(SILENCE), wake: HELD_WAKE },
    }
}

fn seen(setting: Setting) -> Seen {
    let costs = Calibration::committed().costs;
    simulate(setting, limits(&costs), &costs)
}

/// A setting with requests of 0.1 ms, so that a load is heavy without many of them.
fn heavy(placing: Placing, loops: usize, rate: f64) -> Setting {
    Setting { work: 100_000.0, ..setting(placing, loops, rate) }
}

/// Except for what the governor has learnt before the load has settled.
#[test]
fn one_loop_alone_is_what_a_replay_says() {
    let costs = Calibration::committed().costs;
    for (placing, policy) in [
        (Placing::Concentrate, Policy::Adaptive(limits(&costs))),
        (Placing::Burn, Policy::Spin),
        (Placing::Park, Policy::Window(0)),
    ] {
        let setting = setting(placing, 1, 5_000.0);
        let mut traffic = Traffic::new(&setting);
        let requests = std::iter::from_fn(|| traffic.next_before(setting.seconds as f64 * 1e9));
        let settled = requests.filter_map(|(at, _)| (at as u64).checked_sub(SETTLED));
        let arrivals: Vec<u64> = settled.collect();
        let alone = crate::replay::replay(&arrivals, policy, &costs);
        let group = simulate(setting, limits(&costs), &costs);
        for quantile in [0.1, 0.5, 0.9] {
            let (one, other) = (alone.response(quantile), group.total.response(quantile));
            assert!((one / other - 1.0).abs() < 0.02, "{placing:?}: {one} and {other}");
        }
        let (one, other) = (alone.cpu(), group.total.cpu());
        assert!((one / other - 1.0).abs() < 0.02, "{placing:?}: {one} and {other}");
    }
}

#[test]
fn every_request_is_answered_once() {
    let busy = heavy(Placing::Concentrate, 8, 20_000.0);
    for it in [busy, Setting { life: Some(2e8), ..busy }] {
        let mut traffic = Traffic::new(&it);
        let requests = std::iter::from_fn(|| traffic.next_before(it.seconds as f64 * 1e9));
        let sent = requests.filter(|(at, _)| *at >= SETTLED as f64).count();
        let seen = seen(it);
        assert!(seen.moves > 0 && !seen.is_overloaded());
        let answered = seen.total.responses.len() as f64;
        // Lives are drawn from the same random numbers, so the requests differ.
        let near = if it.life.is_none() { 0.0 } else { 0.02 };
        assert!((answered / sent as f64 - 1.0).abs() <= near, "{answered} of {sent}");
    }
}

#[test]
fn light_load_is_one_loops_and_the_others_sleep() {
    let one = seen(setting(Placing::Burn, 1, 5_000.0));
    for loops in [2, 16, 128] {
        let all = seen(setting(Placing::Concentrate, loops, 5_000.0));
        let ratio = all.total.response(0.5) / one.total.response(0.5);
        assert!(ratio <= 1.3, "{ratio} with {loops} loops");
        assert!(all.total.cpu() < 1.01, "{} CPUs of {loops}", all.total.cpu());
        assert_eq!((all.most_active, all.moves), (1, 0));
    }
}

#[test]
fn spread_over_many_loops_light_load_sleeps_or_burns() {
    let [concentrate, spread, burn, park] =
        [Placing::Concentrate, Placing::Spread, Placing::Burn, Placing::Park]
            .map(|placing| seen(setting(placing, 16, 5_000.0)));
    assert!(spread.total.response(0.5) > 3.0 * concentrate.total.response(0.5));
    assert!(park.total.response(0.5) > 3.0 * concentrate.total.response(0.5));
    assert!((burn.total.cpu() - 16.0).abs() < 0.1, "{}", burn.total.cpu());
    assert!((spread.active, burn.moves) == (16.0, 0));
}

#[test]
fn heavy_load_is_spread_evenly_and_stays_where_it_is() {
    for connections in [64, 500] {
        let it = Setting { connections, ..heavy(Placing::Concentrate, 8, 30_000.0) };
        let seen = seen(it);
        assert!((5.0..=8.0).contains(&seen.active), "{} loops", seen.active);
        let uneven = seen.busiest / seen.mean_busy();
        assert!(uneven <= verdict::UNEVEN, "{uneven} with {connections} connections");
        assert_eq!(seen.late_moves, 0, "the last at {:?}", seen.last_move);
        assert!(seen.moves > 0);
    }
}

/// A review of 10 ms sees one or two of them, and sometimes ten.
#[test]
fn long_requests_at_random_times_move_nothing() {
    for (rate, work) in [(100.0, 1e6), (300.0, 1e6), (500.0, 1e6)] {
        let few = setting(Placing::Concentrate, 16, rate);
        let seen = seen(Setting { work, seconds: 60, ..few });
        assert_eq!(seen.late_moves, 0, "{rate} of {work} ns: the last at {:?}", seen.last_move);
        assert!(seen.active <= 2.0, "{rate} of {work} ns: {} loops", seen.active);
    }
}

#[test]
fn what_a_group_cannot_do_is_not_given_a_median() {
    let seen = seen(heavy(Placing::Concentrate, 2, 40_000.0));
    assert!(seen.is_overloaded() && seen.active == 2.0);
    assert!(seen.busiest > 0.99 && seen.busiest < 1.01, "{}", seen.busiest);
    let table = report::table(&[seen], 0.0);
    assert_eq!(table.rows[0][3], wakeful_load::internals::results::Cell::Absent);
}

#[test]
fn the_seed_fixes_everything() {
    let of = |seed| {
        let seen = seen(Setting { seed, ..heavy(Placing::Concentrate, 4, 15_000.0) });
        (seen.total.responses, seen.moves, seen.busiest.to_bits())
    };
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
}

/// No request is lost in a move, and none is answered before it came.
#[test]
fn a_connection_that_moves_takes_along_what_is_not_read() {
    let costs = crate::costs::tests::costs();
    let new = || Member::new(Policy::Window(0), &costs, 0.0);
    let (mut from, mut to) = (new(), new());
    let start = SETTLED as f64;
    for (number, connection) in [1, 2, 1, 2, 1].into_iter().enumerate() {
        from.arrives(start + number as f64, connection);
    }
    // Nobody has read anything when the connection moves: the loop is still waking up.
    from.run_until(start + 1_000.0);
    let unread = from.leaves(1, start + 1_000.0);
    assert_eq!(unread.len(), 3);
    to.joins(unread, start + 1_000.0);
    for member in [&mut from, &mut to] {
        member.run_until(start + 1e9);
    }
    let count = |member: Member<'_>| {
        let (outcome, unanswered) = member.finish(start + 1e9);
        assert_eq!(unanswered, 0);
        assert!(outcome.responses.iter().all(|response| *response > costs.outside() as u64));
        outcome.responses.len()
    };
    assert_eq!((count(from), count(to)), (2, 3));
}

#[test]
fn loops_that_hold_answer_about_as_soon_as_those_that_spin_for_the_cpu_of_those_that_sleep() {
    let of = |placing| seen(setting(placing, 16, 5_000.0)).total;
    let [hold, concentrate, park] = [Placing::Hold, Placing::Concentrate, Placing::Park].map(of);
    assert!(hold.response(0.5) < 1.4 * concentrate.response(0.5), "{}", hold.response(0.5));
    assert!(hold.cpu() < park.cpu() && hold.cpu() < concentrate.cpu() / 5.0, "{}", hold.cpu());
    assert!((0.9..1.01).contains(&(hold.held / hold.elapsed)), "{}", hold.held / hold.elapsed);
    // With `HoldSpread` each of them holds a CPU.
    let spread = of(Placing::HoldSpread);
    assert!(spread.held / spread.elapsed > 15.0, "{}", spread.held / spread.elapsed);
    assert!(spread.priced(1.0) > hold.priced(1.0) + 14.0);
}
