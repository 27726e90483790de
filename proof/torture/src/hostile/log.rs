//! A tracing subscriber that panics or stalls. It may cost nothing but a line of the log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::panics::panic_on_purpose;

static IS_HOSTILE: AtomicBool = AtomicBool::new(false);
static LINES: AtomicU64 = AtomicU64::new(0);

/// Returns how many lines met a hostile subscriber.
pub(crate) fn lines() -> u64 {
    LINES.load(Relaxed)
}

/// Makes the subscriber hostile from now on, or silent.
pub(crate) fn set_hostile(is_hostile: bool) {
    IS_HOSTILE.store(is_hostile, Relaxed);
}

/// Installs the subscriber for the whole process.
pub(crate) fn install(seed: u64) {
    // Nobody else installs one.
    let _ = tracing::subscriber::set_global_default(Hostile { seeds: AtomicU64::new(seed) });
}

struct Hostile {
    seeds: AtomicU64,
}

impl Subscriber for Hostile {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        if !IS_HOSTILE.load(Relaxed) {
            return;
        }
        LINES.fetch_add(1, Relaxed);
        let seed = self.seeds.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let mut random = Rng::with_seed(seed);
        match random.u8(..8) {
            0 | 1 => panic_on_purpose(random.bool()),
            2 => thread::sleep(Duration::from_micros(random.u64(..5_000))),
            _ => {}
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
