//! The services on Tokio's single-threaded interfaces, whatever runs the thread.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::Result;
use peer_common::frame::FrameBuffer;
use peer_common::{Service, Session, Socket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};

/// What is done for a connection.
#[derive(Clone, Copy)]
pub struct Work {
    /// What to answer.
    pub service: Service,
    /// The service that answers, if it is not this one.
    pub backend: Option<SocketAddr>,
}

/// Accepts on `socket` for ever, with a task for each connection on the same thread. Calls `ready`
/// when it listens.
///
/// # Errors
/// The socket cannot be watched.
pub async fn serve(socket: Socket, work: Work, ready: &dyn Fn()) -> Result<()> {
    match socket {
        Socket::Tcp(listener) => {
            let listener = TcpListener::from_std(listener)?;
            ready();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        // If a connection fails, this affects only its client.
                        tokio::task::spawn_local(async move {
                            match work.backend {
                                None => talk(stream, work.service).await.ok(),
                                Some(backend) => {
                                    let (from, to) = stream.into_split();
                                    relay(from, to, backend).await.ok()
                                }
                            }
                        });
                    }
                    Err(_) => pause().await,
                }
            }
        }
        Socket::Unix(listener) => {
            let listener = UnixListener::from_std(listener)?;
            ready();
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::task::spawn_local(async move {
                            match work.backend {
                                None => talk(stream, work.service).await.ok(),
                                Some(backend) => {
                                    let (from, to) = stream.into_split();
                                    relay(from, to, backend).await.ok()
                                }
                            }
                        });
                    }
                    Err(_) => pause().await,
                }
            }
        }
    }
}

/// Waits a little after a failed accept, because no descriptor may be left.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, service: Service) -> io::Result<()> {
    let mut session = Session::new(service);
    loop {
        let count = stream.read(session.space()).await?;
        if count == 0 {
            return Ok(());
        }
        session.received(count);
        stream.write_all(session.output()).await?;
        if !session.written() {
            return Ok(());
        }
    }
}

/// A frontend's connection: forwards whole frames to its own connection to the backend, and back.
async fn relay(
    from_client: impl AsyncRead + Unpin,
    to_client: impl AsyncWrite + Unpin,
    backend: SocketAddr,
) -> io::Result<()> {
    let backend = TcpStream::connect(backend).await?;
    backend.set_nodelay(true)?;
    let (from_backend, to_backend) = backend.into_split();
    let mut requests = pin!(pass_on(from_client, to_backend));
    let mut answers = pin!(pass_on(from_backend, to_client));
    let mut asks = true;
    // When the client sends no more requests, the backend answers the rest and closes.
    std::future::poll_fn(|cx| {
        if asks && let Poll::Ready(outcome) = requests.as_mut().poll(cx) {
            outcome?;
            asks = false;
        }
        answers.as_mut().poll(cx)
    })
    .await
}

async fn pass_on(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut buffer = FrameBuffer::default();
    loop {
        let count = from.read(buffer.space()).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        buffer.add_received(count);
        let frames = buffer.frames();
        to.write_all(&buffer.received()[..frames.end]).await?;
        buffer.discard(frames.end);
        if frames.oversized {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}
