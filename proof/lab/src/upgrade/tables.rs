//! The tables of `upgrade`: one for each act, and one for the starts.

use wakeful_load::internals::format;
use wakeful_load::internals::results::{Cell, Column, Table, Unit};

use super::found::{Found, Served};
use super::master::Act;
use super::starts::Started;
use crate::interleaved::Measured;

const NOTE: &str = "requests a second at random times, on 32 connections, with answers of 11 bytes. Two workers run on the CPUs that the generator leaves. An \
     act happens every half second, or every 1.1 s if workers are killed. An act: the median time until it was over. \
     Lost: requests without an answer, for whatever reason (the generator sends no request twice); 0 is good. Refused: connections that \
     were refused; 0 is good. Reopened: connections that the server closed and the client opened again. p50 to longest: response times; lower is \
     better.";

const STARTS: &str = "Four workers with one loop each, without requests; lower is better in every column. Until all accept: the time from the start of the \
     program. Replaced: the time from the kill of a worker until the log says that the next one accepts (the median of the four). Private: \
     Private_Dirty in /proc/PID/smaps_rollup, the mean of the workers. Pss: the same, plus the worker's share of common memory.";

pub(super) fn tables(found: &Found, starts: &Measured<Started>, rate: u32) -> Vec<Table> {
    let mut tables: Vec<Table> = Act::ALL.iter().map(|act| table(found, *act)).collect();
    tables.retain(|table| !table.rows.is_empty());
    // The note stands only below the first table.
    if let Some(first) = tables.first_mut() {
        first.note = format!("{} {NOTE}", format::count(rate.into()));
    }
    if !starts.is_empty() {
        tables.push(table_of_starts(starts));
    }
    tables
}

fn table(found: &Found, act: Act) -> Table {
    let of_act = found.iter().filter(|(one, _, _)| *one == act);
    let rows = of_act.flat_map(|(_, client, served)| {
        served.names().map(|name| row(name, client, served)).collect::<Vec<_>>()
    });
    let count = |head| Column::new(head, Unit::Count);
    let time = |head| Column::new(head, Unit::Nanoseconds);
    Table {
        title: match act {
            Act::Upgrade => "Upgraded to a new program",
            Act::Reload => "Reloaded",
            Act::Scaling => "A worker more, a worker fewer",
            Act::Kill => "A worker killed",
        }
        .to_owned(),
        note: String::new(),
        columns: vec![
            Column::new("server", Unit::Text),
            Column::new("clients", Unit::Text),
            count("acts"),
            time("an act"),
            count("requests"),
            count("lost"),
            count("refused"),
            count("reopened"),
            time("p50"),
            time("p99.9"),
            time("longest"),
        ],
        rows: rows.collect(),
    }
}

fn row(name: &str, client: &str, served: &Measured<Served>) -> Vec<Cell> {
    vec![
        Cell::text(name),
        Cell::text(client),
        served.cell(name, |one| Some(one.acts.len() as f64)),
        served.cell(name, Served::act),
        served.cell(name, |one| Some(one.requests as f64)),
        served.cell(name, |one| Some(one.count_lost() as f64)),
        served.cell(name, |one| Some(one.refused as f64)),
        served.cell(name, |one| Some(one.reopened as f64)),
        served.cell(name, |one| one.p50),
        served.cell(name, |one| one.p999),
        served.cell(name, |one| Some(one.longest)),
    ]
}

fn table_of_starts(starts: &Measured<Started>) -> Table {
    let row = |name: &str| {
        vec![
            Cell::text(name),
            starts.cell(name, |one| Some(one.whole.as_nanos() as f64)),
            starts.cell(name, |one| Some(one.replaced)),
            starts.cell(name, |one| Some(one.private)),
            starts.cell(name, |one| Some(one.proportional)),
        ]
    };
    Table {
        title: "Started: workers that are forked or executed".to_owned(),
        note: STARTS.to_owned(),
        columns: vec![
            Column::new("server", Unit::Text),
            Column::new("until all accept", Unit::Nanoseconds),
            Column::new("replaced", Unit::Nanoseconds),
            Column::new("private, KiB", Unit::Number),
            Column::new("Pss, KiB", Unit::Number),
        ],
        rows: starts.names().map(row).collect(),
    }
}
