//! Starts threads with an error at the limit of threads, where `std::thread::spawn` panics.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Starts a thread.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(run).map_err(|error| explain(name, &error))
}

/// Like [`start`], for [`std::thread::scope`]. ([`Scope::spawn`] panics if no thread can be
/// started.)
pub(crate) fn start_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let started = Builder::new().name(name.to_owned()).spawn_scoped(scope, run);
    started.map_err(|error| explain(name, &error))
}

fn explain(name: &str, error: &io::Error) -> io::Error {
    let text = format!(
        "cannot start the thread {name:?}: {error}; a limit of threads (ulimit -u, pids.max, kernel.threads-max) or of memory may be reached"
    );
    io::Error::new(error.kind(), text)
}
