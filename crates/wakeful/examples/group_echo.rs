//! An echo server on a loop per CPU, all of them on one listener. It connects to itself a few
//! times, drains and ends.

use std::time::Duration;

use wakeful::LoopGroup;
use wakeful::accept::{ConnectionServer, SharedListener};
use wakeful::net::{ListenAddr, TcpStream};

const CLIENTS: usize = 5;

async fn call(number: usize, addr: std::net::SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(format!("hello from client {number}").as_bytes()).await?;
    let mut buf = [0; 64];
    let read = stream.read(&mut buf).await?;
    println!("client {number}: {}", String::from_utf8_lossy(&buf[..read]));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse()?)?;
    // The listener may also be a Unix socket's; then there is no such address.
    let ListenAddr::Tcp(addr) = *listener.local_addr() else { unreachable!("bound to TCP above") };
    let running = ConnectionServer::new(vec![listener])
        .group(LoopGroup::builder().name("echo"))
        .start(|| {
            async |mut connection| {
                let mut buf = [0; 4096];
                while let Ok(read @ 1..) = connection.stream.read(&mut buf).await {
                    let thread = std::thread::current();
                    let signed = format!(", by {}", thread.name().unwrap_or("a loop"));
                    let answer = [&buf[..read], signed.as_bytes()].concat();
                    if connection.stream.write_all(&answer).await.is_err() {
                        break;
                    }
                }
            }
        })?;
    println!("listening on {addr} with {} loops", running.handles().len());

    wakeful::block_on(async {
        let calls: Vec<_> = (0..CLIENTS).map(|n| wakeful::spawn(call(n, addr))).collect();
        for call in calls {
            call.await??;
        }
        std::io::Result::Ok(())
    })?;

    let counts = running.counts();
    let aborted = running.shutdown(Duration::from_secs(1))?;
    println!("{} connections served, {aborted} aborted", counts.accepted());
    Ok(())
}
