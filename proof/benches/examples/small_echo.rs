//! The smallest possible connection: a task with a stream and 32 bytes, which it sends back.
//! `many-connections.sh` compares how much memory it takes.
//!
//! `small_echo wakeful|tokio ADDR`. One thread; SIGTERM ends it.

use std::io;
use std::process::ExitCode;

/// The buffer of a task. It is this small so that the runtime's own memory is measured.
const BUFFER: usize = 32;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let served = match &args[..] {
        [_, runtime, addr] if runtime == "wakeful" => on_wakeful(addr),
        [_, runtime, addr] if runtime == "tokio" => on_tokio(addr),
        _ => {
            eprintln!("usage: small_echo wakeful|tokio ADDR");
            return ExitCode::from(2);
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("small_echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn on_wakeful(addr: &str) -> io::Result<()> {
    wakeful::EventLoop::builder().idle(wakeful::IdlePolicy::Park).build()?.block_on(async {
        let listener = wakeful::net::TcpListener::bind(addr).await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            wakeful::spawn(async move {
                let mut buffer = [0; BUFFER];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..count]).await.is_err() {
                        break;
                    }
                }
            })
            .detach();
        }
    })?
}

fn on_tokio(addr: &str) -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(addr).await?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(async move {
                let mut buffer = [0; BUFFER];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..count]).await.is_err() {
                        break;
                    }
                }
            });
        }
    })
}
