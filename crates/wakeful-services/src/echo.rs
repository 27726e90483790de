//! The echo service, which answers each frame with the same frame. A frame is a length (4 bytes,
//! big-endian) and a payload of that length, at most 16 MiB. If a client sends a longer frame, the
//! frames before it are answered, and its connection is closed.
//!
//! The answer is written directly from the buffer into which the request was read. One write
//! answers all frames that have arrived completely in one read. So a request costs at most one
//! wait, one read and one write.
//!
//! A limit applies to the memory for the frames of all connections together. A connection that
//! needs more is closed.
//!
//! If the loop of a connection has too much to do, or is no longer active, the connection moves to
//! another loop. It moves as soon as all its complete frames are answered. The received part of the
//! next frame moves with it.
//!
//! A *frontend* forwards frames to another echo service, its backend. Each connection of a client
//! has its own connection to the backend, over which the frontend forwards whole frames in both
//! directions. The connections of a frontend stay on their loops. (Frames have no number, so on a
//! shared connection only their order would identify the answers.)

mod frames;
mod frontend;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use wakeful::accept::{Connection, Descriptors, Moving, Serving, SharedListener};
use wakeful::net::ListenAddr;

use self::frames::Frames;
pub use self::frames::MAX_PAYLOAD;
#[cfg(any(test, fuzzing))]
pub(crate) use self::frames::fuzzing::check as check_frames;
use crate::ServeOptions;
use crate::buffers::{Budget, Charge};
use crate::connections::{
    EndInDrain, KEEPALIVE, LONGEST, end_when_sent, last_time, linger, log, set_options,
};
use crate::patience::PatientStream;

/// The settings of the echo service.
///
/// | setting | default | beyond it |
/// |---|---|---|
/// | [`max_memory`](Self::max_memory) | 1 GiB | a connection that needs more is closed |
/// | [`max_connections`](Self::max_connections) | as many as the process has descriptors for | further connections wait |
/// | [`idle_timeout`](Self::idle_timeout) | none | the connection is closed |
/// | [`stall_timeout`](Self::stall_timeout) | 60 s | the connection is closed |
/// | [`keepalive`](Self::keepalive) | 300 s | the peer is probed |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a setter returns the changed options"]
pub struct EchoOptions {
    max_memory: Option<usize>,
    max_connections: Option<usize>,
    idle_timeout: Option<Duration>,
    stall_timeout: Option<Duration>,
    keepalive: Option<Duration>,
}

impl EchoOptions {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how much memory the frames of all connections together may use, in bytes. `None`
    /// disables the limit. Buffers of up to 16 KiB are not counted.
    pub fn max_memory(mut self, bytes: impl Into<Option<usize>>) -> Self {
        self.max_memory = bytes.into();
        self
    }

    /// Sets how many connections may be open, at least 1. (With 0 the service does not start.)
    /// Further connections wait. With `None` the limit is the number that the process has
    /// descriptors for.
    pub fn max_connections(mut self, connections: impl Into<Option<usize>>) -> Self {
        self.max_connections = connections.into();
        self
    }

    /// Sets how long a connection may be silent between two frames. `None` disables the limit. A
    /// frontend ignores this setting.
    pub fn idle_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.idle_timeout = timeout.into();
        self
    }

    /// Sets how long the peer may send less than 240 bytes a second in the middle of a frame, or
    /// read that little of an answer. `None` disables the limit. A frontend ignores this setting.
    pub fn stall_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.stall_timeout = timeout.into();
        self
    }

    /// Sets how long a peer may be silent before TCP probes it (keepalive), in whole seconds from 1
    /// to 32,767. If the peer does not answer for the same time again, the connection is closed.
    /// A time outside of this range becomes the nearest one within. With `None` no peer is probed.
    pub fn keepalive(mut self, idle: impl Into<Option<Duration>>) -> Self {
        self.keepalive = idle.into();
        self
    }
}

impl Default for EchoOptions {
    /// Returns the default settings.
    fn default() -> Self {
        Self {
            max_memory: Some(1 << 30),
            max_connections: None,
            idle_timeout: None,
            stall_timeout: Some(Duration::from_secs(60)),
            keepalive: Some(KEEPALIVE),
        }
    }
}

impl EchoOptions {
    fn budget(&self) -> Arc<Budget> {
        Budget::new(self.max_memory.unwrap_or(usize::MAX))
    }
}

/// Starts the service on `listeners`.
///
/// # Errors
/// The loops cannot be started; or [`EchoOptions::max_connections`] is 0.
pub fn start(
    options: &ServeOptions,
    echo: EchoOptions,
    listeners: Vec<SharedListener>,
) -> io::Result<Serving> {
    let (budget, linger) = (echo.budget(), linger(options));
    options.server(listeners).max_connections(echo.max_connections).start(move || {
        let budget = budget.clone();
        move |connection: Connection| {
            let budget = budget.clone();
            async move {
                let peer = connection.peer;
                log(&peer, serve(connection, echo, budget, linger).await);
            }
        }
    })
}

/// Starts a frontend on `listeners`. It forwards to the echo service that listens on `backend`. If
/// the backend cannot be reached, the client's connection is closed.
///
/// # Errors
/// The loops cannot be started; or [`EchoOptions::max_connections`] is 0.
pub fn start_frontend(
    options: &ServeOptions,
    echo: EchoOptions,
    listeners: Vec<SharedListener>,
    backend: &ListenAddr,
) -> io::Result<Serving> {
    let (backend, budget, keepalive) = (Arc::new(backend.clone()), echo.budget(), echo.keepalive);
    let linger = linger(options);
    // Each connection has one to the backend.
    let descriptors = Descriptors::new().per_connection(1);
    let server = options.server(listeners).max_connections(echo.max_connections);
    server.descriptors(descriptors).start(move || {
        let (backend, budget) = (backend.clone(), budget.clone());
        move |connection: Connection| {
            let (backend, budget) = (backend.clone(), budget.clone());
            async move {
                let peer = connection.peer;
                let served = frontend::serve(connection, &backend, &budget, keepalive, linger);
                log(&peer, served.await);
            }
        }
    })
}

async fn serve(
    connection: Connection,
    options: EchoOptions,
    budget: Arc<Budget>,
    linger: Duration,
) -> io::Result<()> {
    let Connection { stream, peer, draining, unread, moving, .. } = connection;
    set_options(&stream, options.keepalive)?;
    let mut stream = PatientStream::new(stream, options.stall_timeout);
    let mut end_in_drain = EndInDrain::new(&draining, linger);
    let mut frames = Frames::behind(unread, carried(&moving), budget.clone())?;
    let outcome = loop {
        let told = frames.is_empty().then(|| Pin::new(&mut end_in_drain));
        let space = match frames.space() {
            Ok(space) => space,
            Err(error) => break Err(error),
        };
        let count = match told {
            Some(told) => stream.read_unless_told(space, told, options.idle_timeout).await?,
            None => stream.read_on(space).await?,
        };
        if count == 0 {
            if frames.is_empty() && draining.is_started() {
                break Ok(());
            }
            return frames.end();
        }
        frames.add(count);
        let is_last = end_in_drain.has_read(count, stream.get_ref());
        let complete = match frames.complete() {
            Ok(complete) => complete,
            Err(error) => break Err(error),
        };
        if complete > 0 {
            stream.write_all(&frames.bytes()[..complete]).await?;
            if let Err(error) = frames.consume(complete) {
                break Err(error);
            }
            // A client that never pauses always leaves a part of its next frame.
            if is_last {
                break Ok(());
            }
            if moving.is_wanted() {
                let (unread, charge) = frames.take();
                if !charge.is_empty() {
                    moving.carry(Box::new(charge));
                }
                match moving.hand_over(stream.into_inner(), peer, unread) {
                    Ok(()) => return Ok(()),
                    Err((kept, unread)) => {
                        stream = PatientStream::new(kept, options.stall_timeout);
                        frames = Frames::behind(unread, carried(&moving), budget.clone())?;
                    }
                }
            }
        }
    };
    drop(frames);
    // The client may send more. It gets the answers so far nevertheless.
    let most = if outcome.is_ok() { LONGEST } else { last_time(options.stall_timeout) };
    let ended = Box::pin(end_when_sent(stream.into_inner(), most)).await;
    outcome.and(ended)
}

/// What the unread bytes of a connection take from the budget. Few bytes take nothing, and neither
/// does a new connection.
fn carried(moving: &Moving) -> Charge {
    let charge = moving.carried().and_then(|carried| carried.downcast::<Charge>().ok());
    charge.map_or_else(Charge::default, |charge| *charge)
}
