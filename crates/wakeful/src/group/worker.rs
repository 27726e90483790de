use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::watched::{Alone, InGroup};
use crate::balance::board::{SAY_EVERY, Seat};
use crate::event_loop::{EventLoop, EventLoopBuilder, LoopHandle, SleepObserver};
use crate::heartbeat::{EndOfBeats, Heartbeat, Line};
use crate::sys::arenas;
use crate::sys::panics;
use crate::sys::patience::Patience;
use crate::sys::thread::{pin_to, start_thread};
use crate::task::end_main_of_child;

/// A loop and its thread.
#[derive(Debug)]
pub(super) struct Worker {
    name: String,
    handle: LoopHandle,
    thread: JoinHandle<io::Result<()>>,
    /// Whether the group has told the loop to end. Otherwise its end is an error.
    is_told: Arc<AtomicBool>,
    /// Receives a message when the loop has run its last turn, and closes when all that the loop
    /// owned is dropped.
    ended: Receiver<()>,
}

impl Worker {
    pub(super) fn start(
        name: String,
        cpu: Option<usize>,
        settings: EventLoopBuilder,
        seat: Seat,
        line: Option<Line>,
    ) -> io::Result<Self> {
        let is_told = Arc::new(AtomicBool::new(false));
        let (told, own_name) = (is_told.clone(), name.clone());
        let (started, is_started) = mpsc::sync_channel(1);
        let (ends, ended) = mpsc::sync_channel::<()>(1);
        let end_of_beats = line.as_ref().map(EndOfBeats::new).transpose()?;
        let settings = settings.heartbeat(line.clone());
        arenas::fit_to_limit();
        let thread = start_thread(&name, move || {
            // Dropped last, so that its end shows that everything else is gone.
            let last_turn = ends;
            // Dropped after the loop, because the loop's tasks may block its end, too.
            let _end_of_beats = end_of_beats;
            let built = cpu.map_or(Ok(()), pin_loop_to).and_then(|()| settings.build());
            let mut event_loop = match built {
                Ok(event_loop) => event_loop,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return Ok(());
                }
            };
            if let Err(error) = take_seat(&event_loop, Rc::new(seat), line.as_ref()) {
                let _ = started.send(Err(error));
                return Ok(());
            }
            let _ = started.send(Ok(event_loop.handle()));
            let ran = event_loop.run();
            let process = *event_loop.handle().process();
            // In a forked child only a copy of this thread exists, and locks of other threads (for
            // example, of the log) may stay locked for ever.
            if !process.is_forked() {
                if !told.load(Ordering::Acquire) {
                    log_end(&own_name, &ran);
                }
                let _ = last_turn.send(());
            }
            // A destructor may fork, too.
            drop(event_loop);
            if process.is_forked() {
                end_main_of_child();
            }
            ran
        })?;
        let handle = is_started
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the loop's thread panicked as it began")))?;
        Ok(Self { name, handle, thread, is_told, ended })
    }

    pub(super) fn handle(&self) -> &LoopHandle {
        &self.handle
    }

    pub(super) fn stop(&self) {
        self.is_told.store(true, Ordering::Release);
        self.handle.stop();
    }

    /// Waits until the loop has no task, or has ended, or the patience is used up. `true`: it had
    /// tasks, and they have ended.
    pub(super) fn wait_until_idle(&self, patience: &mut Patience) -> bool {
        let (idle, is_idle) = mpsc::sync_channel(1);
        if self.handle.spawn(move || until_idle(idle)).is_err() {
            return false;
        }
        patience.wait_for(&is_idle).unwrap_or(false)
    }

    pub(super) fn join(self) {
        // The group is dropped on one of its own loops, which ends after the present turn.
        if self.thread.thread().id() == thread::current().id() {
            return;
        }
        if let Err(failure) = outcome(&self.name, self.thread) {
            panics::log!(error, "{failure}");
        }
    }

    pub(super) fn join_within(self, patience: &mut Patience) -> Result<(), String> {
        let mut wait = || patience.wait_for(&self.ended);
        let left_behind = match wait() {
            Err(RecvTimeoutError::Timeout) => {
                "is blocked by one of its tasks or callbacks; the shutdown no longer waits for it"
            }
            Ok(()) => match wait() {
                Err(RecvTimeoutError::Timeout) => {
                    "has stopped and is still dropping what it owns, such as tasks; the shutdown no longer \
                     waits for its thread, which ends later"
                }
                _ => return outcome(&self.name, self.thread),
            },
            Err(RecvTimeoutError::Disconnected) => return outcome(&self.name, self.thread),
        };
        Err(format!("{} {left_behind}", self.name))
    }
}

/// From now on the loop reports what it does to its group, and on its line, if it has one.
fn take_seat(event_loop: &EventLoop, seat: Rc<Seat>, line: Option<&Line>) -> io::Result<()> {
    let is_alone = seat.alarms().next().is_none();
    let observer: Option<Box<dyn SleepObserver>> = match (line, is_alone) {
        (None, true) => None,
        (None, false) => Some(Box::new(seat.clone())),
        (Some(line), true) => Some(Box::new(Alone(Heartbeat::new(line)?))),
        (Some(line), false) => {
            Some(Box::new(InGroup { heartbeat: Heartbeat::new(line)?, seat: seat.clone() }))
        }
    };
    if let Some(observer) = observer {
        event_loop.observe_sleep(observer, seat.alarms())?;
    }
    let heartbeat = line.map(Heartbeat::new).transpose()?;
    event_loop.look_every(SAY_EVERY, move |spent| {
        if let Some(heartbeat) = &heartbeat {
            heartbeat.goes_on();
        }
        seat.say(spent);
    });
    Ok(())
}

/// Logs that a loop has ended although its group continues.
#[cold]
fn log_end(name: &str, ran: &io::Result<()>) {
    match ran {
        Ok(()) => panics::log!(
            error,
            "the loop {name} has ended, and its group was not shut down: do not call `stop` on a \
             loop of a group"
        ),
        Err(error) => panics::log!(error, %error, "the loop {name} has ended with an error"),
    }
}

fn pin_loop_to(cpu: usize) -> io::Result<()> {
    pin_to([cpu]).map_err(|error| {
        let text = format!(
            "cannot pin a loop's thread to CPU {cpu}: {error}: allow sched_setaffinity(2), or do not pin"
        );
        io::Error::new(error.kind(), text)
    })
}

fn outcome(name: &str, thread: JoinHandle<io::Result<()>>) -> Result<(), String> {
    match thread.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("{name} had ended with an error: {error}")),
        Err(_) => Err(format!("{name} had panicked")),
    }
}

/// Checks every millisecond whether this task is the loop's last one. Then it sends whether the
/// loop had other tasks at first. `idle` closes with the loop.
async fn until_idle(idle: mpsc::SyncSender<bool>) {
    let mut had_tasks = false;
    while crate::event_loop::current().is_some_and(|inner| inner.has_other_tasks()) {
        had_tasks = true;
        crate::time::sleep(Duration::from_millis(1)).await;
    }
    // If the deadline has passed, nobody waits for the result any more.
    let _ = idle.try_send(had_tasks);
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_cannot_be_had_is_named() {
        // There is no such CPU. The call runs on a thread of its own, because it would pin this
        // one.
        let pinned = thread::spawn(|| pin_loop_to(1_023)).join().unwrap();
        match pinned {
            Ok(()) => println!("skipped: this machine has 1,024 CPUs"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("CPU 1023") && text.contains("sched_setaffinity"), "{text}");
            }
        }
    }
}
