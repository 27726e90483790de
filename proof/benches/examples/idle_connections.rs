//! Opens many connections, gets one answer on each, and then stays silent. `many-connections.sh`
//! uses it.
//!
//! `idle_connections http|frames PORT COUNT`. The connections use several addresses of the loopback
//! network in turn, so that there are enough ports. Prints `ready` when all connections have had
//! their answer, and holds them until its standard input ends.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

/// The kernel hands out 28,000 ports for each address.
const FOR_EACH_ADDRESS: usize = 5_000;

/// A frame with a payload of 28 bytes.
const FRAME: &[u8] = b"\0\0\0\x1ctwenty-eight bytes and none";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let parsed = match &args[..] {
        [_, protocol, port, count] => {
            port.parse().ok().zip(count.parse().ok()).map(|numbers| (protocol.as_str(), numbers))
        }
        _ => None,
    };
    let Some((protocol @ ("http" | "frames"), (port, count))) = parsed else {
        eprintln!("usage: idle_connections http|frames PORT COUNT");
        return ExitCode::from(2);
    };
    match hold(protocol, port, count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("idle_connections: {error}");
            ExitCode::FAILURE
        }
    }
}

fn hold(protocol: &str, port: u16, count: usize) -> io::Result<()> {
    let mut open = Vec::with_capacity(count);
    for number in 0..count {
        let last = u8::try_from(1 + number / FOR_EACH_ADDRESS).map_err(io::Error::other)?;
        let addr = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), port));
        open.push(ask(protocol, addr).map_err(|error| {
            io::Error::other(format!("connection {number} of {count}: {error}"))
        })?);
    }
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(open);
    Ok(())
}

/// Opens a connection, and waits for its answer.
fn ask(protocol: &str, addr: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    if protocol == "frames" {
        stream.write_all(FRAME)?;
        stream.read_exact(&mut [0; FRAME.len()])?;
        return Ok(stream);
    }
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    // Both parts of such a short answer come in one read.
    let count = stream.read(&mut [0; 4096])?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(stream)
}
