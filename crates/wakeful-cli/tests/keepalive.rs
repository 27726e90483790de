//! `wakeful serve --keepalive`: when silent peers are probed.

mod common;

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use common::{GUARD, Service};

/// In how many seconds the server probes this client, by what the kernel says of the server's
/// socket. `None`: never.
fn probed_in(client: &TcpStream) -> Option<u32> {
    let port = |addr: SocketAddr| format!(":{:04X}", addr.port());
    let (near, far) = (port(client.local_addr().unwrap()), port(client.peer_addr().unwrap()));
    let start = Instant::now();
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        for line in table.lines() {
            let fields: Vec<_> = line.split_whitespace().collect();
            // The server's own side, once it has answered: which timer runs, and for how many
            // hundredths of a second.
            if fields[1].ends_with(&far) && fields[2].ends_with(&near) {
                let (timer, left) = fields[5].split_once(':').unwrap();
                match timer {
                    "00" => return None,
                    "02" => return Some(u32::from_str_radix(left, 16).unwrap().div_ceil(100)),
                    _ => {}
                }
            }
        }
        assert!(start.elapsed() < GUARD, "{table}");
    }
}

/// What a client asks, and what begins the answer.
type Exchange = (&'static [u8], &'static [u8]);

const GET: Exchange = (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 ");
/// Of HTTP/2: its preface, and settings for settings.
const HTTP2: Exchange = (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", b"\0");

/// `default`: after how many seconds a peer is probed if nothing is said.
fn check(service: &[&str], default: u32, (question, answer): Exchange) {
    for (more, expected) in [
        (&[][..], Some(31..=default)),
        (&["--keepalive", "30"], Some(1..=30)),
        (&["--keepalive", "0"], None),
    ] {
        let arguments = [service, &["--listen", "127.0.0.1:0"], more].concat();
        let mut server = Service::start(&arguments);
        let client = TcpStream::connect(server.behind("listening on ")).unwrap();
        common::ask(&client, question, answer);
        let is = probed_in(&client);
        let matches = match (&expected, is) {
            (Some(range), Some(is)) => range.contains(&is),
            (expected, is) => expected.is_none() && is.is_none(),
        };
        assert!(matches, "{arguments:?}: {is:?}");
    }
}

#[test]
fn kv_and_echo_probe_silent_peers_when_they_are_told_to() {
    check(&["kv"], 300, (b"PING\r\n", b"+PONG\r\n"));
    check(&["echo"], 300, (b"\0\0\0\x01a", b"\0\0\0\x01a"));
}

/// Who waits for a client that has vanished (a WebSocket, a stream of gRPC) would wait for ever.
#[test]
fn http_rpc_and_proxy_probe_silent_peers_when_they_are_told_to() {
    check(&["http"], 75, GET);
    check(&["http", "--accept", "dispatch"], 75, GET);
    check(&["http", "--accept", "reuse-port"], 75, GET);
    check(&["rpc"], 75, HTTP2);
    check(&["proxy", "--to", "unix:/nowhere"], 75, GET);
}
