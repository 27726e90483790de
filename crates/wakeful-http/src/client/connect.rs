//! Makes a connection. hyper reads and writes it through `transport`.
//!
//! A name may have several addresses. They are tried in turn; if one takes long, the next one is
//! tried meanwhile, as RFC 8305 advises ("happy eyeballs", without its sorting by history). The
//! first connection wins and the others close.

use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use wakeful::net::{Stream, TcpStream, UnixStream};
use wakeful::time::timeout;

use super::local_port;
use super::look_up::LookUp;
use super::target::Place;
use super::transport::Transport;
use super::{HttpVersion, Target};
use crate::tls::security::Security;
use crate::tls::{Alpn, ClientTls, TlsStream};

/// How long one address may take before the next one is tried in parallel (RFC 8305, 8).
const NEXT_ATTEMPT: Duration = Duration::from_millis(250);

/// `tls` says which certificates are trusted. `patience` is how long to wait for a look-up of the
/// target's name that is already under way.
pub(super) async fn connect(
    target: &Target,
    tls: Option<&ClientTls>,
    look_up: &LookUp,
    patience: Duration,
) -> io::Result<Transport> {
    let tls = match (target.security, tls) {
        (Security::Plain, _) => None,
        (Security::Tls, Some(tls)) => Some(tls),
        (Security::Tls, None) => {
            let text = "the client has no TLS settings (`ClientBuilder::tls`)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    };
    let stream = match &target.place {
        Place::Address(addr) | Place::Resolved(_, addr) => Stream::Tcp(connect_tcp(*addr).await?),
        Place::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
        Place::Abstract(name) => {
            let addr = net::SocketAddr::from_abstract_name(name)?;
            Stream::Unix(UnixStream::connect_addr(&addr).await?)
        }
        Place::Name(name, port) => {
            let addrs = look_up.addresses(name, *port, patience).await?;
            Stream::Tcp(connect_any(by_turns(addrs)).await?)
        }
    };
    match tls {
        None => Ok(Transport::Plain(stream)),
        Some(tls) => handshake(stream, target, tls).await.map(Transport::Tls),
    }
}

/// Makes a TLS handshake. The caller knows the protocol, so the handshake offers only that one.
async fn handshake(
    stream: Stream,
    target: &Target,
    tls: &ClientTls,
) -> io::Result<TlsStream<Stream>> {
    let protocol = match target.version {
        HttpVersion::Http1 => Alpn::Http1,
        HttpVersion::Http2 => Alpn::Http2,
    };
    let stream = tls.connect_with(stream, &target.server_name(), &[protocol]).await?;
    // A server that does not support ALPN speaks HTTP/1.1.
    if stream.alpn().unwrap_or(Alpn::Http1) != protocol {
        let text = "the server does not speak HTTP/2";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    Ok(stream)
}

async fn connect_tcp(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr).await;
    let stream = stream.map_err(|error| local_port::explain(error, addr))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sorts the addresses so that the two families alternate, beginning with that of the first
/// address.
fn by_turns(addrs: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addrs.first().copied() else { return addrs };
    let (one, other): (Vec<_>, Vec<_>) =
        addrs.into_iter().partition(|addr| addr.is_ipv4() == first.is_ipv4());
    let length = one.len().max(other.len());
    (0..length).flat_map(|at| [one.get(at), other.get(at)]).flatten().copied().collect()
}

async fn connect_any(addrs: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut attempts = FuturesUnordered::new();
    let mut last = None;
    for addr in addrs {
        attempts.push(connect_tcp(addr));
        // If one fails meanwhile, the next one begins at once.
        if let Ok(Some(ended)) = timeout(NEXT_ATTEMPT, attempts.next()).await {
            match ended {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
    }
    while let Some(ended) = attempts.next().await {
        match ended {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last
        .unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no addresses")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_families_of_addresses_take_turns() {
        let read = |text: &str| -> Vec<SocketAddr> {
            text.split(' ').map(|addr| addr.parse().unwrap()).collect()
        };
        let (given, turns) = (
            "[::1]:1 [::2]:1 [::3]:1 1.1.1.1:1 2.2.2.2:1",
            "[::1]:1 1.1.1.1:1 [::2]:1 2.2.2.2:1 [::3]:1",
        );
        assert_eq!(by_turns(read(given)), read(turns));
        assert_eq!(by_turns(Vec::new()), []);
    }

    #[test]
    fn addresses_that_refuse_cost_no_time_while_another_one_does_not_answer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // A full backlog: the kernel answers no further client.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&silent, 0).unwrap();
        let _in_backlog = std::net::TcpStream::connect(silent.local_addr().unwrap()).unwrap();
        let refuses = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut addrs = vec![silent.local_addr().unwrap()];
        addrs.extend([refuses; 20]);
        addrs.push(listener.local_addr().unwrap());
        wakeful::EventLoop::builder()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(async {
                let begun = wakeful::time::now();
                connect_any(addrs).await.unwrap();
                // The clock moves only where all wait.
                assert_eq!(wakeful::time::now() - begun, NEXT_ATTEMPT);
            })
            .unwrap();
    }
}
