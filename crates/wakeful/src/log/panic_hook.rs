//! The panic hook. It is like the standard library's, but neither blocks nor panics.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::{self, Location, PanicHookInfo};
use std::thread;
use std::time::Duration;

use super::LossyWriter;
use crate::sys::once_per_second::OncePerSecond;

/// The number of places that are limited separately. Panics at different places share a slot if
/// there are more places.
const PLACES: usize = 16;

/// How long a process that is about to abort waits for its last line.
const BEFORE_AN_ABORT: Duration = Duration::from_millis(500);

/// Replaces the process's panic hook with one that writes to `log`.
///
/// Requests may cause panics. So the hook reports panics at one place in the code at most once per
/// second, with their number. There are only 16 such limits: two places may share one, and then
/// their panics are counted together. The hook prints a backtrace when the default hook would
/// (`RUST_BACKTRACE=1`).
///
/// A panic that aborts the process is always reported, and the hook waits up to half a second until
/// the report is written. With `panic = "abort"` that is every panic. Otherwise it is a panic of
/// `core` itself, such as one in a drop while another panic unwinds.
///
/// # Panics
/// If this thread is panicking.
pub fn report_panics(log: &LossyWriter) {
    let log = log.clone();
    let limits: [OncePerSecond; PLACES] = std::array::from_fn(|_| OncePerSecond::new());
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map_or(0, |place| place.line() as usize + place.file().len());
        let is_last = is_abort(info.location());
        let count = limits[place % PLACES].pass().or(is_last.then_some(1));
        let Some(count) = count else { return };
        // A `LossyWriter` does not fail.
        let _ = (&log).write(describe(info, count).as_bytes());
        if is_last {
            log.flush_within(BEFORE_AN_ABORT);
        }
    }));
}

fn describe(info: &PanicHookInfo<'_>, count: u64) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let mut text = format!("thread '{name}' panicked");
    // Writing to a string does not fail.
    if let Some(location) = info.location() {
        let _ = write!(text, " at {location}");
    }
    if count > 1 {
        let _ = write!(text, " ({count} panics here since the last report)");
    }
    let _ = writeln!(text, ":\n{}", message(info.payload()));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        let _ = writeln!(text, "stack backtrace:\n{backtrace}");
    }
    text
}

fn message(payload: &(dyn Any + Send)) -> &str {
    crate::sys::panics::message(payload).unwrap_or("Box<dyn Any>")
}

/// Does a panic at this place abort the process? Every panic does if the program is built with
/// `panic = "abort"`. A panic of `core` itself, such as one in a drop during an unwind, aborts the
/// process after the hook. (Stable Rust does not tell yet whether a panic can unwind.)
fn is_abort(location: Option<&Location<'_>>) -> bool {
    cfg!(panic = "abort")
        || location.is_some_and(|location| location.file().ends_with("core/src/panicking.rs"))
}
