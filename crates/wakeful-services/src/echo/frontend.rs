//! A connection of a frontend, which forwards its client's frames to the backend.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future;
use wakeful::accept::Connection;
use wakeful::log::OncePerSecond;
use wakeful::net::{ListenAddr, OwnedReadHalf, OwnedWriteHalf, Stream, TcpStream, UnixStream};
use wakeful::time::{sleep, timeout};

use super::frames::Frames;
use crate::buffers::Budget;
use crate::connections::{EndInDrain, LONGEST, end_when_sent, read_unless_told, set_options};
use crate::log;

/// How often to check whether a client that sends no more is still there.
const LOOK: Duration = Duration::from_secs(1);

pub(super) async fn serve(
    connection: Connection,
    backend: &ListenAddr,
    budget: &Arc<Budget>,
    keepalive: Option<Duration>,
    linger: Duration,
) -> io::Result<()> {
    let Connection { stream: client, peer, draining, .. } = connection;
    set_options(&client, keepalive)?;
    let backend = match connect(backend, keepalive).await {
        Ok(stream) => stream,
        Err(error) => {
            static LIMIT: OncePerSecond = OncePerSecond::new();
            if let Some(count) = LIMIT.pass() {
                log::log!(warn, %peer, %backend, %error, count, "closing the connection: cannot connect to the backend");
            }
            return Ok(());
        }
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_backend, mut to_backend) = backend.into_split();
    let mut asked = Ok(());
    let client_ends = async {
        let end = EndInDrain::new(&draining, linger);
        asked = pass_on(&mut from_client, &mut to_backend, Some(end), budget).await;
        // If it ended with an error, the frames before are answered nevertheless.
        to_backend.shutdown()?;
        let most = if asked.is_ok() { Duration::MAX } else { LONGEST };
        let _ = timeout(most, until_gone(&from_client)).await;
        Ok(())
    };
    let answers = pass_on(&mut from_backend, &mut to_client, None, budget);
    // When the client sends no more, the backend is told. It answers what is left, and closes, and
    // then everything is done.
    let outcome = future::or(client_ends, answers).await;
    drop((from_backend, to_backend));
    let client = from_client.reunite(to_client).expect("they are halves of one stream");
    // The client may send more. It gets the answers so far nevertheless.
    let ended = Box::pin(end_when_sent(client, LONGEST)).await;
    asked.and(outcome).and(ended)
}

/// Completes a moment after a client that sends no more is gone. Otherwise a backend that does not
/// answer would hold the connection for ever.
async fn until_gone(client: &OwnedReadHalf) {
    while !client.is_broken() {
        sleep(LOOK).await;
    }
}

async fn connect(addr: &ListenAddr, keepalive: Option<Duration>) -> io::Result<Stream> {
    let stream = match addr {
        ListenAddr::Tcp(addr) => Stream::Tcp(TcpStream::connect(*addr).await?),
        ListenAddr::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
        ListenAddr::Abstract(name) => {
            let addr = SocketAddr::from_abstract_name(name)?;
            Stream::Unix(UnixStream::connect_addr(&addr).await?)
        }
    };
    set_options(&stream, keepalive)?;
    Ok(stream)
}

/// Forwards whole frames until there are no more, or until `end`. Then a part of the next frame may
/// be left.
async fn pass_on(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    mut end: Option<EndInDrain<'_>>,
    budget: &Arc<Budget>,
) -> io::Result<()> {
    let mut frames = Frames::new(budget.clone());
    loop {
        let told = end.as_mut().filter(|_| frames.is_empty()).map(Pin::new);
        let count = read_unless_told(from, frames.space()?, told).await?;
        if count == 0 {
            return frames.end();
        }
        frames.add(count);
        let is_last = end.as_mut().is_some_and(|end| end.has_read(count, from));
        let complete = frames.complete()?;
        if complete > 0 {
            to.write_all(&frames.bytes()[..complete]).await?;
            frames.consume(complete)?;
            // A client that never pauses always leaves a part of its next frame.
            if is_last {
                return Ok(());
            }
        }
    }
}
