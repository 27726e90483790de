//! Whether the generator may be trusted: against servers whose slowness is known, it has to say
//! what is known.
//!
//! Times are compared with those that the server was told, never with those of another machine.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wakeful_load::internals::affinity;
use wakeful_load::internals::null_server::{NullServerThread, Slowness, Spread};
use wakeful_load::internals::quiet::{self, Baseline, Limits};
use wakeful_load::{
    Measurement, Plan, Protocol, Recording, Requests, Schedule, Template, Validity,
};

/// Two spinning threads at a time are as many as small machines have CPUs for. Inside is what is
/// left of the time for which all tests together may wait for a quiet machine, and try again.
static ONE_AT_A_TIME: Mutex<Duration> = Mutex::new(Duration::from_secs(30));

fn alone() -> MutexGuard<'static, Duration> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn cpus() -> (usize, usize) {
    let cpus = affinity::allowed_cpus().unwrap();
    (cpus[0], *cpus.last().unwrap())
}

fn plan(server: &NullServerThread, schedule: Schedule) -> Plan {
    Plan::new(server.target().clone())
        .requests(Requests::new(Protocol::Frames, &Template::of_size(64)).unwrap())
        .schedule(schedule)
        .warm_up(Duration::ZERO)
        .duration(Duration::from_secs(3))
}

/// Runs on a thread of its own, which is pinned.
fn measure(plan: &Plan) -> Measurement {
    let (_, cpu) = cpus();
    thread::scope(|scope| {
        let run = || {
            affinity::pin_current_thread(&[cpu]).unwrap();
            plan.run().unwrap()
        };
        scope.spawn(run).join().unwrap()
    })
}

/// What an attempt showed.
enum Attempt {
    /// The figures are as they must be.
    Right,
    /// The figures are wrong. The text says why.
    Wrong(String),
    /// Nothing: others had the CPUs as well, or the run is not VALID.
    Spoilt(String),
}

/// Only what was measured while hardly anybody else used the machine, and is VALID, says anything
/// about the generator. It is waited for that, and tried again, for as long as `patience` lasts; a
/// machine that is never quiet skips the test and says so. An attempt has a measurement of each
/// server, one after the other. `attempts` of them have to be wrong before the generator is, since
/// the hypervisor takes what no counter here shows: that is decided even after the end of
/// `patience`.
fn on_a_quiet_machine<const SERVERS: usize>(
    patience: &mut Duration,
    attempts: usize,
    slow: [Slowness; SERVERS],
    plan: impl Fn(&NullServerThread) -> Plan,
    mut judge: impl FnMut(&[Measurement; SERVERS]) -> Attempt,
) {
    let (mut wrong, mut spoilt) = (Vec::new(), Vec::new());
    loop {
        let began = Instant::now();
        let outcome = attempt(*patience, slow, &plan, &mut judge);
        *patience = patience.saturating_sub(began.elapsed());
        let is_undecided = match outcome {
            Attempt::Right => return,
            Attempt::Wrong(what) => {
                wrong.push(what);
                wrong.len() < attempts
            }
            Attempt::Spoilt(why) => {
                spoilt.push(why);
                false
            }
        };
        if patience.is_zero() && !is_undecided {
            break;
        }
    }
    assert!(wrong.len() < attempts, "{wrong:#?}");
    eprintln!("skipped: the machine was not quiet for long enough: {spoilt:#?} {wrong:#?}");
}

/// Waits for a quiet machine, and measures once.
fn attempt<const SERVERS: usize>(
    patience: Duration,
    slow: [Slowness; SERVERS],
    plan: impl Fn(&NullServerThread) -> Plan,
    judge: impl FnOnce(&[Measurement; SERVERS]) -> Attempt,
) -> Attempt {
    let ours = [std::process::id()];
    let limits = Limits { patience, ..Limits::default() };
    let waited = quiet::wait_for_quiet(&limits, &ours, &[], &mut |_| true).unwrap();
    if !waited.quiet {
        return Attempt::Spoilt(format!("others use {:.2} CPUs", waited.last.total()));
    }
    let baseline = Baseline::take(&ours, &[]).unwrap();
    let measured = slow.map(|slow| {
        let server = NullServerThread::start(Some(&[cpus().0]), slow).unwrap();
        let plan = plan(&server);
        let measurement = measure(&plan);
        (measurement.validity(), measurement)
    });
    let outside = baseline.outside().unwrap();
    if outside.exceeds(limits.share) {
        return Attempt::Spoilt(format!("others used {:.2} CPUs meanwhile", outside.total()));
    }
    if let Some((invalid, _)) = measured.iter().find(|(valid, _)| *valid != Validity::Valid) {
        return Attempt::Spoilt(format!("{invalid:?}"));
    }
    let measured = measured.map(|(_, measurement)| measurement);
    judge(&measured)
}

/// Of each slice of a plan that is run again and again, with the same requests and delays, the run
/// in which it took the least time on average. Others who use the CPU, the hypervisor first of all,
/// only ever add to it, and not to the same slice each time; what the generator gets wrong each
/// time is in all of them.
#[derive(Default)]
struct FastestSlices(Vec<Histogram<u64>>);

impl FastestSlices {
    /// Panics unless the slices have just what the whole run has, and that is all that was due.
    fn meet(&mut self, recording: &Recording) {
        let slices = &recording.intervals;
        let mut whole = slices[0].clone();
        slices[1..].iter().for_each(|slice| whole.add(slice).unwrap());
        assert_eq!(whole, recording.response);
        assert_eq!(whole.len(), recording.offered);
        assert!(slices.iter().all(|slice| !slice.is_empty()));
        if self.0.is_empty() {
            self.0.clone_from(slices);
        }
        for (fastest, slice) in self.0.iter_mut().zip(slices) {
            if slice.mean() < fastest.mean() {
                *fastest = slice.clone();
            }
        }
    }

    /// The response times in all slices, sorted, in nanoseconds.
    fn sorted(&self) -> Vec<f64> {
        let mut all = Vec::new();
        for value in self.0.iter().flat_map(Histogram::iter_recorded) {
            let count = usize::try_from(value.count_at_value()).unwrap();
            all.extend(std::iter::repeat_n(value.value_iterated_to() as f64, count));
        }
        all.sort_by(f64::total_cmp);
        all
    }
}

/// The quantile of what is sorted.
fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    sorted[(sorted.len() as f64 * quantile) as usize]
}

/// What delays become, sorted, where each meets `times` times what the floor has. A delay does not
/// choose what it meets: they are paired by a sequence that fills the square (or cube) evenly,
/// Roberts' R2, so that it comes out the same each time.
fn beside_floor(delays: &[f64], floor: &[f64], times: usize) -> Vec<f64> {
    const STEPS: [f64; 2] = [0.754_877_666_246_692_7, 0.569_840_290_998_053_2];
    let met = |index: usize| STEPS[..times].iter().map(move |step| (index as f64 * step).fract());
    let mut sums: Vec<f64> = (delays.iter().enumerate())
        .map(|(index, delay)| delay + met(index).map(|at| quantile(floor, at)).sum::<f64>())
        .collect();
    sums.sort_by(f64::total_cmp);
    sums
}

#[test]
fn percentiles_agree_with_a_known_distribution() {
    let mut alone = alone();
    // What the kernel, the host and this build take for a round trip, besides the server's delay:
    // the same load, answered at once.
    let at_once = Slowness::default();
    let slow = Slowness {
        delay: Duration::from_millis(2),
        spread: Spread::Exponential,
        seed: 11,
        ..Slowness::default()
    };
    let plan = |server: &NullServerThread| {
        plan(server, Schedule::Poisson(8000.0))
            .duration(Duration::from_secs(1))
            // The delays overtake each other, which no connection may; 16 are busy on average.
            .connections(128)
            .in_flight(1)
    };
    let (mut floor, mut delayed) = (FastestSlices::default(), FastestSlices::default());
    on_a_quiet_machine(&mut alone, 6, [at_once, slow], plan, |[of_floor, of_delayed]| {
        floor.meet(&of_floor.recording);
        delayed.meet(&of_delayed.recording);
        let (floor, measured) = (floor.sorted(), delayed.sorted());
        // The server's first delays belong to the millisecond before the measured time; a few more
        // or less do not matter.
        let mut delays: Vec<f64> =
            slow.delays().take(measured.len()).map(|delay| delay.as_nanos() as f64).collect();
        delays.sort_by(f64::total_cmp);
        // What keeps the server or the generator from its CPU meets an answer that is held twice:
        // on the way in, and on the way out. What the way itself takes, the floor's median, is met
        // once.
        let (once, twice) = (beside_floor(&delays, &floor, 1), beside_floor(&delays, &floor, 2));
        let way = quantile(&floor, 0.5);
        for at in [0.1, 0.5, 0.9, 0.99] {
            let (least, most) = (quantile(&once, at), quantile(&twice, at) - way);
            let measured = quantile(&measured, at);
            let tolerance = f64::max(quantile(&delays, at) * 0.02, 10_000.0);
            if !(least - tolerance..=most + tolerance).contains(&measured) {
                return Attempt::Wrong(format!(
                    "p{}: {least:.0} to {most:.0} ns known, give or take {tolerance:.0}; {measured:.0} measured; the floor's p50 is {way:.0}, \
                     its p99 {:.0}",
                    at * 100.0,
                    quantile(&floor, 0.99)
                ));
            }
        }
        Attempt::Right
    });
}

#[test]
fn a_stall_shows_where_it_belongs_and_a_closed_loop_hides_it() {
    let mut alone = alone();
    let slow = Slowness {
        stall: Duration::from_millis(100),
        stall_every: Duration::from_secs(1),
        ..Slowness::default()
    };
    let open = |server: &NullServerThread| {
        plan(server, Schedule::Poisson(5000.0))
            // Four whole stalls, a second apart from the server's start on. Of the 500 requests
            // that are due in one, most cannot be sent before its end: they have waited all the
            // same.
            .duration(Duration::from_millis(4500))
            .connections(32)
            .in_flight(2)
    };
    on_a_quiet_machine(&mut alone, 3, [slow], open, |[seen]| {
        // Requests due in a stall wait for its end: from 0 to 100 ms, evenly. After it the server
        // has to catch up.
        let stalled = 0.4 / 4.5;
        for quantile in [0.5, 0.95, 0.99, 0.999] {
            let wait = f64::max(0.0, 1.0 - (1.0 - quantile) / stalled) * 100.0;
            let measured = seen.recording.response.value_at_quantile(quantile) as f64 / 1e6;
            if !(wait - 4.0..=wait + 10.0).contains(&measured) {
                let percent = quantile * 100.0;
                return Attempt::Wrong(format!(
                    "p{percent}: {wait:.1} ms known, {measured:.1} measured"
                ));
            }
        }
        Attempt::Right
    });
    let closed =
        |server: &NullServerThread| plan(server, Schedule::Closed).connections(4).in_flight(1);
    on_a_quiet_machine(&mut alone, 3, [slow], closed, |[hidden]| {
        // The same stalls; but while the server stood still no request was sent, so that only four
        // met each.
        match hidden.recording.response.value_at_quantile(0.99) {
            ..10_000_000 => Attempt::Right,
            p99 => Attempt::Wrong(format!("p99 {p99} ns")),
        }
    });
}

#[test]
fn an_overloaded_server_makes_the_run_invalid() {
    let _alone = alone();
    let slow = Slowness {
        stall: Duration::from_millis(20),
        stall_every: Duration::from_millis(20),
        ..Slowness::default()
    };
    let server = NullServerThread::start(Some(&[cpus().0]), slow).unwrap();
    let plan = plan(&server, Schedule::Poisson(2000.0))
        // At most one answer for each connection and stall: 4 x 50 a second.
        .connections(4)
        .in_flight(1)
        .patience(Duration::from_millis(100));
    let measurement = measure(&plan);
    let Validity::Invalid { reasons, .. } = measurement.validity() else {
        panic!("it is called valid: {measurement:?}");
    };
    assert!(reasons[0].contains("answered in time"), "{reasons:?}");
    // What came in the measured time, and neither what came later nor what should have come.
    let throughput = measurement.to_run("null").throughput;
    assert!((1.0..1000.0).contains(&throughput), "{throughput}");
}

#[test]
fn a_generator_robbed_of_its_cpu_says_invalid() {
    let _alone = alone();
    let (server_cpu, cpu) = cpus();
    let server = NullServerThread::start(Some(&[server_cpu]), Slowness::default()).unwrap();
    let plan = plan(&server, Schedule::Poisson(20_000.0));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let judge_beside_hogs = |plan: &Plan| {
        stop.store(false, relaxed);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    affinity::pin_current_thread(&[cpu]).unwrap();
                    while !stop.load(relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let measurement = measure(plan);
            stop.store(true, relaxed);
            measurement.validity()
        })
    };
    // Which of several reasons comes first is no promise.
    let says = |validity: &Validity, reason: &str| match validity {
        Validity::Invalid { reasons, .. } => reasons.iter().any(|one| one.contains(reason)),
        _ => false,
    };
    // Whoever keeps the server from its CPU meanwhile makes the responses so slow that the lag no
    // longer matters. Such a run is judged rightly, and says nothing here.
    let mut others = Vec::new();
    loop {
        let open = judge_beside_hogs(&plan);
        if says(&open, "late") {
            break;
        }
        others.push(open);
        assert!(others.len() < 5, "{others:?}");
    }
    let closed = judge_beside_hogs(&plan.schedule(Schedule::Closed));
    assert!(says(&closed, "kept from its CPU"), "{closed:?}");
}
