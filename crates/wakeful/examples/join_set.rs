//! A server whose connections are tasks of a [`JoinSet`]: in one `select!` it accepts, joins those
//! that have ended, and hears that it is to stop; then it gives the rest a second, and aborts what
//! is left.

use std::io;
use std::time::Duration;

use wakeful::net::{TcpListener, TcpStream};
use wakeful::task::JoinSet;
use wakeful::time::{sleep, timeout};

#[wakeful::main]
async fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let clients = wakeful::spawn(async move {
        for number in 0..3 {
            let mut stream = TcpStream::connect(addr).await?;
            stream.write_all(format!("client {number}").as_bytes()).await?;
            println!("answered: {}", stream.read(&mut [0; 64]).await?);
        }
        io::Result::Ok(())
    });

    let mut connections = JoinSet::new();
    let mut end = std::pin::pin!(sleep(Duration::from_millis(50)));
    loop {
        // Each of these may be given up and taken up again: no connection and no task is lost.
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                connections.spawn(echo(stream));
            }
            // An empty set is ready at once, with `None`: hence the guard.
            Some(ended) = connections.join_next(), if !connections.is_empty() => match ended {
                Ok(Ok(bytes)) => println!("a connection ended after {bytes} bytes"),
                Ok(Err(error)) => println!("a connection failed: {error}"),
                Err(error) => println!("a connection's task: {error}"),
            },
            () = &mut end => break,
        }
    }

    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(Duration::from_secs(1), all).await.is_err() {
        println!("{} connections are cut", connections.len());
        connections.shutdown().await;
    }
    clients.await?
}

async fn echo(mut stream: TcpStream) -> io::Result<usize> {
    let (mut buf, mut bytes) = ([0; 1024], 0);
    loop {
        let read = stream.read(&mut buf).await?;
        if read == 0 {
            return Ok(bytes);
        }
        stream.write_all(&buf[..read]).await?;
        bytes += read;
    }
}
