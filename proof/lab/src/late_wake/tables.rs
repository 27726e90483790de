//! The tables of `late-wake`: medians of the rounds, with the lowest and the highest.

use std::time::Duration;

use wakeful_load::internals::format;
use wakeful_load::internals::results::{Cell, Column, Table, Unit};

use super::found::{Deferred, Found, Posts};
use crate::cold::Cold;
use crate::interleaved::Measured;

pub(super) fn tables(found: &Found, timer: Duration) -> Vec<Table> {
    let tables = [
        deferred(&found.deferred, timer),
        cold(&found.cold),
        posts(&found.parked, "Posts from another thread to a loop that sleeps", PARKED_NOTE),
        posts(
            &found.spinning,
            "Posts from another thread to a loop that never sleeps",
            SPINNING_NOTE,
        ),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

const PARKED_NOTE: &str = "One thread posts to a sleeping loop, one post at a time, 400 µs after the previous one. p50 to p99: the time from just before the call until \
     the loop runs the post. Sleeps: how often the loop's thread slept for each post, by the kernel's count. Lower is better in every column. The \
     bare eventfd is the lower bound: one write and one return from epoll_wait, without any work to carry. p99 needs 10,000 posts a round; - \
     means that there were fewer.";

const SPINNING_NOTE: &str = "The same columns, with 20 µs between posts, and loops that never sleep. Lower is better. The bare eventfd calls epoll_wait with a timeout of \
     0 again and again. tokio+burn has one task that always yields, so it asks for events in every turn.";

fn deferred(measured: &Measured<Deferred>, timer: Duration) -> Table {
    let row = |name: &str| {
        let cell = |figure: fn(&Deferred) -> Option<f64>| measured.cell(name, figure);
        vec![
            Cell::text(name),
            cell(|one| Some(one.local.p50)),
            cell(|one| Some(one.local.max)),
            cell(|one| Some(one.second.p50)),
            cell(|one| Some(one.second.max)),
            cell(|one| Some(one.sleeps)),
        ]
    };
    Table {
        title: format!(
            "Work that a post queues on its loop: an idle descriptor, and a timer {} away",
            format::time(timer.as_nanos() as f64)
        ),
        note: "Post #1 wakes the loop and queues work on it; post #2 is sent while the handler of post #1 still runs. Queued work, post #2: how long each \
     waited until it ran. Sleeps: the most times that the loop slept between post #1 and the end of both. Lower is better; a loop that waits for \
     its timer has a late wake. `libevent, posts by an internal event` has the design of the public case: its own list of callbacks, which run only after a one-shot wait, \
     and EVLIST_INTERNAL on the event of its posts. libevent with a normal event, in the row above, is not late."
            .to_owned(),
        columns: vec![
            Column::new("contender", Unit::Text),
            Column::new("queued work, p50", Unit::Nanoseconds),
            Column::new("at most", Unit::Nanoseconds),
            Column::new("post #2, p50", Unit::Nanoseconds),
            Column::new("at most", Unit::Nanoseconds),
            Column::new("sleeps", Unit::Count),
        ],
        rows: measured.names().map(row).collect(),
    }
}

fn cold(measured: &Measured<Cold>) -> Table {
    let row = |name: &str| {
        let cell = |figure: fn(&Cold) -> Option<f64>| measured.cell(name, figure);
        vec![
            Cell::text(name),
            cell(|one| Some(one.connect + one.first)),
            cell(|one| Some(one.first)),
            cell(|one| Some(one.hundredth)),
        ]
    };
    Table {
        title: "One synchronous call over [::1] to a fresh process".to_owned(),
        note: "A blocking client makes the first connection that the process ever has, and sends echo requests of 64 bytes one after the other. Each column \
     is a time; lower is better."
            .to_owned(),
        columns: vec![
            Column::new("server", Unit::Text),
            Column::new("connect and first call", Unit::Nanoseconds),
            Column::new("first call", Unit::Nanoseconds),
            Column::new("hundredth call", Unit::Nanoseconds),
        ],
        rows: measured.names().map(row).collect(),
    }
}

fn posts(measured: &Measured<Posts>, title: &str, note: &str) -> Table {
    let row = |name: &str| {
        let cell = |figure: fn(&Posts) -> Option<f64>| measured.cell(name, figure);
        vec![
            Cell::text(name),
            cell(|one| Some(one.latency.p50)),
            cell(|one| Some(one.latency.p90)),
            cell(|one| one.latency.p99),
            cell(|one| Some(one.cost.p50)),
            cell(|one| Some(one.sleeps_per_post)),
        ]
    };
    Table {
        title: title.to_owned(),
        note: note.to_owned(),
        columns: vec![
            Column::new("contender", Unit::Text),
            Column::new("p50", Unit::Nanoseconds),
            Column::new("p90", Unit::Nanoseconds),
            Column::new("p99", Unit::Nanoseconds),
            Column::new("the call itself, p50", Unit::Nanoseconds),
            Column::new("sleeps", Unit::Number),
        ],
        rows: measured.names().map(row).collect(),
    }
}
