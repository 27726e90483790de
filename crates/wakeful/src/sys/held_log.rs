//! For tests: a log subscriber that blocks at one line until the test goes on. (A subscriber is
//! user code.)

use std::fmt::{Debug, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata};

/// A line that comes takes much less time. A test that waits for so long has failed.
const GUARD: Duration = Duration::from_secs(30);

/// Holds the threads that log a line, until it is dropped.
pub(crate) struct HeldLog {
    dispatch: Dispatch,
    reached: Receiver<()>,
    _release: Sender<()>,
    /// With only one dispatcher, `tracing` may ask another test's thread, which has none, whether
    /// anybody wants the line.
    _second: Dispatch,
}

impl HeldLog {
    /// Holds them at lines that contain `text`.
    pub(crate) fn at(text: &'static str) -> Self {
        let subscriber = |text| {
            let ((reaches, reached), (release, released)) = (channel(), channel());
            let released = Mutex::new(released);
            (Dispatch::new(Holds { text, reaches, released }), reached, release)
        };
        let (_second, ..) = subscriber(text);
        let (dispatch, reached, _release) = subscriber(text);
        Self { dispatch, reached, _release, _second }
    }

    /// Makes a function that has this subscriber called for the lines of the thread that calls it,
    /// from then on.
    pub(crate) fn subscribe(&self) -> impl FnOnce() + Send + 'static {
        let dispatch = self.dispatch.clone();
        move || std::mem::forget(tracing::dispatcher::set_default(&dispatch))
    }

    /// Waits until a thread is held.
    pub(crate) fn wait(&self) {
        self.reached.recv_timeout(GUARD).expect("the line is logged");
    }
}

struct Holds {
    text: &'static str,
    reaches: Sender<()>,
    released: Mutex<Receiver<()>>,
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{value:?} ");
    }
}

impl tracing::Subscriber for Holds {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        if text.0.contains(self.text) {
            let _ = self.reaches.send(());
            // Nothing is ever sent: `recv` returns when the test drops its `HeldLog`.
            let _ = self.released.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }

    fn new_span(&self, _attributes: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}
