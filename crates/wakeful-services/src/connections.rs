//! What the services on plain connections share.

use std::io;
use std::pin::Pin;
use std::task::Poll;

use futures_io::AsyncRead;
use wakeful::net::{PeerAddr, Stream};

/// How a connection ended: a peer that broke the protocol is worth a warning.
pub(crate) fn log(peer: &PeerAddr, outcome: io::Result<()>) {
    match outcome {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::warn!(%peer, %error, "closing the connection");
        }
        Err(error) => {
            tracing::debug!(%peer, %error, "the connection ended with an error");
        }
    }
}

pub(crate) fn set_nodelay(stream: &Stream) -> io::Result<()> {
    match stream {
        Stream::Tcp(stream) => stream.set_nodelay(true),
        _ => Ok(()),
    }
}

/// Reads once into `space`. 0: the peer has ended, or `told` was ready and nothing else was.
pub(crate) async fn read_unless_told(
    from: &mut (impl AsyncRead + Unpin),
    space: &mut [u8],
    mut told: Option<Pin<&mut impl Future<Output = ()>>>,
) -> io::Result<usize> {
    std::future::poll_fn(|cx| {
        if let Poll::Ready(count) = Pin::new(&mut *from).poll_read(cx, space) {
            return Poll::Ready(count);
        }
        match told.as_mut() {
            Some(told) => told.as_mut().poll(cx).map(|()| Ok(0)),
            None => Poll::Pending,
        }
    })
    .await
}
