//! How many clients meet how many workers, and in what way.

use std::time::Duration;

/// One connection is in flight, and all workers are asleep before it.
pub(super) const ONE: Case = Case {
    pause: Duration::from_micros(100),
    ..back_to_back("1 client, 100 µs apart, 8 loops", 1, 8)
};
/// The public case, in full with as many connections.
pub(super) const PUBLIC: Case = back_to_back("2 clients, 8 loops", 2, 8);
/// No worker has time to sleep. The load is above that at which wakeful concentrates its
/// connections. It lasts for some seconds before the measurement, so that all loops are active.
pub(super) const SATURATED: Case = Case {
    before: 20_000,
    work: Duration::from_micros(200),
    ..back_to_back("16 clients, 200 µs of work, 8 loops", 16, 8)
};

/// All cases, in the order of the tables.
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
    /// The number of connections just before those that count.
    pub(super) before: usize,
    /// The pause between the end of a connection and the next one of the same client.
    pub(super) pause: Duration,
    /// The CPU time of a request, in addition to the time of answering it.
    pub(super) work: Duration,
}

pub(super) const fn back_to_back(name: &'static str, clients: usize, workers: usize) -> Case {
    let (pause, work) = (Duration::ZERO, Duration::ZERO);
    Case { name, clients, workers, connections: 10_000, before: 0, pause, work }
}
