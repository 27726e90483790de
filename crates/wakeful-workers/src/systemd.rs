//! What a master tells its service manager. Without one (`NOTIFY_SOCKET`) nothing happens.

use std::env;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use sd_notify::NotifyState;

use crate::sys;

/// How the names begin of those sockets (`LISTEN_FDNAMES`) that a master has given its service
/// manager to keep. They are not for others.
pub const KEPT: &str = "wakeful,";

/// All workers accept.
pub(crate) fn ready() {
    // A new master after an upgrade is another process than the one that the manager started.
    tell(&[NotifyState::MainPid(std::process::id()), NotifyState::Ready]);
}

/// This master is in charge, whoever else has said so.
pub(crate) fn still_in_charge() {
    tell(&[NotifyState::MainPid(std::process::id())]);
}

/// Workers are being replaced. [`ready`] says when that is over.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Does it keep sockets for a master that comes later? (`FileDescriptorStoreMax=`; it says so since
/// version 254.)
pub(crate) fn keeps_sockets() -> bool {
    env::var("FDSTORE").is_ok_and(|most| most.parse::<u32>().is_ok_and(|most| most > 0))
}

/// Gives it a socket to keep, which [`kept`] has in the next master. `false`: it was not told.
pub(crate) fn keep(listener: &str, socket: BorrowedFd<'_>) -> bool {
    let name = kept_name(listener);
    let told =
        sd_notify::notify_with_fds(&[NotifyState::FdStore, NotifyState::FdName(&name)], &[socket]);
    told.inspect_err(|error| tracing::warn!(%error, "the service manager cannot keep a socket"))
        .is_ok()
}

/// Nobody asks for this listener's socket any more. The name is the listener's own, or the
/// manager's.
pub(crate) fn forget(listener: &str) {
    let name = match listener.starts_with(KEPT) {
        true => listener.to_owned(),
        false => kept_name(listener),
    };
    tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name)]);
}

/// What a master before this one has given it to keep, by [`kept_name`].
pub(crate) fn kept() -> Vec<(String, OwnedFd)> {
    let passed = sd_notify::listen_fds_with_names().into_iter().flatten();
    let (numbers, names): (Vec<_>, Vec<_>) =
        passed.filter(|(_, name)| name.starts_with(KEPT)).unzip();
    match sys::take_descriptors(&numbers) {
        Ok(taken) => names.into_iter().zip(taken.unwrap_or_default()).collect(),
        Err(error) => {
            tracing::warn!(%error, "the sockets that the service manager kept cannot be had");
            Vec::new()
        }
    }
}

/// As it names the socket of a listener: it takes no colon.
pub(crate) fn kept_name(listener: &str) -> String {
    format!("{KEPT}{}", listener.replace(':', ","))
}

/// The master runs, and no loop of its workers is stuck.
pub(crate) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// How often it wants to hear that. `None`: never. The variables name the first master's process:
/// a successor is not it, but is watched in its place.
pub(crate) fn watchdog(is_successor: bool) -> Option<Duration> {
    let limit = if is_successor {
        let microseconds = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
        Some(Duration::from_micros(microseconds)).filter(|limit| !limit.is_zero())
    } else {
        sd_notify::watchdog_enabled()
    };
    // Half of the time after which it gives the service up, as its documentation advises.
    limit.map(|limit| limit / 2)
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
