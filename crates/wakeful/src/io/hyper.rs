//! hyper's traits: bytes, timers, and where hyper spawns.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Executor, Read, ReadBufCursor, Timer, Write};

use super::{for_readers, impl_write};
use crate::net::ByteStream;
use crate::time::{Deadline, Sleep};

macro_rules! read {
    ($($type:ty),*) => { $(
        impl Read for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                mut buf: ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                self.get_mut().io().poll_read(cx, &mut buf).map_ok(|_| ())
            }
        }
    )* };
}

for_readers!(read);
impl_write!(Write, poll_shutdown, is_write_vectored);

/// Spawns hyper's futures on this thread's loop. The futures need not be `Send`.
///
/// # Panics
/// If hyper spawns a future where no loop runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoopExecutor;

impl<F> Executor<F> for LoopExecutor
where
    F: Future + 'static,
{
    fn execute(&self, future: F) {
        crate::event_loop::spawn(future).detach();
    }
}

/// Provides the loop's timers for hyper's timeouts. The timers are [`Deadline`]s, because hyper
/// checks some timeouts before it reads.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoopTimer;

impl hyper::rt::Sleep for Sleep {}

impl hyper::rt::Sleep for Deadline {}

impl Timer for LoopTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Deadline::after(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Deadline::at(deadline))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Deadline>() {
            Some(sleep) => sleep.get_mut().reset(deadline),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}
