//! The service on wakeful, on two loops that park, so that their CPU time can be compared with that
//! of Tokio's workers. Everything else has its default.

use std::io;
use std::time::Duration;

use wakeful::accept::{AcceptStrategy, Connection, ConnectionServer, Moves, SharedListener};
use wakeful::net::Stream;
use wakeful::{EventLoop, IdlePolicy, LoopGroup};

use crate::contenders::{LOOPS, until_told};
use crate::work::{FRAME, answer};

pub fn serve(strategy: AcceptStrategy, moves: Option<Moves>) -> io::Result<()> {
    let addr = "127.0.0.1:0".parse().map_err(io::Error::other)?;
    let listener = SharedListener::bind(&addr)?;
    let addr = listener.socket_addr().expect("it is TCP");
    let parks = EventLoop::builder().idle(IdlePolicy::Park);
    let serving = ConnectionServer::new(vec![listener])
        .group(LoopGroup::builder().loops(LOOPS).event_loop(parks))
        .strategy(strategy)
        .moves(moves)
        .start(|| {
            async |connection| {
                // If a connection fails, this affects only its client.
                let _ = talk(connection).await;
            }
        })?;
    until_told(addr)?;
    let counts = serving.counts();
    serving.shutdown(Duration::from_secs(1)).map_err(io::Error::other)?;
    println!("{}", counts.moved());
    Ok(())
}

async fn talk(connection: Connection) -> io::Result<()> {
    let Connection { mut stream, peer, mut unread, moving, .. } = connection;
    if let Stream::Tcp(stream) = &stream {
        stream.set_nodelay(true)?;
    }
    let mut buf = [0; 1024];
    loop {
        while let Some(frame) = unread.first_chunk::<FRAME>() {
            answer(frame);
            stream.write_all(frame).await?;
            unread.drain(..FRAME);
            if moving.is_wanted() {
                match moving.hand_over(stream, peer, unread) {
                    Ok(()) => return Ok(()),
                    Err(kept) => (stream, unread) = kept,
                }
            }
        }
        let read = stream.read(&mut buf).await?;
        if read == 0 {
            return Ok(());
        }
        unread.extend_from_slice(&buf[..read]);
    }
}
