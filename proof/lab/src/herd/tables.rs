//! The tables of `herd`: one for each case.

use wakeful_load::internals::results::{Cell, Column, Table, Unit};

use super::block::Served;
use super::case::{CASES, Case};
use super::found::Found;
use crate::interleaved::Measured;

const NOTE: &str = "All but the last two columns are for each connection. Woken: how often a thread of the server was woken, by the kernel's trace; 1 or less is \
     good. In vain: wakes after which the thread got neither a connection nor data before its next wake; 0 is good. To read: wakes for data of a \
     connection that the thread already had. Failed accepts: how often a worker tried to accept, and found no connection left. Busiest / mean: the \
     connections of the busiest worker, divided by the mean; 1 is even. Connections: how many a second; do not compare them between languages.";

pub(super) fn tables(found: &Found) -> Vec<Table> {
    let mut tables: Vec<Table> = CASES
        .iter()
        .zip(&found.0)
        .filter(|(_, measured)| !measured.is_empty())
        .map(|(case, measured)| table(case, measured))
        .collect();
    // The note stands only below the first table.
    if let Some(first) = tables.first_mut() {
        NOTE.clone_into(&mut first.note);
    }
    tables
}

fn table(case: &Case, measured: &Measured<Served>) -> Table {
    let row = |name: &str| {
        vec![
            Cell::text(name),
            measured.cell(name, Served::wakes),
            measured.cell(name, Served::in_vain),
            measured.cell(name, Served::for_read),
            measured.cell(name, Served::refused),
            measured.cell(name, Served::spread),
            measured.cell(name, |one| Some(one.rate())),
        ]
    };
    Table {
        title: format!("Woken for a connection: {}", case.name),
        note: String::new(),
        columns: vec![
            Column::new("server", Unit::Text),
            Column::new("woken", Unit::Number),
            Column::new("in vain", Unit::Number),
            Column::new("to read", Unit::Number),
            Column::new("failed accepts", Unit::Number),
            Column::new("busiest / mean", Unit::Number),
            Column::new("connections", Unit::PerSecond),
        ],
        rows: measured.names().map(row).collect(),
    }
}
