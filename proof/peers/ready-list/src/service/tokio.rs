//! The service on Tokio's current-thread runtime: a task for each connection, and an unbounded
//! channel for its replies.

use std::os::unix::net::UnixStream as StdStream;
use std::rc::Rc;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use super::workers::{Request, Workers};
use super::{BYTES, Message};

type Sender = UnboundedSender<Message>;

pub fn serve(connections: Vec<StdStream>, workers: usize) -> Result<()> {
    let post = |to: Sender, message| {
        // A client that has left needs no reply.
        let _ = to.send(message);
    };
    let workers = Rc::new(Workers::start(vec![post; workers]));
    let runtime = Builder::new_current_thread().enable_io().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let mut tasks = Vec::new();
        for (index, stream) in connections.into_iter().enumerate() {
            let stream = UnixStream::from_std(stream)?;
            tasks.push(tokio::task::spawn_local(connection(index, stream, workers.clone())));
        }
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
}

async fn connection(
    index: usize,
    mut stream: UnixStream,
    workers: Rc<Workers<Sender>>,
) -> Result<()> {
    let (sender, mut replies) = unbounded_channel();
    let mut message = [0; BYTES];
    // A client that leaves before its reply resets the connection.
    while stream.read(&mut message).await.is_ok_and(|read| read == BYTES) {
        workers.send(index, Request { message, reply_to: sender.clone() })?;
        let reply = replies.recv().await.context("a sender is kept here")?;
        if stream.write_all(&reply).await.is_err() {
            // The client has left.
            break;
        }
    }
    Ok(())
}
