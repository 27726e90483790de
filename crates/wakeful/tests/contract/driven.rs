//! A loop that a test drives turn by turn, also one that has Tokio as its guest. Such a loop cannot
//! be driven by another one, and takes its turns in a run. What only driving by hand can show is
//! skipped there, with a line on standard error.

use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use wakeful::metrics::LoopMetrics;
use wakeful::time::timeout;
use wakeful::{EventLoop, LoopHandle};

/// Has each loop of these tests a guest?
pub(crate) fn has_guest() -> bool {
    cfg!(feature = "tokio") && std::env::var_os("WAKEFUL_TEST_TOKIO").is_some()
}

pub(crate) const BY_HAND: &str = "a loop that has a guest cannot be driven by hand";

/// What a test of the queue's word on the loop's sleep needs.
pub(crate) const SAYS_ASLEEP: &str =
    "the queue says asleep whenever Tokio has the thread, in a spin too";

/// The test ends here, and is skipped.
struct Skipped(&'static str);

/// Skips this test on loops that have a guest. To be called on the test's own thread, and by none
/// of a loop's tasks.
pub(crate) fn skip_on_guests(why: &'static str) {
    if has_guest() {
        skip(why);
    }
}

/// Skips this test, as [`skip_on_guests`] does.
pub(crate) fn skip(why: &'static str) -> ! {
    resume_unwind(Box::new(Skipped(why)))
}

/// Runs a test, and says on standard error if it was skipped, whatever the harness captures.
pub(crate) fn unless_skipped(name: &str, test: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(test)) else { return };
    match payload.downcast::<Skipped>() {
        Ok(skipped) => {
            writeln!(io::stderr(), "skipped: {name}: {}", skipped.0).expect("it can be written");
        }
        Err(payload) => resume_unwind(payload as Box<dyn Any + Send>),
    }
}

pub(crate) trait Driven {
    /// As [`EventLoop::turn`]. A loop that has a guest takes one turn in a run. If there was
    /// nothing to do and it may wait, it runs until it has done something.
    fn take_turn(&mut self, max_wait: Option<Duration>) -> io::Result<()>;

    /// As [`EventLoop::prepare_to_park`]. On a loop that has a guest, the test is skipped.
    fn asks_to_park(&mut self) -> io::Result<bool>;
}

impl Driven for EventLoop {
    fn take_turn(&mut self, max_wait: Option<Duration>) -> io::Result<()> {
        if !has_guest() {
            return self.turn(max_wait);
        }
        let handle = self.handle();
        let before = Done::by(&handle);
        // The run takes one turn, which does not wait.
        self.stop();
        self.run()?;
        if max_wait == Some(Duration::ZERO) || Done::by(&handle) != before {
            return Ok(());
        }
        // How often the hook below was counted as a callback.
        let hooked = Rc::new(Cell::new(0));
        let did_something = {
            let (handle, hooked) = (handle.clone(), hooked.clone());
            move || {
                let mut now = Done::by(&handle);
                now.callbacks -= hooked.get();
                now != before
            }
        };
        let waker: Rc<Cell<Option<Waker>>> = Rc::default();
        let hook = self.after_turn({
            let (waker, did_something) = (waker.clone(), did_something.clone());
            move || {
                // This call is counted after it.
                let is_over = did_something();
                hooked.set(hooked.get() + 1);
                if is_over && let Some(waker) = waker.take() {
                    waker.wake();
                }
            }
        });
        let something = poll_fn(|cx| {
            if did_something() {
                return Poll::Ready(());
            }
            waker.set(Some(cx.waker().clone()));
            Poll::Pending
        });
        let waited = match max_wait {
            Some(limit) => self.block_on(timeout(limit, something)).map(|_| ()),
            None => self.block_on(something),
        };
        drop(hook);
        waited
    }

    fn asks_to_park(&mut self) -> io::Result<bool> {
        skip_on_guests(BY_HAND);
        self.prepare_to_park()
    }
}

/// What a loop has done.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Done {
    events: u64,
    polls: u64,
    remote: u64,
    timers: u64,
    callbacks: u64,
}

impl Done {
    fn by(handle: &LoopHandle) -> Self {
        let LoopMetrics { events, polls, remote, timers, callbacks, .. } = handle.metrics();
        Self { events, polls, remote, timers, callbacks }
    }
}
