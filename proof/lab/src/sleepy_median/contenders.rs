//! The servers of `sleepy-median`.

use crate::contender::{Contender, wakeful_with};
use crate::lab::Lab;

pub(super) const ADAPTIVE: &str = "wakeful, adaptive";
/// The same as [`ADAPTIVE`]. The difference between the two is the noise.
pub(super) const ADAPTIVE_AGAIN: &str = "wakeful, adaptive (again)";
pub(super) const PARKING: &str = "wakeful, parking";
pub(super) const PARKING_AGAIN: &str = "wakeful, parking (again)";
pub(super) const SPINNING: &str = "wakeful, spinning";
const BUSY_POLL: &str = "wakeful, busy-poll";
const KEEP_WARM: &str = "wakeful, keep-warm";
pub(super) const HOLD: &str = "wakeful, hold";
pub(super) const FRUGAL: &str = "wakeful, adaptive, hit rate 0.6";
pub(super) const PATIENT: &str = "wakeful, adaptive, windows up to 3 ms";

pub(super) const TOKIO: &str = "tokio-current-thread";
/// The same program under `wakeful awake`.
pub(super) const TOKIO_AWAKE: &str = "tokio-current-thread, awake";
const TOKIO_THREADS: &str = "tokio-multi-thread";
const TOKIO_THREADS_AWAKE: &str = "tokio-multi-thread, awake";
pub(super) const BURN: &str = "tokio-current-thread+burn";
pub(super) const EPOLL_SPIN: &str = "epoll+spin";

/// The peers that claims name.
const NAMED: [&str; 3] = [TOKIO, BURN, EPOLL_SPIN];

/// The values of `--max-cpu`, and the name of the contender with each.
pub(super) const CAPS: [(&str, &str); 5] = [
    ("0", "wakeful, max_cpu 0"),
    ("0.1", "wakeful, max_cpu 0.1"),
    ("0.3", "wakeful, max_cpu 0.3"),
    ("0.5", "wakeful, max_cpu 0.5"),
    ("1", "wakeful, max_cpu 1"),
];
/// The cap about which a claim is made, and the name of that contender.
pub(super) const CAP: (f64, &str) = (0.3, CAPS[2].1);

/// Returns wakeful's echo service with a policy. `name` is its name in tables.
pub(super) fn policy(lab: &Lab<'_>, name: &str) -> Contender {
    let flags: &[&str] = match name {
        FRUGAL => &["--hit-rate", "0.6"],
        PATIENT => &["--max-window", "3ms"],
        _ => match CAPS.iter().find(|(_, capped)| *capped == name) {
            Some((cap, _)) => &["--max-cpu", cap],
            None => &[],
        },
    };
    let idle = match name {
        PARKING | PARKING_AGAIN => "park",
        SPINNING => "spin",
        BUSY_POLL => "busy-poll",
        KEEP_WARM => "keep-warm",
        HOLD => "hold",
        _ => "adaptive",
    };
    wakeful_with(&lab.program, name, "echo", idle, flags)
}

/// Returns all policies, twice where the difference shows the noise, and the peers that claims
/// name.
pub(super) fn judged(lab: &Lab<'_>) -> Vec<Contender> {
    let names = [ADAPTIVE, ADAPTIVE_AGAIN, PARKING, SPINNING, BUSY_POLL, KEEP_WARM, HOLD];
    let policies = names.into_iter().map(|name| policy(lab, name));
    policies.chain(peers(lab, |name| NAMED.contains(&name))).collect()
}

/// Returns the servers that hold CPUs, or for which CPUs are held, and the ones to compare them
/// with.
pub(super) fn held(lab: &Lab<'_>) -> Vec<Contender> {
    let policies = [HOLD, SPINNING, PARKING, PARKING_AGAIN, ADAPTIVE];
    let mut all = some(lab, &policies, &[TOKIO, BURN, TOKIO_THREADS]);
    for (name, held) in [(TOKIO, TOKIO_AWAKE), (TOKIO_THREADS, TOKIO_THREADS_AWAKE)] {
        all.extend(peers(lab, |peer| peer == name).map(|peer| peer.awake(&lab.program, held)));
    }
    all
}

/// Returns the other peers.
pub(super) fn field(lab: &Lab<'_>) -> Vec<Contender> {
    peers(lab, |name| !NAMED.contains(&name)).collect()
}

/// Returns wakeful with these policies, and the peers with these names.
pub(super) fn some(lab: &Lab<'_>, policies: &[&str], peers_named: &[&str]) -> Vec<Contender> {
    let ours = policies.iter().map(|name| policy(lab, name));
    ours.chain(peers(lab, |name| peers_named.contains(&name))).collect()
}

fn peers<'a>(
    lab: &'a Lab<'_>,
    wanted: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = Contender> + 'a {
    lab.peers.iter().filter(move |peer| wanted(&peer.name)).cloned()
}
