//! Whether threads spin, and how much.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use wakeful::idle::Adaptive;

static SETTINGS: OnceLock<Adaptive> = OnceLock::new();
/// Something here has panicked, or is refused by a seccomp filter: from then on everything is as
/// without this crate.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// The first ones stay.
pub(crate) fn set(settings: Adaptive) {
    let _ = SETTINGS.set(settings);
}

/// Two loads.
#[inline]
pub(crate) fn enabled() -> Option<Adaptive> {
    SETTINGS.get().copied().filter(|_| !BROKEN.load(Ordering::Relaxed))
}

pub(crate) fn disable() {
    BROKEN.store(true, Ordering::Relaxed);
}
