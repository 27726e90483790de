//! The tables of `blocked-consumer`: medians of the rounds, with the lowest and the highest.

use wakeful_load::internals::results::{Cell, Column, Table, Unit};

use super::contenders;
use super::found::{Found, Priority, Stress};
use super::parts::{ALONE, HOG, POINTS, QUOTA, SERVICE, STEPS, STRESS, SWEEP};
use crate::interleaved::Measured;

pub(super) fn tables(found: &Found) -> Vec<Table> {
    let tables = [
        stress(found),
        costs(found),
        single(found),
        stopped(&found.points, POINTS, POINTS_NOTE),
        stopped(&found.steps, STEPS, STEPS_NOTE),
        preempted(&found.quota, QUOTA, QUOTA_NOTE),
        preempted(&found.hog, HOG, HOG_NOTE),
        service(found),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

const STRESS_NOTE: &str = "Each column has a number of producers; the cells are events a millisecond, and higher is better. Producer i runs on CPU i mod n, the one \
     consumer wherever the scheduler puts it. The kernel's epoll and `a count a source` take several events of a source at once, and each of them \
     counts. `wakeful, a node an event`, the two kernel designs and Vyukov's queue have a node for each event from the beginning, and allocate \
     nothing; the other lists that carry one event at a time allocate during the run. Tokio's channel gets one in 20 of the events.";

const POINTS_NOTE: &str = "All threads share one CPU: the consumer at SCHED_FIFO, a producer at SCHED_IDLE that is stopped in its push, and a busy loop of ordinary \
     priority. Longest drain: how long an awake consumer took to get all events whose push was complete. Longest post: the time from the \
     beginning of another producer's push until a sleeping consumer had that event. Waited: how many drains or posts ended only because the \
     stopped producer was released at the deadline of 200 ms. Of: how many drains and posts there were. Good values are microseconds, and 0 that waited.";

const STEPS_NOTE: &str = "The same columns. Here the producer is stopped after each instruction of its push in turn (at most 200), with the processor's trap flag. The \
     deadline is 20 ms. The trap flag stops no producer inside the kernel: without full preemption a lock holder keeps its CPU there.";

const QUOTA_NOTE: &str = "Four producers at SCHED_IDLE, in a control group that gets 2 ms of each 100 ms, and a consumer at SCHED_FIFO on the same CPU that drains now \
     and then. Let go: drains that reached 200 ms, and ended only because the producers were given the CPU. Good is a longest drain of \
     microseconds, and 0 in `over 1 ms` and `let go`.";

const HOG_NOTE: &str = "The same columns, beside a busy loop of ordinary priority and without a quota. Chance decides whether a producer is interrupted in its push.";

fn text(head: &str) -> Column {
    Column::new(head, Unit::Text)
}

fn stress(found: &Found) -> Table {
    let mut columns = vec![text("ready list")];
    columns.extend(STRESS.iter().map(|(_, part)| Column::new(part, Unit::Number)));
    let names: Vec<&str> = found.stress.iter().map(Measured::names).fold(Vec::new(), with_new);
    let row = |name: &&str| {
        let cell = |measured: &Measured<Stress>| measured.cell(name, |one| Some(one.events_per_ms));
        std::iter::once(Cell::text(*name)).chain(found.stress.iter().map(cell)).collect()
    };
    Table {
        title: "Events a millisecond, many producers and one consumer".to_owned(),
        note: STRESS_NOTE.to_owned(),
        columns,
        rows: names.iter().map(row).collect(),
    }
}

/// Adds the names that are new, so that names are in the order of their first part.
fn with_new<'a>(mut all: Vec<&'a str>, some: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    for name in some {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn costs(found: &Found) -> Table {
    let measured = &found.stress[0];
    let row = |name: &str| {
        vec![
            Cell::text(name),
            measured.cell(name, |one| one.rings),
            measured.cell(name, |one| Some(one.allocations_per_event)),
        ]
    };
    Table {
        title: format!("What that takes, with {}", STRESS[0].1),
        note: "Rings: writes to the eventfd that wakes the consumer, in the whole run. Allocations an event: how often memory was allocated, divided by the \
     events. Lower is better."
            .to_owned(),
        columns: vec![
            text("ready list"),
            Column::new("rings", Unit::Count),
            Column::new("allocations an event", Unit::Number),
        ],
        rows: measured.names().map(row).collect(),
    }
}

fn single(found: &Found) -> Table {
    let names = with_new(found.alone.names().collect(), found.sweep.names());
    let row = |name: &&str| {
        vec![
            Cell::text(*name),
            found.alone.cell(name, |one| Some(one.events_per_ms)),
            found.sweep.cell(name, |one| Some(one.operations_per_second)),
        ]
    };
    Table {
        title: "Without contention".to_owned(),
        note: format!(
            "Events/ms: {ALONE}. Operations/s: events that the one worker takes in {SWEEP}. Higher is better."
        ),
        columns: vec![
            text("ready list"),
            Column::new("events/ms, a CPU each", Unit::Number),
            Column::new("operations/s, sweep", Unit::PerSecond),
        ],
        rows: names.iter().map(row).collect(),
    }
}

fn nanoseconds(microseconds: Option<f64>) -> Option<f64> {
    Some(microseconds? * 1e3)
}

fn is_measured(measured: &Measured<Priority>, name: &str) -> bool {
    measured.of(name).iter().flatten().any(|one| one.skipped.is_none())
}

fn stopped(measured: &Measured<Priority>, part: &str, note: &str) -> Table {
    let row = |name: &str| {
        vec![
            Cell::text(name),
            measured.cell(name, |one| nanoseconds(one.worst_drain_us)),
            measured.cell(name, |one| Some(one.drains_rescued)),
            measured.cell(name, |one| nanoseconds(one.worst_post_us)),
            measured.cell(name, |one| Some(one.posts_rescued)),
            measured.cell(name, |one| Some(one.trials)),
        ]
    };
    Table {
        title: format!("The longest wait: {part}"),
        note: note.to_owned(),
        columns: vec![
            text("ready list"),
            Column::new("longest drain", Unit::Nanoseconds),
            Column::new("drains waited", Unit::Count),
            Column::new("longest post", Unit::Nanoseconds),
            Column::new("posts waited", Unit::Count),
            Column::new("of", Unit::Count),
        ],
        rows: measured.names().filter(|name| is_measured(measured, name)).map(row).collect(),
    }
}

fn preempted(measured: &Measured<Priority>, part: &str, note: &str) -> Table {
    let row = |name: &str| {
        vec![
            Cell::text(name),
            measured.cell(name, |one| nanoseconds(one.worst_drain_us)),
            measured.cell(name, |one| one.drains_over_1ms),
            measured.cell(name, |one| Some(one.drains_rescued)),
            measured.cell(name, |one| Some(one.trials)),
        ]
    };
    Table {
        title: format!("The longest drain: {part}"),
        note: note.to_owned(),
        columns: vec![
            text("ready list"),
            Column::new("longest drain", Unit::Nanoseconds),
            Column::new("over 1 ms", Unit::Count),
            Column::new("let go", Unit::Count),
            Column::new("drains", Unit::Count),
        ],
        rows: measured.names().filter(|name| is_measured(measured, name)).map(row).collect(),
    }
}

fn service(found: &Found) -> Table {
    let row = |name: &str| {
        let rate = found.service.cell(name, |one| Some(one.requests_per_second));
        vec![Cell::text(name), rate]
    };
    Table {
        title: format!("Requests a second: {SERVICE}"),
        note: "64 connections in one process, each with one request of 64 bytes in flight. The loop runs on the first CPU, the clients on the last, the \
     workers anywhere. Higher is better."
            .to_owned(),
        columns: vec![text("loop, and how replies reach it"), Column::new("requests", Unit::PerSecond)],
        rows: found.service.names().map(row).collect(),
    }
}

/// Returns a note with the reason if the priority parts were not measured.
pub(super) fn skipped(found: &Found) -> Option<String> {
    let all = [&found.points, &found.steps, &found.quota, &found.hog];
    let reason = all.iter().find_map(|measured| {
        measured.of(contenders::READY).iter().flatten().find_map(|one| one.skipped.clone())
    })?;
    Some(format!("Stopped producers were not measured: {reason}."))
}
