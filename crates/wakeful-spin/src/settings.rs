//! Whether threads spin, and how much.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use wakeful::idle::Adaptive;

static SETTINGS: OnceLock<Adaptive> = OnceLock::new();
/// Set if this crate has panicked, or a seccomp filter refuses one of its calls. From then on,
/// every wait behaves as without this crate.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// The first settings stay in force.
pub(crate) fn set(settings: Adaptive) {
    let _ = SETTINGS.set(settings);
}

/// Returns the settings if threads may spin. This costs only two loads.
#[inline]
pub(crate) fn enabled() -> Option<Adaptive> {
    SETTINGS.get().copied().filter(|_| !BROKEN.load(Ordering::Relaxed))
}

pub(crate) fn disable() {
    BROKEN.store(true, Ordering::Relaxed);
}
