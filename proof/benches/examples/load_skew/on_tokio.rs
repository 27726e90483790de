//! The service on Tokio's multi-thread runtime with two workers, which take tasks from each other.
//! Everything else has its default.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::contenders::{LOOPS, until_told};
use crate::work::{FRAME, answer};

pub fn serve() -> io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(LOOPS).enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let addr = listener.local_addr()?;
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream));
        }
    });
    until_told(addr)
}

async fn talk(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut unread, mut buf) = (Vec::new(), [0; 1024]);
    loop {
        while let Some(frame) = unread.first_chunk::<FRAME>() {
            answer(frame);
            stream.write_all(frame).await?;
            unread.drain(..FRAME);
        }
        let read = stream.read(&mut buf).await?;
        if read == 0 {
            return Ok(());
        }
        unread.extend_from_slice(&buf[..read]);
    }
}
