//! How many clients meet how many workers, and how.

use std::time::Duration;

/// One connection in flight, and everybody asleep before it.
pub(super) const ONE: Case = Case {
    pause: Duration::from_micros(100),
    ..back_to_back("1 client, 100 µs apart, 8 loops", 1, 8)
};
/// The public case, with as many connections in full.
pub(super) const PUBLIC: Case = back_to_back("2 clients, 8 loops", 2, 8);
/// Nobody has time to sleep. Above the load that wakeful concentrates, and for some seconds before,
/// so that all loops are active.
pub(super) const SATURATED: Case = Case {
    before: 20_000,
    work: Duration::from_micros(200),
    ..back_to_back("16 clients, 200 µs of work, 8 loops", 16, 8)
};

/// All of them, in the order of the tables.
pub(super) const CASES: [Case; 7] = [
    ONE,
    PUBLIC,
    back_to_back("4 clients, 8 loops", 4, 8),
    back_to_back("16 clients, 8 loops", 16, 8),
    SATURATED,
    back_to_back("2 clients, 4 loops", 2, 4),
    back_to_back("2 clients, 2 loops", 2, 2),
];

/// How many clients meet how many workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) clients: usize,
    pub(super) workers: usize,
    pub(super) connections: usize,
    /// So many come just before those that count.
    pub(super) before: usize,
    /// Between the end of a connection and the next one of the same client.
    pub(super) pause: Duration,
    /// The CPU time of a request, beside what answering it takes.
    pub(super) work: Duration,
}

pub(super) const fn back_to_back(name: &'static str, clients: usize, workers: usize) -> Case {
    let (pause, work) = (Duration::ZERO, Duration::ZERO);
    Case { name, clients, workers, connections: 10_000, before: 0, pause, work }
}
