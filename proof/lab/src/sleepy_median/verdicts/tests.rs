use wakeful_load::internals::results::Verdict;
use wakeful_load::internals::series::Figures;

use super::super::awake::Held;
use super::super::cases::Capped;
use super::super::client::Calls;
use super::super::contenders::{
    ADAPTIVE_AGAIN, BURN, CAP as CAPPED, EPOLL_SPIN, FRUGAL, HOLD, PARKING, PARKING_AGAIN, PATIENT,
    SPINNING, TOKIO, TOKIO_AWAKE,
};
use super::super::hog::{Beside, Comeback};
use super::super::parts::AWAKE_RATES;
use super::super::quota::Throttled;
use super::super::rates::{AT_10K, RATES, Rates};
use super::super::silence::Silence;
use super::super::unmodified::{REDIS, REDIS_AWAKE};
use super::*;
use crate::interleaved::Measured;

const ALL: usize = 44;

fn figures(p50: f64, cpu: f64) -> Figures {
    Figures {
        p50: Some(p50),
        p90: Some(p50 * 1.3),
        p99: Some(p50 * 3.0),
        p999: None,
        max: p50 * 100.0,
        cpu_per_request: None,
        cpu_share: Some(cpu),
        throughput: 1e4,
    }
}

/// Makes three rounds that differ a little.
fn rounds<T>(of: impl Fn(f64) -> T) -> Vec<T> {
    Vec::from([0.99, 1.0, 1.01].map(of))
}

fn blocks(p50: f64, cpu: f64) -> Vec<Figures> {
    rounds(|factor| figures(p50 * factor, cpu))
}

fn beside(hog: f64, p99: f64) -> Vec<Beside> {
    let one = |factor| Beside {
        figures: figures(p99 / 3.0 * factor, 0.1),
        hog: Some(hog * factor),
        counted: None,
    };
    rounds(one)
}

fn calls(p50: f64) -> Vec<Calls> {
    rounds(|factor| Calls { p50: p50 * factor, p99: p50, most: p50, count: 1e4 })
}

fn capped(busiest: f64, share: f64) -> Vec<Capped> {
    rounds(|_| Capped { figures: figures(30e3, share), busiest_second: Some(busiest) })
}

fn came_back(settled: f64, back_after: f64) -> Vec<Option<Comeback>> {
    rounds(|_| Some(Comeback { beside: 40e3, settled, back_after }))
}

fn throttled(periods: f64) -> Vec<Throttled> {
    rounds(|_| Throttled { figures: figures(30e3, 0.1), periods, of: 20.0 })
}

/// Makes figures without traffic.
fn quiet(calls: f64, cpu: f64) -> Measured<Silence> {
    let each = || rounds(|_| Silence { calls, cpu });
    Measured::canned(vec![(ADAPTIVE, each()), (HOLD, each())])
}

/// Makes figures at each rate: those of the server that holds, and those of the servers for which
/// CPUs are held.
fn held(hold: (f64, f64), watched: (f64, f64)) -> Vec<Measured<Held>> {
    let held = |p50, cpu| -> Vec<Held> {
        let all = blocks(p50, cpu).into_iter();
        all.map(|figures| Held { p50: figures.p50, figures, pays: None }).collect()
    };
    let at = |_| {
        Measured::canned(vec![
            (HOLD, held(hold.0, hold.1)),
            (SPINNING, held(14e3, 1.0)),
            (PARKING, held(50e3, 0.1)),
            (PARKING_AGAIN, held(50e3, 0.1)),
            (TOKIO, held(50e3, 0.2)),
            (TOKIO_AWAKE, held(watched.0, watched.1)),
            (REDIS, held(50e3, 0.2)),
            (REDIS_AWAKE, held(watched.0, watched.1)),
        ])
    };
    AWAKE_RATES.iter().map(at).collect()
}

/// Makes figures of wakeful as they should be.
fn found() -> Found {
    let at = |rate: &f64| {
        let slow = if *rate > 2e4 { 25e3 } else { 50e3 };
        Measured::canned(vec![
            (ADAPTIVE, blocks(8.4e3, 0.99)),
            (ADAPTIVE_AGAIN, blocks(8.5e3, 0.99)),
            (EPOLL_SPIN, blocks(8.4e3, 1.0)),
            (TOKIO, blocks(slow, 0.2)),
            (BURN, blocks(9e3, 1.0)),
        ])
    };
    Found {
        rates: Rates { judged: RATES.iter().map(at).collect(), ..Rates::default() },
        frugality: Measured::canned(vec![(SPINNING, blocks(8e3, 1.0)), (FRUGAL, blocks(9e3, 0.6))]),
        patience: Measured::canned(vec![
            (SPINNING, blocks(12e3, 1.0)),
            (PATIENT, blocks(13e3, 0.9)),
        ]),
        cap: Measured::canned(vec![(PARKING, capped(0.17, 0.16)), (CAPPED.1, capped(0.46, 0.44))]),
        hog: Measured::canned(vec![
            (PARKING, beside(0.85, 35e3)),
            (PARKING_AGAIN, beside(0.82, 37e3)),
            (ADAPTIVE, beside(0.85, 35e3)),
        ]),
        client: Measured::canned(vec![(PARKING, calls(3e3)), (ADAPTIVE, calls(3.1e3))]),
        comeback: Measured::canned(vec![
            (PARKING, came_back(45e3, 50e6)),
            (ADAPTIVE, came_back(9e3, 150e6)),
        ]),
        quota: Measured::canned(vec![(PARKING, throttled(1.0)), (ADAPTIVE, throttled(1.0))]),
        silence: quiet(0.0, 0.0),
        awake: held((15e3, 0.1), (15e3, 0.19)),
        ..Found::default()
    }
}

fn fails(found: &Found) -> Vec<usize> {
    let verdicts = claims(found, 1).into_iter().map(|(_, claim)| claim.verdict).enumerate();
    let failed = verdicts.filter(|(_, verdict)| *verdict == Verdict::DoesNotHold);
    failed.map(|(index, _)| index).collect()
}

#[test]
fn what_is_as_it_should_be_holds() {
    let claims = claims(&found(), 1);
    assert_eq!(claims.len(), ALL);
    for (_, claim) in claims {
        assert_eq!(claim.verdict, Verdict::Holds, "{claim:?}");
    }
}

#[test]
fn a_sleepy_median_fails_wherever_it_is_compared() {
    let mut sleepy = found();
    sleepy.rates.judged[AT_10K] = Measured::canned(vec![
        (ADAPTIVE, blocks(50e3, 0.2)),
        (ADAPTIVE_AGAIN, blocks(50e3, 0.2)),
        (EPOLL_SPIN, blocks(8.4e3, 1.0)),
        (TOKIO, blocks(45e3, 0.2)),
        (BURN, blocks(9e3, 1.0)),
    ]);
    // These compare wakeful with itself at two rates, in p50 at 10k/s, and in p90 and p99 there.
    assert_eq!(fails(&sleepy), [0, 1, 2, 4, 5, 7, 8, 9, 10, 11, 12]);
}

#[test]
fn each_other_claim_can_fail() {
    let mut bad = found();
    bad.frugality =
        Measured::canned(vec![(SPINNING, blocks(8e3, 1.0)), (FRUGAL, blocks(11e3, 0.8))]);
    bad.patience =
        Measured::canned(vec![(SPINNING, blocks(12e3, 1.0)), (PATIENT, blocks(15e3, 1.0))]);
    bad.cap = Measured::canned(vec![(PARKING, capped(0.17, 0.16)), (CAPPED.1, capped(0.52, 0.45))]);
    bad.hog = Measured::canned(vec![
        (PARKING, beside(0.85, 35e3)),
        (PARKING_AGAIN, beside(0.84, 36e3)),
        (ADAPTIVE, beside(0.6, 70e3)),
    ]);
    bad.client = Measured::canned(vec![(PARKING, calls(3e3)), (ADAPTIVE, calls(6.5e3))]);
    bad.comeback =
        Measured::canned(vec![(PARKING, came_back(45e3, 50e6)), (ADAPTIVE, came_back(9e3, 350e6))]);
    bad.quota = Measured::canned(vec![(PARKING, throttled(1.0)), (ADAPTIVE, throttled(2.0))]);
    bad.silence = quiet(1.0, 0.001);
    // The values are also four times a spinning loop's at the lowest rate.
    bad.awake = held((60e3, 0.12), (20e3, 0.21));
    assert_eq!(fails(&bad), (19..ALL).collect::<Vec<_>>());
}

#[test]
fn who_stays_parked_does_not_come_back() {
    let mut parked = found();
    parked.comeback =
        Measured::canned(vec![(PARKING, came_back(45e3, 50e6)), (ADAPTIVE, came_back(44e3, 50e6))]);
    assert_eq!(fails(&parked), [26]);
}

#[test]
fn what_was_not_measured_leaves_its_claims_open() {
    let claims = claims(&Found::default(), 1);
    assert_eq!(claims.len(), ALL);
    assert!(claims.iter().all(|(_, claim)| claim.verdict == Verdict::CannotTell));
    assert!(notes(&Found::default(), 1).is_empty());
    let noise = notes(&found(), 1);
    assert!(noise[0].contains("1.01"), "{noise:?}");
}

#[test]
fn a_reader_sees_what_a_spin_would_have_reached() {
    let claims = claims(&found(), 1);
    let of_redis = claims.iter().find(|(_, claim)| claim.claim.contains("redis-server, awake"));
    let measured = &of_redis.unwrap().1.measured;
    assert!(measured.starts_with("0.300 "), "{measured}");
    assert!(measured.contains("wakeful, spinning / wakeful, parking is 0.280 "), "{measured}");
}
