//! The ways to make a connection: within a loop, the accept side of it, and a client that blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use wakeful::accept::{Listener, is_shortage};
use wakeful::net::{Stream, TcpStream, UnixStream};

use crate::bytes::HEADER;
use crate::end::{End, take};
use crate::ledger::{Account, Side};
use crate::world::{Kind, World, was_reset};

/// The client's life of one connection. If it is a pair, the server's end goes elsewhere.
pub(crate) async fn connect(world: Arc<World>, account: Arc<Account>, kind: Kind) {
    let mine = End::new(account.clone(), Side::Client, world.clone(), world.seed());
    let stream = match kind {
        Kind::Tcp => TcpStream::connect(world.address()).await.map(Stream::from),
        Kind::Unix => UnixStream::connect(&world.socket).await.map(Stream::from),
        Kind::Pair => UnixStream::pair().map(|(stream, other)| {
            let theirs = End::new(account, Side::Server, world.clone(), world.seed());
            let target = usize::try_from(world.seed() >> 33).unwrap_or(0) % world.loops.len();
            theirs.arrive(other.detach(), target);
            stream.into()
        }),
    };
    match stream {
        Ok(stream) => mine.run(stream).await,
        Err(error) => mine.failed("connect", &error),
    }
}

/// Accepts connections until it is aborted.
pub(crate) async fn accept(world: Arc<World>, listener: Listener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => wakeful::spawn(serve(world.clone(), stream)).detach(),
            Err(error) => {
                if !is_shortage(&error) {
                    world.ledger.fault(format!("accept: {error}"));
                }
                wakeful::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

/// Finds out which connection it is, and runs the server's end of it.
async fn serve(world: Arc<World>, mut stream: Stream) {
    let mut header = [0; HEADER];
    let mut known = 0;
    while known < HEADER {
        match stream.read(&mut header[known..]).await {
            Ok(count @ 1..) => known += count,
            // It was given up before its number was known. An end that is missing is judged when
            // the round is over.
            Ok(_) | Err(_) => {
                if was_reset(&stream) {
                    world.ledger.broke_unknown();
                }
                return;
            }
        }
    }
    let id = u64::from_be_bytes(header);
    let Some(account) = world.ledger.find(id) else {
        return world
            .ledger
            .fault(format!("somebody says to be connection {id}, which is not open"));
    };
    let mine = End::new(account.clone(), Side::Server, world.clone(), world.seed());
    if let Err(error) = take(&account, Side::Server, &world, &header) {
        return mine.failed("the header", &error);
    }
    mine.run(stream).await;
}

/// A client without a loop. It sends everything and then reads everything, and blocks its thread.
pub(crate) fn blocking(world: &Arc<World>, random: &mut fastrand::Rng) {
    world.ledger.totals.blocking.fetch_add(1, Relaxed);
    let account = world.open(Kind::Tcp);
    let mine = End::new(account, Side::Client, world.clone(), world.seed());
    // If a loop has lost its wake, this thread must not hang too.
    let patience = Some(Duration::from_secs(60));
    let connected = std::net::TcpStream::connect(world.address()).and_then(|stream| {
        stream.set_read_timeout(patience)?;
        stream.set_write_timeout(patience)?;
        Ok(stream)
    });
    match connected {
        Ok(stream) => mine.run_blocking(&stream, random),
        Err(error) => mine.failed("connect", &error),
    }
}
