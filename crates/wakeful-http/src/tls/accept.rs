//! The server's side of a handshake: with a time limit, counted, and with an answer for clients on
//! the wrong port.
//!
//! Until a client's first bytes arrive, rustls uses no memory. A failure is reported to the client,
//! in TLS (an alert) or, to a client of plain HTTP, in plain HTTP. Then its bytes are read to their
//! end for a moment, because the kernel resets a connection that is closed with unread bytes, and
//! the client would not see the report.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use hyper::rt::{Read, Write};
use rustls::ServerConnection;
use wakeful::time::{now, timeout, timeout_at};

use super::server::ServerTls;
use super::stream::{TlsStream, Truncation};
use crate::in_time::{QUARTERS, in_time};
use crate::read::read;

/// The first byte of a client's first record (RFC 8446, 5.1). Older clients than those of TLS 1.0
/// have another one, and are not served.
const HANDSHAKE: u8 = 22;

/// Room for most clients' first flight.
const FIRST_READ: usize = 2048;

/// The answer to plain HTTP.
const WRONG_PORT: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: 44\r\n\r\nThis port speaks TLS: ask again by https://\n";

/// How long, and how many bytes, the server reads from a client that it has refused.
const LINGER: Duration = Duration::from_secs(1);
const MOST_LINGERED: usize = 256 * 1024;

/// The error of [`ServerTls::accept`](super::ServerTls::accept).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The client took too long.
    #[error("no TLS handshake within {0:?}")]
    TimedOut(Duration),
    /// The client does not speak TLS. If it sent plain HTTP, it got an answer.
    #[error(
        "plain HTTP, or another protocol, came to a port that speaks TLS: its first byte was {first:#04x}"
    )]
    NotTls {
        /// The first byte that it sent, instead of 0x16.
        first: u8,
    },
    /// The client closed or reset the connection before it sent a byte.
    #[error("the client closed before it sent a byte")]
    Silent,
    /// The handshake failed, on either side.
    #[error("the TLS handshake failed: {0}")]
    Failed(#[source] io::Error),
}

impl ServerTls {
    /// Performs the server's side of the handshake over `io`, a connection from which nothing was
    /// read yet.
    ///
    /// # Cancel safety
    /// Not cancel-safe: dropping the future closes the connection.
    ///
    /// # Errors
    /// See [`AcceptError`]. If possible, the client was told why.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    pub async fn accept<IO>(&self, mut io: IO) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: Read + Write + Unpin,
    {
        let begun = self.begin(&mut io).await?;
        let mut stream = self.finish(io, begun).await?;
        // Nobody knows what the stream will carry.
        stream.require_close_notify();
        Ok(stream)
    }

    /// Waits for the client's first bytes. If it is dropped before it is ready, it has read
    /// nothing.
    pub(crate) async fn begin<IO>(&self, io: &mut IO) -> Result<Begun, AcceptError>
    where
        IO: Read + Unpin,
    {
        let deadline = now() + self.0.settings.handshake_timeout;
        let mut first = vec![0; FIRST_READ];
        let read = timeout_at(deadline, read(io, &mut first)).await;
        let begun = match read {
            Ok(Ok(0)) => Err(AcceptError::Silent),
            Ok(Ok(count)) => {
                first.truncate(count);
                Ok(Begun { first, deadline })
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(AcceptError::Silent)
            }
            Ok(Err(error)) => Err(AcceptError::Failed(error)),
            Err(_) => Err(self.timed_out()),
        };
        begun.map_err(|error| self.counted(error))
    }

    /// Completes the handshake, for a connection that carries HTTP.
    pub(crate) async fn finish<IO>(
        &self,
        io: IO,
        Begun { first, deadline }: Begun,
    ) -> Result<TlsStream<IO>, AcceptError>
    where
        IO: Read + Write + Unpin,
    {
        if first[0] != HANDSHAKE {
            let error = self.counted(AcceptError::NotTls { first: first[0] });
            refuse_in_plain(io, first[0]).await;
            return Err(error);
        }
        let session = ServerConnection::new(self.config());
        let session =
            session.map_err(|e| self.counted(AcceptError::Failed(io::Error::other(e))))?;
        let mut stream = TlsStream::new(io, session, first, Truncation::IsAnEnd);
        // What the client sent during a pause of the process arrives late, and must still be
        // answered.
        let least = self.0.settings.handshake_timeout / QUARTERS;
        let left = deadline.saturating_duration_since(now()).max(least);
        let handshake = in_time(left, pin!(poll_fn(|cx| stream.poll_handshake(cx)))).await;
        match handshake {
            Ok(Ok(())) => {
                self.0.counts.handshakes.one_more();
                if stream.is_resumed() {
                    self.0.counts.resumed.one_more();
                }
                Ok(stream)
            }
            Ok(Err(error)) => {
                let error = self.counted(AcceptError::Failed(error));
                linger(&mut stream.into_inner()).await;
                Err(error)
            }
            Err(_) => Err(self.counted(self.timed_out())),
        }
    }

    fn timed_out(&self) -> AcceptError {
        AcceptError::TimedOut(self.0.settings.handshake_timeout)
    }

    fn counted(&self, error: AcceptError) -> AcceptError {
        let counts = &self.0.counts;
        match error {
            // Probes of load balancers do this all the time, so it is not counted.
            AcceptError::Silent => return error,
            AcceptError::TimedOut(_) => counts.timed_out.one_more(),
            AcceptError::NotTls { .. } => counts.not_tls.one_more(),
            AcceptError::Failed(_) => {}
        }
        counts.failed.one_more();
        error
    }
}

/// A client that has sent something.
#[derive(Debug)]
pub(crate) struct Begun {
    /// At least a byte.
    first: Vec<u8>,
    deadline: Instant,
}

/// Tells a client of plain HTTP that it has the wrong port.
async fn refuse_in_plain<IO: Read + Write + Unpin>(mut io: IO, first: u8) {
    if first.is_ascii_alphabetic() {
        // The answer fits into an empty socket. A client that does not take it at once gets no
        // answer.
        let telling = poll_fn(|cx| Pin::new(&mut io).poll_write(cx, WRONG_PORT));
        if !matches!(telling.now_or_never(), Some(Ok(_))) {
            return;
        }
    }
    linger(&mut io).await;
}

/// Ends the write side, and waits a moment for the peer to end its side.
async fn linger<IO: Read + Write + Unpin>(io: &mut IO) {
    let lingering = async {
        poll_fn(|cx| Pin::new(&mut *io).poll_shutdown(cx)).await?;
        let mut unheard = vec![0; FIRST_READ];
        for _ in 0..MOST_LINGERED / FIRST_READ {
            if read(io, &mut unheard).await? == 0 {
                break;
            }
        }
        io::Result::Ok(())
    };
    // Whatever the result is, the connection is over.
    let _ = timeout(LINGER, lingering).await;
}
