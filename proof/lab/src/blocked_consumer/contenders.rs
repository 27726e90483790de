//! The lists that `blocked-consumer` measures, and the arguments of the probe for each.

use std::time::Duration;

use super::parts::{ALONE, HOG, POINTS, QUOTA, SERVICE, STEPS, STRESS, SWEEP};
use crate::probe::{Probe, Source};

pub(super) const KERNEL: &str = "the kernel's epoll, eventfds";
pub(super) const READY: &str = "wakeful, a node an event";
/// The same as [`READY`]. The difference between the two is the noise.
pub(super) const AGAIN: &str = "wakeful, a node an event (again)";
pub(super) const BOXED: &str = "wakeful, a boxed node an event";
pub(super) const COUNTS: &str = "wakeful, a count a source";
pub(super) const READ_WRITE: &str = "read-write lock (the kernel's until 6.17)";
pub(super) const SPINLOCK: &str = "spinlock (the kernel's since 6.18)";
pub(super) const DEQUE: &str = "a mutexed VecDeque";
const SEG_QUEUE: &str = "crossbeam's SegQueue";
const CONCURRENT: &str = "concurrent-queue";
const TOKIO: &str = "tokio's unbounded mpsc";
const VYUKOV: &str = "Vyukov's linked queue";

/// The name in tables, and the probe's argument.
const LISTS: [(&str, &str); 12] = [
    (KERNEL, "kernel-epoll"),
    (READY, "ready-queue"),
    (AGAIN, "ready-queue"),
    (BOXED, "ready-queue-boxed"),
    (COUNTS, "ready-queue-counts"),
    (READ_WRITE, "read-write-locked"),
    (SPINLOCK, "spinlocked"),
    (DEQUE, "mutexed-deque"),
    (SEG_QUEUE, "seg-queue"),
    (CONCURRENT, "concurrent-queue"),
    (TOKIO, "tokio-mpsc"),
    (VYUKOV, "vyukov"),
];

/// The lists in user space that carry one event at a time, and are not wakeful's.
pub(super) const OTHERS: [&str; 7] =
    [READ_WRITE, SPINLOCK, DEQUE, SEG_QUEUE, CONCURRENT, TOKIO, VYUKOV];

pub(super) const SERVICE_WAKEFUL: &str = "wakeful, LoopHandle::post";
pub(super) const SERVICE_TOKIO: &str = "tokio, current-thread, mpsc";
pub(super) const SERVICE_READY: &str = "an epoll loop, wakeful's ready queue";
pub(super) const SERVICE_DEQUE: &str = "an epoll loop, a mutexed VecDeque";

const SERVICES: [(&str, &[&str]); 5] = [
    (SERVICE_WAKEFUL, &["--server", "wakeful"]),
    (SERVICE_TOKIO, &["--server", "tokio"]),
    (SERVICE_READY, &["--server", "epoll", "--contender", "ready-queue"]),
    (SERVICE_DEQUE, &["--server", "epoll", "--contender", "mutexed-deque"]),
    ("an epoll loop, tokio's unbounded mpsc", &["--server", "epoll", "--contender", "tokio-mpsc"]),
];

/// Returns all probes, each part in the order of its table.
pub(super) fn all() -> Vec<Probe> {
    let mut all = Vec::new();
    for (producers, part) in STRESS {
        let quick = producers == 8 || producers == 32;
        all.extend(of_lists(part, &["throughput"], quick));
    }
    let alone = ["throughput", "--producers", "1", "--consumer", "alone"];
    all.extend(of_lists(ALONE, &alone, true));
    all.extend(of_lists(SWEEP, &["sweep"], true));
    let points = of_lists(POINTS, &["priority", "--by", "points"], true);
    // The points in the kernel's code have no names.
    all.extend(points.into_iter().filter(|probe| probe.name != KERNEL));
    let steps = ["priority", "--by", "steps", "--deadline-ms", "20"];
    all.extend(of_lists(STEPS, &steps, true));
    all.extend(of_lists(QUOTA, &["priority", "--by", "quota"], true));
    all.extend(of_lists(HOG, &["priority", "--by", "hog"], false));
    all.extend(SERVICES.iter().map(|(name, arguments)| {
        let words = ["service"].iter().chain(*arguments);
        probe(name, SERVICE, words.copied())
    }));
    all.retain(|probe| probe.name != AGAIN || probe.arguments[0] == "throughput");
    all
}

fn of_lists(part: &'static str, mode: &[&str], quick: bool) -> Vec<Probe> {
    let one = |(name, contender): &(&str, &str)| {
        let mut words: Vec<&str> = mode.iter().copied().chain(["--contender", contender]).collect();
        // This contender takes a hundred times as long as the others.
        if *contender == "tokio-mpsc" && mode.first() == Some(&"throughput") {
            words.extend(["--one-in", "20"]);
        }
        Probe { quick, ..probe(name, part, words.into_iter()) }
    };
    LISTS.iter().map(one).collect()
}

fn probe<'a>(name: &str, part: &'static str, words: impl Iterator<Item = &'a str>) -> Probe {
    Probe {
        name: name.to_owned(),
        part,
        program: "ready-list",
        source: Source::Cargo { package: "ready-list", features: "" },
        arguments: words.map(str::to_owned).collect(),
        patience: Duration::from_secs(30),
        ..Probe::default()
    }
}
