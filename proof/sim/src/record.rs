//! Records when requests arrive, with a proxy in front of a TCP server that writes down the time of
//! each read.

use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use wakeful::net::{OwnedReadHalf, OwnedWriteHalf, TcpListener, TcpStream};
use wakeful::{EventLoop, IdlePolicy, signal, time};

use crate::trace::Trace;

/// Passes on what comes to `listen` to the server at `to`, until `duration` is over or Ctrl-C
/// comes. Returns when something came. Requests that come in one read count as one.
///
/// # Errors
///
/// When it cannot listen there. A connection that fails is closed and is no error.
pub fn record(listen: &str, to: &str, duration: Duration) -> io::Result<Trace> {
    // This loop does not sleep, or its times would be late by its own wakes.
    let mut event_loop = EventLoop::builder().idle(IdlePolicy::Spin).build()?;
    let times = Times::default();
    let recorded = times.clone();
    event_loop.block_on(async move {
        let listener = TcpListener::bind(listen).await?;
        let accept = pin!(accept(listener, to.to_owned(), Instant::now(), recorded));
        match select(accept, pin!(time::timeout(duration, signal::ctrl_c()))).await {
            Either::Left((failed, _)) => failed,
            // The end of the time is no error.
            Either::Right((ended, _)) => ended.unwrap_or(Ok(())),
        }
    })??;
    let arrivals = times.take();
    Ok(Trace { name: "recorded".to_owned(), arrivals })
}

type Times = Rc<RefCell<Vec<u64>>>;

async fn accept(listener: TcpListener, to: String, began: Instant, times: Times) -> io::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        let (to, times) = (to.clone(), times.clone());
        wakeful::spawn(async move {
            if let Err(error) = pass_on(client, &to, began, times).await {
                eprintln!("wakeful-sim: a connection to {to}: {error}");
            }
        })
        .detach();
    }
}

async fn pass_on(client: TcpStream, to: &str, began: Instant, times: Times) -> io::Result<()> {
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let back = wakeful::spawn(copy(from_server, to_client, || {}));
    let stamp = || times.borrow_mut().push(began.elapsed().as_nanos() as u64);
    copy(from_client, to_server, stamp).await?;
    back.await.map_err(io::Error::other)?
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut on_read: impl FnMut(),
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            // Dropping the half shuts down the write side.
            return Ok(());
        }
        on_read();
        to.write_all(&buffer[..read]).await?;
    }
}
