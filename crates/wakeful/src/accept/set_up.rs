//! What each loop of a server does before any of them accepts.

use std::fmt;
use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, mpsc};

use crate::event_loop::LoopHandle;
use crate::group::early_end;
use crate::heartbeat::Heartbeats;

type Run = dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<()>>>> + Send + Sync;

/// A function that makes a future on each loop. The future is awaited there.
pub(super) struct SetUp(Box<Run>);

impl SetUp {
    pub(super) fn new<S, F>(set_up: S) -> Self
    where
        S: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<()>> + 'static,
    {
        Self(Box::new(move || Box::pin(set_up())))
    }
}

impl fmt::Debug for SetUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetUp")
    }
}

/// Runs all of `set_ups` on each loop, in their order, and blocks this thread until they are done.
/// The `heartbeats` say so, because a master takes a task that ends its process for one that served
/// a client.
///
/// # Errors
/// A set-up fails or panics; a loop has ended; the process is told to end.
pub(super) fn run(
    set_ups: Vec<SetUp>,
    loops: &[LoopHandle],
    heartbeats: Option<&Heartbeats>,
) -> io::Result<()> {
    if set_ups.is_empty() {
        return Ok(());
    }
    if let Some(heartbeats) = heartbeats {
        heartbeats.begin_set_up();
    }
    let set_ups = Arc::new(set_ups);
    let (done, results) = mpsc::channel();
    for handle in loops {
        let (set_ups, mut teller) = (set_ups.clone(), Teller::new(done.clone()));
        let set_up = move || async move {
            let mut result = Ok(());
            for SetUp(set_up) in &*set_ups {
                if result.is_ok() {
                    result = set_up().await;
                }
            }
            teller.tells(result);
        };
        handle.spawn(set_up).map_err(|_| io::Error::other("an event loop has ended"))?.detach();
    }
    let tell = move || {
        // An error means that nobody waits for the result any more.
        let _ = done.send(Err(early_end::error()));
    };
    let _listening = early_end::listen(Box::new(tell));
    for _ in loops {
        results.recv().map_err(|_| has_panicked())??;
    }
    if let Some(heartbeats) = heartbeats {
        heartbeats.end_set_up();
    }
    Ok(())
}

/// Sends the result of one loop's set-up when it is dropped, so that a panic is also reported at
/// once.
struct Teller {
    done: mpsc::Sender<io::Result<()>>,
    result: io::Result<()>,
}

impl Teller {
    fn new(done: mpsc::Sender<io::Result<()>>) -> Self {
        Self { done, result: Err(has_panicked()) }
    }

    /// This is a method because a closure that assigned to `self.result` would capture nothing but
    /// that field.
    fn tells(&mut self, result: io::Result<()>) {
        self.result = result;
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        // After the first error nobody receives the results.
        let _ = self.done.send(mem::replace(&mut self.result, Ok(())));
    }
}

fn has_panicked() -> io::Error {
    io::Error::other("the set-up of an event loop has panicked")
}
