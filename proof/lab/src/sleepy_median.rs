//! `lab sleepy-median`: is a server slower when it has less to do, and what does it cost to avoid
//! that?
//!
//! Each of the parts in [`PARTS`] can be run by itself (`--parts`). [`contenders`] has the servers,
//! and [`verdicts`] has the claims.

mod awake;
mod cases;
mod cgroup;
mod chain;
mod client;
mod contenders;
mod found;
mod hog;
mod loads;
mod machine;
mod machine_watch;
mod nginx;
mod parts;
mod proxied;
mod quota;
mod rates;
mod silence;
mod tables;
mod unmodified;
mod verdicts;

use std::time::Duration;

use wakeful_load::internals::bench::Load;
use wakeful_load::internals::results::Results;
use wakeful_load::internals::series::Figures;

use self::cases::Case;
use self::chain::Chain;
use self::contenders::{
    ADAPTIVE, BURN, CAPS, EPOLL_SPIN, FRUGAL, HOLD, PARKING, PARKING_AGAIN, PATIENT, SPINNING,
    TOKIO,
};
use self::found::Found;
use self::hog::{HOG_IS_GONE, HOG_STAYS};
use self::loads::{WARM_UP, load};
use self::parts::{
    AWAKE, CAP, CHAIN, CHAINS, CLIENT, COMEBACK, Extent, FRUGALITY, HOG, PARTS, PATIENCE, PROXIES,
    PROXY, QUOTA, RATE, SILENCE,
};
use self::rates::Rates;
use crate::contender::Contender;
use crate::interleaved::Measured;
use crate::lab::{Experiment, Findings, Lab, LabError, Size};
use crate::peers::Service;
use crate::probe::Probe;
use crate::scratch::Scratch;

/// The contenders of the parts that are not about rates.
const POLICIES: [&str; 4] = [ADAPTIVE, PARKING, SPINNING, HOLD];

/// The experiment: see the [module](self).
#[derive(Debug)]
pub(crate) struct SleepyMedian;

impl Experiment for SleepyMedian {
    fn name(&self) -> &'static str {
        "sleepy-median"
    }

    fn about(&self) -> &'static str {
        "idle policies from 1k to 260k requests/s, alone, beside neighbours, under a quota, in a chain and behind a proxy: latency, and what it costs"
    }

    fn story(&self) -> &'static str {
        "A Rust service answered with a p50 of 330 µs at 10k requests/s and of 160 µs at 100k: parking, waking and resuming a thread takes 100 to 200 µs on \
         that hardware, and a lightly loaded server parks all the time. The cure was one task for each thread that always yields, at most 4 I/O events a \
         poll, and a poll every 61 tasks: 68 µs at 10k/s, 1.6 ms at most at 260k/s, and every thread at 100 % CPU for ever. Before that it had polled every \
         7 tasks for up to 1,024 events, and tried 1 and 2. Slow clients, few and mostly idle, made its calls to a backend slower."
    }

    fn claims(&self) -> Vec<String> {
        verdicts::claims(&Found::default(), 0).into_iter().map(|(_, claim)| claim.claim).collect()
    }

    fn service(&self) -> Option<Service> {
        Some(Service::Echo)
    }

    fn has_frontier(&self) -> bool {
        true
    }

    fn parts(&self) -> &'static [&'static str] {
        &PARTS
    }

    fn probes(&self) -> Vec<Probe> {
        // nginx belongs to two parts.
        unmodified::programs(AWAKE).chain([nginx::program(PROXY)]).collect()
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Results, LabError> {
        if lab.size == Size::Quick {
            lab.bench.limits.settle = Duration::from_millis(100);
            lab.bench.limits.patience = Duration::from_secs(5);
            lab.bench.most_repeats = 1;
        }
        let plan = Everything::new(lab)?;
        plan.expect(lab);
        let found = plan.measure(lab)?;
        if found.is_empty() {
            return Err(LabError::Nothing);
        }
        lab.notes.extend(verdicts::notes(&found, lab.seed));
        // Claims of a part that was not wanted are left out.
        let claims = verdicts::claims(&found, lab.seed).into_iter();
        let claims = claims.filter(|(part, _)| lab.is_wanted(part)).map(|(_, claim)| claim);
        let claims = claims.collect();
        let (tables, tradeoffs) = (tables::tables(&found), tables::tradeoffs(&found));
        let Rates { floor, runs, .. } = found.rates;
        Ok(lab.results(self, Findings { floor, runs, tables, tradeoffs, claims }))
    }
}

/// The plans of all parts. The plan of a part that is not wanted is empty.
struct Everything {
    rounds: usize,
    few_rounds: usize,
    rates: Option<rates::Plan>,
    awake: awake::Plan,
    frugality: Vec<Case>,
    patience: Vec<Case>,
    cap: Vec<Case>,
    hog: Vec<Case>,
    client: Vec<Contender>,
    client_times: client::Times,
    comeback: Vec<Case>,
    quota: Vec<Contender>,
    quota_load: Load,
    silence: Vec<Contender>,
    at_10k: Load,
    chain: Vec<(Vec<Chain>, Load)>,
    proxy: Vec<(Vec<Chain>, Load)>,
    /// The directory for nginx's settings.
    _scratch: Scratch,
}

impl Everything {
    fn new(lab: &Lab<'_>) -> Result<Self, LabError> {
        let extent = Extent::of(lab);
        let some = |part: &str, policies: &[&str], peers: &[&str]| match lab.is_wanted(part) {
            true => contenders::some(lab, policies, peers),
            false => Vec::new(),
        };
        let cases = |part: &str, policies: &[&str], peers: &[&str], load: &Load| -> Vec<Case> {
            let all = some(part, policies, peers).into_iter();
            all.map(|contender| Case::new(contender, load)).collect()
        };
        let at = |rate: f64, duration: Duration| load(lab, rate, duration);
        let at_10k = at(1e4, extent.block)?;
        let long = extent.block.max(Duration::from_secs(1)).mul_f64(1.5);
        let caps: Vec<&str> =
            [PARKING, SPINNING].into_iter().chain(CAPS.map(|(_, name)| name)).collect();
        let mut few = at(100.0, extent.block.mul_f64(3.0).max(Duration::from_millis(2400)))?;
        few.plan = few.plan.connections(2);
        let dribbling = Load { slow_clients: 200, ..at_10k.clone() };
        let chains = [at_10k.clone(), at(1e5, extent.block)?, few, dribbling];
        let scratch = Scratch::new().map_err(LabError::Scratch)?;
        let proxies =
            [&chains[0], &chains[2], &chains[3]].map(|load| loads::http(load, "/bytes/1024"));
        let with_backend =
            [TOKIO, BURN, "tokio-current-thread+interval7", "tokio-current-thread+interval1"];
        Ok(Self {
            rounds: extent.rounds,
            few_rounds: extent.field_rounds(),
            rates: lab.is_wanted(RATE).then(|| rates::Plan::new(lab, &extent)).transpose()?,
            awake: awake::Plan::new(lab, &extent, scratch.path())?,
            frugality: cases(FRUGALITY, &[SPINNING, FRUGAL], &[], &at(5e3, extent.block)?),
            patience: cases(PATIENCE, &[SPINNING, PATIENT], &[], &at(1e3, extent.block)?),
            cap: cases(CAP, &caps, &[], &at(1e4, long)?),
            hog: cases(
                HOG,
                &[PARKING, PARKING_AGAIN, ADAPTIVE, SPINNING, HOLD],
                &["epoll", TOKIO, BURN, EPOLL_SPIN],
                &at_10k,
            ),
            client: some(CLIENT, &POLICIES, &[TOKIO, BURN]),
            client_times: client::Times { warm_up: WARM_UP, measured: extent.block },
            comeback: cases(COMEBACK, &POLICIES, &[], &at(1e4, HOG_STAYS + HOG_IS_GONE)?),
            quota: some(QUOTA, &POLICIES, &[]),
            quota_load: at(1e3, long)?,
            silence: some(SILENCE, &[ADAPTIVE, HOLD], &[]),
            chain: chains
                .into_iter()
                .map(|load| {
                    let contenders = some(CHAIN, &POLICIES, &with_backend);
                    (contenders.iter().map(Chain::of_echo).collect(), load)
                })
                .collect(),
            proxy: proxies
                .into_iter()
                .map(|load| {
                    let wanted = lab.is_wanted(PROXY);
                    let chains = wanted.then(|| proxied::chains(lab, scratch.path()));
                    Ok((chains.unwrap_or_default(), load?))
                })
                .collect::<Result<_, LabError>>()?,
            _scratch: scratch,
            at_10k,
        })
    }

    fn expect(&self, lab: &mut Lab<'_>) {
        let (rounds, few) = (self.rounds, self.few_rounds);
        if let Some(rates) = &self.rates {
            rates.expect(lab);
        }
        self.awake.expect(lab);
        cases::expect(lab, &self.frugality, rounds);
        cases::expect(lab, &self.patience, rounds);
        cases::expect(lab, &self.cap, rounds);
        cases::expect(lab, &self.hog, rounds);
        client::expect(lab, &self.client, rounds, self.client_times);
        cases::expect(lab, &self.comeback, rounds);
        quota::expect(lab, &self.quota, &self.quota_load, few);
        silence::expect(lab, &self.silence, &self.at_10k, few);
        for (chains, load) in self.chain.iter().chain(&self.proxy) {
            chain::expect(lab, chains, load, few);
        }
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Found, LabError> {
        let (rounds, few) = (self.rounds, self.few_rounds);
        let rates = match &self.rates {
            Some(rates) => rates.measure(lab)?,
            None => Rates::default(),
        };
        Ok(Found {
            rates,
            awake: self.awake.measure(lab)?,
            frugality: cases::plain(lab, FRUGALITY, &self.frugality, rounds)?,
            patience: cases::plain(lab, PATIENCE, &self.patience, rounds)?,
            cap: cases::capped(lab, CAP, &self.cap, rounds)?,
            hog: hog::measure(lab, HOG, &self.hog, rounds)?,
            client: client::measure(lab, CLIENT, &self.client, rounds, self.client_times)?,
            comeback: hog::comeback(lab, COMEBACK, &self.comeback, rounds, HOG_STAYS)?,
            quota: quota::measure(lab, QUOTA, &self.quota, &self.quota_load, few)?,
            silence: silence::measure(lab, SILENCE, &self.silence, &self.at_10k, few)?,
            chain: measured(lab, CHAIN, &self.chain, &CHAINS, few)?,
            proxy: measured(lab, PROXY, &self.proxy, &PROXIES, few)?,
            places: chain::places(lab),
        })
    }
}

/// Measures chains, load by load.
fn measured(
    lab: &mut Lab<'_>,
    part: &str,
    all: &[(Vec<Chain>, Load)],
    names: &[&str],
    rounds: usize,
) -> Result<Vec<Measured<Figures>>, LabError> {
    let each = |((chains, load), name): (&(Vec<Chain>, Load), &&str)| {
        chain::measure(lab, &format!("{part}, {name}"), chains, load, rounds)
    };
    all.iter().zip(names).map(each).collect()
}
