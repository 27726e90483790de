//! Made-up results with everything that makes a report hard to lay out: 25 servers at 4 rates,
//! long names, names that look like markup, invalid runs, percentiles that cannot be told.
//!
//! The same on each call.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use wakeful_load::internals::results::{
    Cell, Claim, Column, Comparison, Floor, Gaps, Machine, Metric, Results, SCHEMA, Table,
    Tradeoff, TradeoffPoint, Unit, Verdict,
};
use wakeful_load::{Interval, Percentiles, Run, Validity};

const SERVERS: [&str; 25] = [
    "floor-c-epoll",
    "wakeful",
    "wakeful-spin",
    "wakeful-many-loops-pinned",
    "tokio-current-thread",
    "tokio-multi-thread",
    "tokio-uring",
    "monoio",
    "glommio",
    "smol",
    "async-std",
    "compio",
    "mio-raw",
    "libevent",
    "libuv",
    "boost-asio",
    "seastar",
    "go-net",
    "node",
    "bun",
    "netty-epoll-direct-memory",
    "python-uvloop",
    "<script>alert(1)</script>&\"'",
    "haproxy",
    "nginx",
];

const RATES: [f64; 4] = [1_000.0, 5_000.0, 20_000.0, 80_000.0];

/// All of it.
pub(crate) fn results() -> Results {
    let mut random = Random(fastrand::Rng::with_seed(0x5eed));
    let mut runs = Vec::new();
    for rate in RATES {
        for (index, server) in SERVERS.iter().enumerate() {
            // The slowest cannot do the highest rate.
            if rate > 50_000.0 && *server == "python-uvloop" {
                continue;
            }
            runs.push(run(server, index, rate, &mut random));
        }
    }
    Results {
        schema: SCHEMA,
        title: "Sample data, not a measurement: echo, 25 servers at 4 rates".to_owned(),
        command: "wakeful lab echo --peers all --rates 1k,5k,20k,80k --seconds 10 --blocks 5 \
                  --seed 24237 --out echo.html"
            .to_owned(),
        machine: machine(),
        floor: Some(Floor {
            rate: 20_000.0,
            response: percentiles(9_000.0, 0.35, 200_000),
            send_lag: percentiles(900.0, 0.5, 200_000),
            gaps: Some(Gaps {
                over_10us_a_second: 360.0,
                lost: 0.012,
                longest: 182_000,
                lag_p99: 41_000,
            }),
            validity: Validity::Valid,
        }),
        runs,
        comparisons: vec![
            comparison("tokio-current-thread", "wakeful", 20_000.0, &mut random),
            comparison("<b>&\"", "wakeful-many-loops-pinned", 80_000.0, &mut random),
        ],
        tables: vec![table()],
        tradeoffs: vec![tradeoff()],
        claims: claims(),
        notes: vec![
            "All figures on this page are made up, to see how the page looks.".to_owned(),
            "python-uvloop was left out at 80,000/s: it answers 31,000/s at most.".to_owned(),
        ],
    }
}

fn tradeoff() -> Tradeoff {
    let point = |label: &str, cpu, p50| TradeoffPoint { label: label.to_owned(), cpu, p50 };
    Tradeoff {
        name: "made-up".to_owned(),
        title: "A made-up setting, <from> little & to much".to_owned(),
        line: vec![
            point("cap 0", 0.16, 51_000.0),
            point("cap 0.3", 0.42, 30_000.0),
            point("cap 0.5", 0.62, 9_400.0),
            point("cap 1", 0.97, 8_700.0),
        ],
        others: vec![point("park", 0.16, 50_000.0), point("spin", 0.99, 8_500.0)],
    }
}

fn table() -> Table {
    let row = |name: &str, how: &str, times: &[f64], count: f64| {
        vec![Cell::text(name), Cell::text(how), Cell::of(times), Cell::of(&[count])]
    };
    Table {
        title: "Made-up figures that are not runs".to_owned(),
        note: "A note: <what> the columns mean & what they do not.".to_owned(),
        columns: vec![
            Column::new("contender", Unit::Text),
            Column::new("how", Unit::Text),
            Column::new("time", Unit::Nanoseconds),
            Column::new("parks", Unit::Count),
        ],
        rows: vec![
            row("wakeful", "a task", &[48_000.0, 52_000.0, 61_000.0], 0.0),
            row("<b>|&\"", "an event | internal", &[2.0e9, 5.0e9], 1.0),
            row("another", "", &[], 12_345.0),
        ],
    }
}

fn run(server: &str, index: usize, rate: f64, random: &mut Random) -> Run {
    let seconds = 10.0;
    let offered = (rate * seconds) as u64;
    let load = 1.0 + (rate / 60_000.0).powi(2) * random.between(0.3, 2.0);
    let median = (14_000.0 + 1_900.0 * index as f64 * random.between(0.7, 1.3)) * load;
    let spread = random.between(0.35, 0.8);
    let saturated = rate > 50_000.0 && (index == 17 || index == 18);
    let median = if saturated { median * 90.0 } else { median };
    let answered = if saturated { offered * 9 / 10 } else { offered - random.below(3) };
    let cpu = answered as f64 / seconds * (4.0e-6 + 0.4e-6 * index as f64);
    let mut reasons = Vec::new();
    if saturated {
        reasons.push(
            "The server answered 90.0 % of what was offered: the rate is beyond it.".to_owned(),
        );
    }
    if index == 9 && rate < 2_000.0 {
        reasons
            .push("Send lag p99 of 412 µs is more than a tenth of the response time.".to_owned());
        reasons.push("Steal of 3.1 % of a CPU.".to_owned());
    }
    let known = server != "haproxy";
    let cpu = json!({
        "user": cpu * seconds * 0.3,
        "system": cpu * seconds * 0.7,
        "run_queue_wait": 0.004,
        "voluntary_switches": answered / 2,
        "involuntary_switches": random.below(400),
        "share": cpu,
    });
    read(json!({
        "server": server,
        "rate": rate,
        "schedule": "poisson",
        "seed": 24_237,
        "connections": 64,
        "seconds": seconds,
        "offered": offered,
        "answered": answered,
        "failed": offered - answered,
        "waited_for_connection": if saturated { offered / 3 } else { 0 },
        "throughput": answered as f64 / seconds,
        "response": percentiles(median, spread, answered),
        "service": percentiles(median * 0.9, spread, answered),
        "send_lag": percentiles(1_400.0, 0.6, answered),
        "kinds": [],
        "cpu": known.then_some(cpu),
        "steal": 0.001,
        "timeline": timeline(median, spread, rate, random),
        "validity": if reasons.is_empty() {
            Validity::Valid
        } else {
            Validity::Invalid { reasons, up_to: None }
        },
        "blocks": 5,
        "repeated": usize::from(index == 4),
        "spoilt": 0,
        "saturated": false,
    }))
}

/// What the crate alone makes, from its JSON.
fn read<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("it has every field")
}

/// A log-normal distribution with a heavier tail from 99 % on.
fn percentiles(median: f64, spread: f64, count: u64) -> Percentiles {
    let at = |quantile: f64| {
        let nines = -(1.0 - quantile).log10();
        let tail = (nines - 2.0).max(0.0) * 0.5;
        (median * (spread * ((nines - 0.301) * 0.9 + tail)).exp()) as u64
    };
    let told = |quantile: f64| ((1.0 - quantile) * count as f64 >= 99.999).then(|| at(quantile));
    let most = 1.0 - 100.0 / (count as f64).max(200.0);
    let curve: Vec<(f64, u64)> = (0..=120)
        .map(|step| 1.0 - 10f64.powf(-f64::from(step) / 20.0))
        .filter(|quantile| *quantile <= most)
        .map(|quantile| (quantile, at(quantile)))
        .collect();
    read(json!({
        "count": count,
        "mean": median * 1.1,
        "min": (median * 0.6) as u64,
        "max": at(1.0 - 0.5 / count as f64),
        "p50": told(0.5),
        "p90": told(0.9),
        "p99": told(0.99),
        "p999": told(0.999),
        "p9999": told(0.9999),
        "curve": curve,
    }))
}

fn timeline(median: f64, spread: f64, rate: f64, random: &mut Random) -> Vec<Interval> {
    (0..50)
        .map(|slice| {
            let p50 = median * random.between(0.95, 1.06);
            let p99 = p50 * (spread * 1.6).exp() * random.between(0.9, 1.3);
            let spike = if random.below(25) == 0 { 12.0 } else { 1.0 };
            read(json!({
                "start": f64::from(slice) * 0.2,
                "count": (rate * 0.2) as u64,
                "p50": p50 as u64,
                "p99": p99 as u64,
                "max": (p99 * random.between(1.2, 2.5) * spike) as u64,
            }))
        })
        .collect()
}

fn comparison(a: &str, b: &str, rate: f64, random: &mut Random) -> Comparison {
    let figures = [
        ("p50", 21_000.0, 0.71, "lower"),
        ("p90", 34_000.0, 0.78, "lower"),
        ("p99", 61_000.0, 0.97, "no difference"),
        ("p99.9", 140_000.0, 1.21, "lower"),
        ("cpu", 6.1e-6, 0.88, "lower"),
        ("throughput", rate, 1.001, "no difference"),
    ];
    let metric = |(name, value, ratio, verdict): (&str, f64, f64, &str)| {
        let half = if name == "throughput" { 0.002 } else { random.between(0.02, 0.1) };
        Metric {
            name: name.to_owned(),
            a: value,
            b: value * ratio,
            ratio,
            low: ratio * (1.0 - half),
            high: ratio * (1.0 + half),
            noise: (name != "cpu").then_some((1.002, 1.0 - half * 0.8, 1.0 + half * 0.9)),
            verdict: verdict.to_owned(),
            near_floor: name == "p50",
        }
    };
    Comparison {
        a: a.to_owned(),
        b: b.to_owned(),
        rate: Some(rate),
        pairs: 30,
        metrics: figures.map(metric).to_vec(),
    }
}

fn claims() -> Vec<Claim> {
    let claim = |claim: &str, measured: &str, verdict| Claim {
        claim: claim.to_owned(),
        measured: measured.to_owned(),
        verdict,
    };
    vec![
        claim(
            "At 20,000/s wakeful's median is at most three quarters of tokio-current-thread's.",
            "0.710 (0.688 to 0.731) over 30 pairs; A against A 0.983 to 1.018.",
            Verdict::Holds,
        ),
        claim("At 80,000/s its p99 is lower too.", "0.970 (0.912 to 1.03).", Verdict::DoesNotHold),
        claim("It holds for two CPUs as well.", "This machine has one.", Verdict::CannotTell),
    ]
}

fn machine() -> Machine {
    Machine {
        kernel: "6.12.0-sample".to_owned(),
        cpu: "Sample CPU @ 3.00GHz".to_owned(),
        cpus: 4,
        hypervisor: Some("KVM".to_owned()),
        memory_mib: 16_384,
        governor: "none: the hypervisor decides".to_owned(),
        mitigations: vec![
            "spectre_v2: Mitigation: Enhanced / Automatic IBRS; IBPB: conditional".to_owned(),
            "mds: Not affected".to_owned(),
        ],
        kernel_command_line: "root=/dev/vda1 ro isolcpus=2,3 nohz_full=2,3 rcu_nocbs=2,3 \
                              a_parameter_that_is_very_long_and_has_no_space_in_it_at_all=1"
            .to_owned(),
        version: "wakeful 0.1.0".to_owned(),
        started_unix: 1_750_000_000,
    }
}

struct Random(fastrand::Rng);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.f64()
    }
}
