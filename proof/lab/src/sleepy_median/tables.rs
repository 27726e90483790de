//! The tables of `sleepy-median`, apart from those of the rates. They have the medians of the
//! rounds, with the lowest and the highest.

mod awake;
mod table;

use wakeful_load::internals::results::{Table, Tradeoff, TradeoffPoint, Unit};
use wakeful_load::internals::series::Figures;
use wakeful_load::internals::statistics::median;

use self::table::table;
use super::contenders::{CAPS, PARKING, SPINNING};
use super::found::Found;
use super::parts::{CHAINS, PROXIES};
use crate::interleaved::Measured;

const PLAIN: &str = "p50 to max: response times; lower is better. Answers: how many a second; all that were requested is good. CPU: the server's CPU time.";

pub(super) fn tables(found: &Found) -> Vec<Table> {
    let mut tables: Vec<Table> = awake::tables(&found.awake).collect();
    tables.extend([
        plain(&found.frugality, "Spinning for six in ten: 5k/s", PLAIN),
        plain(&found.patience, "Windows up to 3 ms: 1k/s", PLAIN),
        cap(found),
        hog(found),
        client(found),
        comeback(found),
        quota(found),
        silence(found),
    ]);
    for (measured, load) in found.chain.iter().zip(CHAINS) {
        let note = format!("{} CPU is that of both processes.", found.places);
        tables.push(plain(measured, &format!("Frontend and backend: {load}"), &note));
    }
    for (measured, load) in found.proxy.iter().zip(PROXIES) {
        let note = format!(
            "1 KiB answers of wakeful serve http. {} CPU is that of both processes.",
            found.places
        );
        tables.push(plain(measured, &format!("Proxy and HTTP backend: {load}"), &note));
    }
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn plain(measured: &Measured<Figures>, title: &str, note: &str) -> Table {
    table(
        measured,
        title,
        note,
        &[
            ("p50", Unit::Nanoseconds, |one| one.p50),
            ("p90", Unit::Nanoseconds, |one| one.p90),
            ("p99", Unit::Nanoseconds, |one| one.p99),
            ("p99.9", Unit::Nanoseconds, |one| one.p999),
            ("max", Unit::Nanoseconds, |one| Some(one.max)),
            ("answers", Unit::PerSecond, |one| Some(one.throughput)),
            ("CPU", Unit::Share, |one| one.cpu_share),
        ],
    )
}

fn cap(found: &Found) -> Table {
    table(
        &found.cap,
        "What spinning may use: --max-cpu at 10k/s",
        "p50 to p99: response times; lower is better. CPU: the server's CPU time, work and spinning together. The busiest second: the second of the \
     measured time in which the server used most CPU time.",
        &[
            ("p50", Unit::Nanoseconds, |one| one.figures.p50),
            ("p90", Unit::Nanoseconds, |one| one.figures.p90),
            ("p99", Unit::Nanoseconds, |one| one.figures.p99),
            ("CPU", Unit::Share, |one| one.figures.cpu_share),
            ("the busiest second", Unit::Share, |one| one.busiest_second),
        ],
    )
}

fn hog(found: &Found) -> Table {
    table(
        &found.hog,
        "Beside a hog: 10k/s, and a thread that counts on the server's CPU",
        "The hog's share: of the CPU that it shares with the server. It counts: its steps a second; more means that the server left it more time. \
         p50 to p99: response times; lower is better. Answers: how many a second; all that were requested is good.",
        &[
            ("the hog's share", Unit::Share, |one| one.hog),
            ("it counts", Unit::PerSecond, |one| one.counted),
            ("p50", Unit::Nanoseconds, |one| one.figures.p50),
            ("p90", Unit::Nanoseconds, |one| one.figures.p90),
            ("p99", Unit::Nanoseconds, |one| one.figures.p99),
            ("answers", Unit::PerSecond, |one| Some(one.figures.throughput)),
        ],
    )
}

fn client(found: &Found) -> Table {
    table(
        &found.client,
        "A client that spins on the server's own CPU: one connection, one call at a time",
        "p50 to max: how long a call took; lower is better. Calls: how many the client made in the measured time; higher is better.",
        &[
            ("p50", Unit::Nanoseconds, |one| Some(one.p50)),
            ("p99", Unit::Nanoseconds, |one| Some(one.p99)),
            ("max", Unit::Nanoseconds, |one| Some(one.most)),
            ("calls", Unit::Count, |one| Some(one.count)),
        ],
    )
}

fn comeback(found: &Found) -> Table {
    table(
        &found.comeback,
        "When the hog leaves: p50 of slices of 100 ms at 10k/s",
        "p50 is measured in slices of 100 ms; lower is better in every column. Settled: the last third of the slices. Back after: the time from the \
     end of the hog to the middle of the first slice whose p50 is at most 1.5 times the settled one, so at least 50 ms.",
        &[
            ("p50 beside the hog", Unit::Nanoseconds, |one| Some(one.as_ref()?.beside)),
            ("p50, settled", Unit::Nanoseconds, |one| Some(one.as_ref()?.settled)),
            ("back after", Unit::Nanoseconds, |one| Some(one.as_ref()?.back_after)),
        ],
    )
}

fn quota(found: &Found) -> Table {
    table(
        &found.quota,
        "In a control group that gets 20 % of a CPU: 1k/s",
        "Throttled: the periods of 100 ms in which the server used up its quota and had to stop. Of: all periods in which it wanted to run, from its \
     start to the end of the measured time. p50, p90: response times. Lower is better in every column but `of`.",
        &[
            ("throttled", Unit::Count, |one| Some(one.periods)),
            ("of", Unit::Count, |one| Some(one.of)),
            ("p50", Unit::Nanoseconds, |one| one.figures.p50),
            ("p90", Unit::Nanoseconds, |one| one.figures.p90),
            ("CPU", Unit::Share, |one| one.figures.cpu_share),
        ],
    )
}

fn silence(found: &Found) -> Table {
    table(
        &found.silence,
        "From 5 s after the last request on, for 5 s",
        "System calls and CPU time of a server without traffic; 0 is good.",
        &[
            ("system calls", Unit::Count, |one| Some(one.calls)),
            ("CPU", Unit::Share, |one| Some(one.cpu)),
        ],
    )
}

/// Returns p50 against CPU, from `--max-cpu` 0 to 1, between parking and spinning.
pub(super) fn tradeoffs(found: &Found) -> Vec<Tradeoff> {
    let point = |label: &str, name: &str| {
        let of = |figure: fn(&Figures) -> Option<f64>| {
            let figures = found.cap.figures(name, |one| figure(&one.figures));
            let figures: Vec<f64> = figures.into_iter().flatten().collect();
            (!figures.is_empty()).then(|| median(&figures))
        };
        let (cpu, p50) = (of(|one| one.cpu_share)?, of(|one| one.p50)?);
        Some(TradeoffPoint { label: label.to_owned(), cpu, p50 })
    };
    let caps = CAPS.iter().filter_map(|(cap, name)| point(&format!("max_cpu {cap}"), name));
    let line: Vec<TradeoffPoint> = caps.collect();
    if line.is_empty() {
        return Vec::new();
    }
    let ends = [("park", PARKING), ("spin", SPINNING)];
    vec![Tradeoff {
        name: "max-cpu".to_owned(),
        title: "What the cap on spinning costs and brings: 10k requests/s, 1 KiB, 32 connections"
            .to_owned(),
        line,
        others: ends.into_iter().filter_map(|(label, name)| point(label, name)).collect(),
    }]
}
