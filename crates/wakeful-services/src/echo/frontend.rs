//! A connection of a frontend: what its client asks the backend answers.

use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use wakeful::accept::Connection;
use wakeful::net::{ListenAddr, OwnedReadHalf, OwnedWriteHalf, Stream, TcpStream, UnixStream};

use super::frames::Frames;
use crate::connections::set_nodelay;

pub(super) async fn serve(connection: Connection, backend: &ListenAddr) -> io::Result<()> {
    let Connection { stream: client, peer, draining, .. } = connection;
    set_nodelay(&client)?;
    let backend = match connect(backend).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(%peer, %backend, %error, "closing the connection: there is no backend");
            return Ok(());
        }
    };
    let (from_client, to_client) = client.into_split();
    let (from_backend, to_backend) = backend.into_split();
    let told = pin!(draining.started());
    let mut requests = pin!(pass_on(from_client, to_backend, Some(told)));
    let never: Option<Pin<&mut std::future::Pending<()>>> = None;
    let mut answers = pin!(pass_on(from_backend, to_client, never));
    let mut asks = true;
    // Once the client asks no more the backend is told, answers what is left, and closes: then all is said.
    std::future::poll_fn(|cx| {
        if asks && let Poll::Ready(outcome) = requests.as_mut().poll(cx) {
            outcome?;
            asks = false;
        }
        answers.as_mut().poll(cx)
    })
    .await
}

async fn connect(addr: &ListenAddr) -> io::Result<Stream> {
    let stream = match addr {
        ListenAddr::Tcp(addr) => Stream::Tcp(TcpStream::connect(*addr).await?),
        ListenAddr::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
    };
    set_nodelay(&stream)?;
    Ok(stream)
}

/// Passes whole frames on until there are no more, or `told` is ready between two of them; then tells `to` so.
async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut told: Option<Pin<&mut impl Future<Output = ()>>>,
) -> io::Result<()> {
    let mut frames = Frames::new();
    loop {
        let told = told.as_mut().filter(|_| frames.is_empty()).map(Pin::as_mut);
        if frames.read_from(&mut from, told).await? == 0 {
            frames.end()?;
            return to.shutdown();
        }
        let complete = frames.complete()?;
        if complete > 0 {
            to.write_all(&frames.bytes()[..complete]).await?;
            frames.consume(complete);
        }
    }
}
