//! `wakeful serve kv` and `echo --keepalive`: when silent peers are probed.

mod common;

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use common::{GUARD, Service};

/// In how many seconds the server probes this client, by what the kernel says of the server's socket. `None`: never.
fn probed_in(client: &TcpStream) -> Option<u32> {
    let port = |addr: SocketAddr| format!(":{:04X}", addr.port());
    let (near, far) = (port(client.local_addr().unwrap()), port(client.peer_addr().unwrap()));
    let start = Instant::now();
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        for line in table.lines() {
            let fields: Vec<_> = line.split_whitespace().collect();
            // The server's own side, once it has answered: which timer runs, and for how many hundredths of a second.
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

#[test]
fn kv_and_echo_probe_silent_peers_when_they_are_told_to() {
    for (service, question, answer) in
        [("kv", &b"PING\r\n"[..], &b"+PONG\r\n"[..]), ("echo", b"\0\0\0\x01a", b"\0\0\0\x01a")]
    {
        for (more, expected) in [
            (&[][..], Some(295..=300)),
            (&["--keepalive", "30"], Some(25..=30)),
            (&["--keepalive", "0"], None),
        ] {
            let arguments = [&[service, "--listen", "127.0.0.1:0"], more].concat();
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
}
