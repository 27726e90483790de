//! Echo: a frame is a length (4 bytes, big-endian) and so many bytes of payload, at most 16 MiB; each is answered
//! with itself. A longer one closes its connection.
//!
//! The answer is written straight from the buffer that the request was read into. All frames that came complete in one read are
//! answered by one write; so a request costs a wait, a read and a write.
//!
//! When its loop has too much to do, or is not to be active any more, a connection goes on to another one as soon as all whole frames are answered, with the part of the next one that has come.
//!
//! A *frontend* has another echo service answer for it: each of its connections has one to the backend, and passes whole frames on, both ways. It stays on its loop.
//! (Frames carry no number, so answers on a shared connection could be told apart only by their order.)

mod frames;
mod frontend;

use std::io;
use std::sync::Arc;

use wakeful::accept::{Connection, Serving, SharedListener};
use wakeful::net::ListenAddr;

use self::frames::Frames;
pub use self::frames::MAX_PAYLOAD;
#[cfg(any(test, fuzzing))]
pub(crate) use self::frames::fuzzing::check as check_frames;
use crate::ServeOptions;
use crate::connections::{log, set_nodelay};

/// Starts the service on `listeners`.
///
/// # Errors
/// The loops cannot be started.
pub fn start(options: &ServeOptions, listeners: Vec<SharedListener>) -> io::Result<Serving> {
    options.server(listeners).start(|| {
        async |connection| {
            let peer = connection.peer;
            log(&peer, serve(connection).await);
        }
    })
}

/// Starts a frontend of the echo service that listens on `backend`. A backend that cannot be reached closes the connection that was to use it.
///
/// # Errors
/// The loops cannot be started.
pub fn start_frontend(
    options: &ServeOptions,
    listeners: Vec<SharedListener>,
    backend: &ListenAddr,
) -> io::Result<Serving> {
    let backend = Arc::new(backend.clone());
    options.server(listeners).start(move || {
        let backend = backend.clone();
        move |connection: Connection| {
            let backend = backend.clone();
            async move {
                let peer = connection.peer;
                log(&peer, frontend::serve(connection, &backend).await);
            }
        }
    })
}

async fn serve(connection: Connection) -> io::Result<()> {
    let Connection { mut stream, peer, draining, unread, moving, .. } = connection;
    set_nodelay(&stream)?;
    let mut drained = std::pin::pin!(draining.started());
    let mut frames = Frames::behind(unread);
    loop {
        let told = frames.is_empty().then_some(drained.as_mut());
        if frames.read_from(&mut stream, told).await? == 0 {
            return frames.end();
        }
        let complete = frames.complete()?;
        if complete > 0 {
            stream.write_all(&frames.bytes()[..complete]).await?;
            frames.consume(complete);
            if moving.is_wanted() {
                match moving.hand_over(stream, peer, frames.bytes().to_vec()) {
                    Ok(()) => return Ok(()),
                    Err((kept, _)) => stream = kept,
                }
            }
        }
    }
}
