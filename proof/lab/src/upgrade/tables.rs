//! The tables of `upgrade`: one for each act.

use wakeful_load::internals::results::{Cell, Column, Table, Unit};

use super::found::{Found, Served};
use super::master::Act;
use crate::interleaved::Measured;

const NOTE: &str = "10,000 requests a second at random times from 32 connections, which are answered with 11 bytes; two workers on the CPUs that the generator leaves, and an act every half second, or every 1.1 s if workers are killed. Lost: not answered, for whatever reason; the generator sends no request a second time. Refused: connects. Reopened: connections that the server \
     closed. An act is over when those are gone who were to go.";

pub(super) fn tables(found: &Found) -> Vec<Table> {
    let mut tables: Vec<Table> = Act::ALL.iter().map(|act| table(found, *act)).collect();
    tables.retain(|table| !table.rows.is_empty());
    // Once is enough.
    if let Some(first) = tables.first_mut() {
        NOTE.clone_into(&mut first.note);
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
