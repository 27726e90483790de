use std::io;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::board::{SAY_EVERY, Seat};
use crate::driver::thread::pin_to;
use crate::event_loop::{EventLoopBuilder, LoopHandle};

/// A loop and its thread.
#[derive(Debug)]
pub(super) struct Worker {
    name: String,
    handle: LoopHandle,
    thread: JoinHandle<io::Result<()>>,
    /// Closed when the loop has ended and all that it owned is dropped.
    ended: Receiver<()>,
}

impl Worker {
    pub(super) fn start(
        name: String,
        cpu: Option<usize>,
        settings: EventLoopBuilder,
        seat: Seat,
    ) -> io::Result<Self> {
        let (started, is_started) = mpsc::sync_channel(1);
        let (ends, ended) = mpsc::sync_channel::<()>(1);
        let thread = thread::Builder::new().name(name.clone()).spawn(move || {
            // Dropped last: it tells that everything else is gone.
            let _ends = ends;
            let built = cpu.map_or(Ok(()), |cpu| pin_to([cpu])).and_then(|()| settings.build());
            let mut event_loop = match built {
                Ok(event_loop) => event_loop,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return Ok(());
                }
            };
            let seat = Rc::new(seat);
            if let Some(alarm) = seat.alarm()
                && let Err(error) = event_loop.attend(Box::new(seat.clone()), alarm)
            {
                let _ = started.send(Err(error));
                return Ok(());
            }
            event_loop.look_every(SAY_EVERY, move |spent| seat.say(spent));
            let _ = started.send(Ok(event_loop.handle()));
            event_loop.run()
        })?;
        let handle = is_started
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the loop's thread panicked as it began")))?;
        Ok(Self { name, handle, thread, ended })
    }

    pub(super) fn handle(&self) -> &LoopHandle {
        &self.handle
    }

    pub(super) fn stop(&self) {
        self.handle.stop();
    }

    /// Until the loop has no task, or has ended, or the deadline (if any) has passed. `true`: it had tasks, and they
    /// have ended.
    pub(super) fn wait_until_idle(&self, deadline: Option<Instant>) -> bool {
        let (idle, is_idle) = mpsc::sync_channel(1);
        if self.handle.spawn(move || until_idle(idle)).is_err() {
            return false;
        }
        let had_tasks = match deadline {
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                is_idle.recv_timeout(left).ok()
            }
            None => is_idle.recv().ok(),
        };
        had_tasks.unwrap_or(false)
    }

    pub(super) fn join(self) {
        // The group is dropped on one of its own loops, which ends with the present turn.
        if self.thread.thread().id() == thread::current().id() {
            return;
        }
        if let Err(failure) = outcome(&self.name, self.thread) {
            tracing::error!("{failure}");
        }
    }

    pub(super) fn join_until(self, deadline: Instant) -> Result<(), String> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.ended.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("{} is blocked by one of its tasks, and was left behind", self.name))
            }
            Ok(()) | Err(RecvTimeoutError::Disconnected) => outcome(&self.name, self.thread),
        }
    }
}

fn outcome(name: &str, thread: JoinHandle<io::Result<()>>) -> Result<(), String> {
    match thread.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("{name} had ended with an error: {error}")),
        Err(_) => Err(format!("{name} had panicked")),
    }
}

/// Looks every millisecond whether this task is the loop's last one, and then tells whether it was so from the beginning
/// (`false`). `idle` closes with the loop.
async fn until_idle(idle: mpsc::SyncSender<bool>) {
    let mut had_tasks = false;
    while crate::event_loop::current().is_some_and(|inner| inner.has_other_tasks()) {
        had_tasks = true;
        crate::time::sleep(Duration::from_millis(1)).await;
    }
    // Nobody waits any more if the deadline has passed.
    let _ = idle.try_send(had_tasks);
}
