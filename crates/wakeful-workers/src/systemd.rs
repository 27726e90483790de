//! What a master tells its service manager. Without one (`NOTIFY_SOCKET`) nothing happens.

use std::env;
use std::time::Duration;

use sd_notify::NotifyState;

/// All workers accept.
pub(crate) fn ready() {
    // A new master after an upgrade is another process than the one that the manager started.
    tell(&[NotifyState::MainPid(std::process::id()), NotifyState::Ready]);
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
