//! The probes that `late-wake` runs, and how it runs them.
//!
//! Threads pin themselves: the loop to the first CPU, and the posting thread to the last. A parked
//! loop is left alone for 400 µs between two posts, so that it sleeps again. The probe counts
//! whether it did.

use std::time::Duration;

use super::parts::{DEFERRED, PARKED, SPINNING};
use crate::probe::{Probe, Source};

pub(super) const TASK: &str = "wakeful, a task";
pub(super) const THIS_TURN: &str = "wakeful, run_this_turn";
pub(super) const NEXT_TURN: &str = "wakeful, run_next_turn";
pub(super) const INTERNAL: &str = "libevent, posts by an internal event";

pub(super) const POST: &str = "wakeful, LoopHandle::post";
pub(super) const CHANNEL: &str = "wakeful, a task by a channel";
pub(super) const EVENTFD: &str = "a bare eventfd";
/// The same as [`EVENTFD`]. The difference between the two is the noise.
pub(super) const EVENTFD_AGAIN: &str = "a bare eventfd (again)";

/// The pause between two posts to a parked loop: ten times what it takes to wake it.
pub(super) const PARKED_GAP: Duration = Duration::from_micros(400);
pub(super) const SPINNING_GAP: Duration = Duration::from_micros(20);
/// The pause before each pair of posts of the public case.
pub(super) const DEFERRED_GAP: Duration = Duration::from_millis(50);

/// Returns all probes, each part in the order of its table.
pub(super) fn all() -> Vec<Probe> {
    let mut probes: Vec<Probe> = DEFERRED_WORK.iter().map(|probe| probe.of(DEFERRED)).collect();
    probes.extend(POSTS.iter().filter_map(|(probe, _)| Some(probe.as_ref()?.of(PARKED))));
    probes.extend(POSTS.iter().filter_map(|(_, probe)| Some(probe.as_ref()?.of(SPINNING))));
    probes
}

/// Returns the probes of a part that are peers: neither wakeful's nor bare.
pub(super) fn peers(part: &str) -> Vec<String> {
    let is_peer = |probe: &Probe| probe.part == part && probe.peer.is_some();
    all().into_iter().filter(is_peer).map(|probe| probe.name).collect()
}

/// A probe in short: its name, the name by which `--peers` selects it, and its variant.
#[derive(Clone, Copy)]
struct Short {
    name: &'static str,
    peer: Option<&'static str>,
    program: &'static str,
    variant: &'static str,
    quick: bool,
}

const fn short(
    name: &'static str,
    peer: Option<&'static str>,
    program: &'static str,
    variant: &'static str,
) -> Short {
    Short { name, peer, program, variant, quick: true }
}

/// Excludes a probe from quick runs.
const fn long(short: Short) -> Short {
    Short { quick: false, ..short }
}

const TOKIO: Option<&str> = Some("tokio-current-thread");
const TOKIO_MULTI_THREAD: Option<&str> = Some("tokio-multi-thread");

const DEFERRED_WORK: &[Short] = &[
    short(TASK, None, "late-wake-wakeful", "task"),
    short(THIS_TURN, None, "late-wake-wakeful", "this-turn"),
    short(NEXT_TURN, None, "late-wake-wakeful", "next-turn"),
    short("tokio, current-thread", TOKIO, "late-wake-tokio", "current-thread"),
    short("tokio, multi-thread", TOKIO_MULTI_THREAD, "late-wake-tokio", "multi-thread"),
    short("asio, post", Some("asio"), "late-wake-asio", "post"),
    long(short("asio, defer", Some("asio"), "late-wake-asio", "defer")),
    short("libuv, an idle handle", Some("libuv"), "late-wake-libuv", "default"),
    short("libevent, posts by a normal event", Some("libevent"), "late-wake-libevent", "normal"),
    short(INTERNAL, Some("libevent"), "late-wake-libevent", "internal"),
];

/// Probes that post to a parked loop, and the same for a spinning loop if there is one.
const POSTS: &[(Option<Short>, Option<Short>)] = &[
    (
        Some(short(EVENTFD, None, "late-wake-eventfd", "park")),
        Some(short(EVENTFD, None, "late-wake-eventfd", "spin")),
    ),
    (
        Some(short(POST, None, "late-wake-wakeful", "run")),
        Some(short(POST, None, "late-wake-wakeful", "run-spin")),
    ),
    (
        Some(short(CHANNEL, None, "late-wake-wakeful", "channel")),
        Some(short(CHANNEL, None, "late-wake-wakeful", "channel-spin")),
    ),
    (
        Some(short("tokio, Handle::spawn", TOKIO, "late-wake-tokio", "current-thread")),
        Some(short("tokio+burn, Handle::spawn", TOKIO, "late-wake-tokio", "current-thread-burn")),
    ),
    (
        Some(short("tokio, mpsc", TOKIO, "late-wake-tokio", "current-thread-mpsc")),
        Some(short("tokio+burn, mpsc", TOKIO, "late-wake-tokio", "current-thread-burn-mpsc")),
    ),
    (
        Some(short(
            "tokio multi-thread, Handle::spawn",
            TOKIO_MULTI_THREAD,
            "late-wake-tokio",
            "multi-thread",
        )),
        None,
    ),
    (
        Some(long(short(
            "tokio multi-thread, mpsc",
            TOKIO_MULTI_THREAD,
            "late-wake-tokio",
            "multi-thread-mpsc",
        ))),
        None,
    ),
    (Some(short("glommio, shared_channel", Some("glommio"), "late-wake-glommio", "default")), None),
    (Some(short("monoio, a channel", Some("monoio"), "late-wake-monoio", "uring")), None),
    (
        Some(long(short("monoio+epoll, a channel", Some("monoio"), "late-wake-monoio", "epoll"))),
        None,
    ),
    (Some(short("compio, a channel", Some("compio"), "late-wake-compio", "default")), None),
    (
        Some(short(EVENTFD_AGAIN, None, "late-wake-eventfd", "park")),
        Some(short(EVENTFD_AGAIN, None, "late-wake-eventfd", "spin")),
    ),
];

impl Short {
    fn of(&self, part: &'static str) -> Probe {
        let (measure, gap) = match part {
            DEFERRED => ("deferred", DEFERRED_GAP),
            PARKED => ("post", PARKED_GAP),
            _ => ("post", SPINNING_GAP),
        };
        let gap = gap.as_micros().to_string();
        let arguments = [
            "--measure",
            measure,
            "--variant",
            self.variant,
            "--gap-us",
            &gap,
            "--loop-cpu",
            "{first}",
            "--poster-cpu",
            "{last}",
        ];
        let in_c = ["late-wake-asio", "late-wake-libuv", "late-wake-libevent"];
        Probe {
            name: self.name.to_owned(),
            part,
            peer: self.peer,
            program: self.program,
            source: if in_c.contains(&self.program) {
                Source::C
            } else {
                // The feature is named like the part of the program's name after the last hyphen.
                let feature = self.program.rsplit('-').next().unwrap_or_default();
                Source::Cargo { package: "late-wake", features: feature }
            },
            arguments: arguments.map(str::to_owned).to_vec(),
            quick: self.quick,
            ..Probe::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_within_a_part_and_what_is_claimed_of_is_there() {
        let probes = all();
        let names: BTreeSet<_> =
            probes.iter().map(|probe| (probe.part, probe.name.clone())).collect();
        assert_eq!(names.len(), probes.len());
        for (part, name) in [
            (DEFERRED, TASK),
            (DEFERRED, THIS_TURN),
            (DEFERRED, NEXT_TURN),
            (DEFERRED, INTERNAL),
            (PARKED, POST),
            (PARKED, EVENTFD),
            (PARKED, EVENTFD_AGAIN),
            (SPINNING, POST),
            (SPINNING, EVENTFD_AGAIN),
        ] {
            let probe = probes.iter().find(|probe| probe.part == part && probe.name == name);
            assert!(probe.is_some_and(|probe| probe.quick), "{part}: {name}");
        }
    }

    #[test]
    fn wakeful_and_what_is_bare_are_no_peers() {
        for part in [DEFERRED, PARKED, SPINNING] {
            let peers = peers(part);
            assert!(!peers.is_empty());
            assert!(peers.iter().all(|name| !name.contains("wakeful") && !name.contains("bare")));
        }
    }
}
