//! Echo: a frame is a length (4 bytes, big-endian) and so many bytes of payload, at most 16 MiB; each is answered
//! with itself. A longer one closes its connection.
//!
//! The answer is written straight from the buffer that the request was read into. All frames that came complete in one read are
//! answered by one write; so a request costs a wait, a read and a write.

use std::io;

use wakeful::accept::{Connection, ConnectionServer, Serving, SharedListener};
use wakeful::net::Stream;

use crate::ServeOptions;

/// The largest payload, in bytes.
pub const MAX_PAYLOAD: usize = 16 * 1024 * 1024;

const HEADER: usize = 4;
/// What a connection's buffer begins with, and returns to after a large frame.
const BUFFER: usize = 16 * 1024;

/// Starts the service on `listeners`.
///
/// # Errors
/// The loops cannot be started.
pub fn start(options: &ServeOptions, listeners: Vec<SharedListener>) -> io::Result<Serving> {
    ConnectionServer::new(listeners).group(options.group()).start(|| {
        async |connection| {
            let peer = connection.peer;
            match serve(connection).await {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::warn!(%peer, %error, "closing the connection");
                }
                Err(error) => {
                    tracing::debug!(%peer, %error, "the connection ended with an error");
                }
            }
        }
    })
}

async fn serve(connection: Connection) -> io::Result<()> {
    let Connection { mut stream, draining, .. } = connection;
    if let Stream::Tcp(stream) = &stream {
        stream.set_nodelay(true)?;
    }
    let mut drained = std::pin::pin!(draining.started());
    let mut frames = Frames::new();
    loop {
        let told = frames.is_empty().then_some(drained.as_mut());
        if frames.read_from(&mut stream, told).await? == 0 {
            return match frames.is_empty() {
                true => Ok(()),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let complete = frames.complete()?;
        if complete > 0 {
            stream.write_all(&frames.bytes()[..complete]).await?;
            frames.consume(complete);
        }
    }
}

/// Bytes that were read and not answered yet: whole frames, and the beginning of the next.
struct Frames {
    buffer: Vec<u8>,
    filled: usize,
}

impl Frames {
    fn new() -> Self {
        Self { buffer: vec![0; BUFFER], filled: 0 }
    }

    fn is_empty(&self) -> bool {
        self.filled == 0
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Reads once. 0: the peer has ended, or `told` was ready and nothing else was.
    async fn read_from(
        &mut self,
        stream: &mut Stream,
        told: Option<std::pin::Pin<&mut impl Future<Output = ()>>>,
    ) -> io::Result<usize> {
        if self.filled == self.buffer.len() {
            // By what has come, not by what a header claims.
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let mut read = std::pin::pin!(stream.read(&mut self.buffer[self.filled..]));
        let mut told = told;
        let count = std::future::poll_fn(|cx| {
            use std::task::Poll;
            if let Poll::Ready(count) = read.as_mut().poll(cx) {
                return Poll::Ready(count);
            }
            match told.as_mut() {
                Some(told) => told.as_mut().poll(cx).map(|()| Ok(0)),
                None => Poll::Pending,
            }
        })
        .await?;
        self.filled += count;
        Ok(count)
    }

    /// How many bytes are whole frames.
    fn complete(&self) -> io::Result<usize> {
        let mut complete = 0;
        loop {
            let rest = &self.bytes()[complete..];
            let Some(header) = rest.first_chunk::<HEADER>() else {
                return Ok(complete);
            };
            let payload = u32::from_be_bytes(*header) as usize;
            if payload > MAX_PAYLOAD {
                let text =
                    format!("a frame of {payload} bytes was announced, {MAX_PAYLOAD} are allowed");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            if rest.len() < HEADER + payload {
                return Ok(complete);
            }
            complete += HEADER + payload;
        }
    }

    fn consume(&mut self, count: usize) {
        self.buffer.copy_within(count..self.filled, 0);
        self.filled -= count;
        if self.filled <= BUFFER && self.buffer.len() > BUFFER {
            self.buffer.truncate(BUFFER);
            self.buffer.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: &[u8]) -> Frames {
        let mut frames = Frames::new();
        frames.buffer[..bytes.len()].copy_from_slice(bytes);
        frames.filled = bytes.len();
        frames
    }

    #[test]
    fn only_whole_frames_are_complete() {
        assert_eq!(frames(b"").complete().unwrap(), 0);
        assert_eq!(frames(b"\0\0\0").complete().unwrap(), 0);
        assert_eq!(frames(b"\0\0\0\0").complete().unwrap(), 4);
        assert_eq!(frames(b"\0\0\0\x02a").complete().unwrap(), 0);
        assert_eq!(frames(b"\0\0\0\x02ab\0\0\0\x01c\0\0").complete().unwrap(), 11);
    }

    #[test]
    fn a_longer_frame_is_an_error_also_behind_a_whole_one() {
        let error = frames(b"\0\0\0\x01a\x01\0\0\x01").complete().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("16777217"), "{error}");
        assert_eq!(frames(b"\x01\0\0\0").complete().unwrap(), 0, "16 MiB is allowed");
    }

    #[test]
    fn the_rest_moves_to_the_front_and_the_buffer_shrinks_again() {
        let mut frames = frames(b"\0\0\0\x01axy");
        frames.buffer.resize(4 * BUFFER, 0);
        frames.consume(5);
        assert_eq!(frames.bytes(), b"xy");
        assert_eq!(frames.buffer.len(), BUFFER);
    }
}
