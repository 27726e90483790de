//! Clients that the kernel did not hear at first, because their listener was closed by its least
//! TTL when they came in.

use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::sys::socket_options;

/// A server that answers two bytes with one, unless the drain begins before they come.
fn server(strategy: AcceptStrategy, listener: SharedListener) -> Serving {
    let group = LoopGroup::builder().loops(1);
    ConnectionServer::new(vec![listener])
        .group(group)
        .strategy(strategy)
        .start(|| {
            async |connection: Connection| {
                let Connection { mut stream, draining, .. } = connection;
                let answer = async {
                    let mut buf = [0; 1];
                    for _ in 0..2 {
                        let _ = stream.read(&mut buf).await;
                    }
                    let _ = stream.write_all(b"!").await;
                };
                futures_lite::future::or(answer, draining.started()).await;
            }
        })
        .unwrap()
}

#[test]
fn who_was_not_heard_at_first_is_heard_before_the_connections_are_told() {
    for strategy in [AcceptStrategy::Exclusive, AcceptStrategy::Dispatch(Placement::RoundRobin)] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // The handshake is over for the client, and here with the first byte only.
        socket_options::set(&listener, libc::TCP_DEFER_ACCEPT, 30).unwrap();
        let socket = OwnedFd::from(listener.try_clone().unwrap());
        let serving = server(strategy, SharedListener::from_socket(socket).unwrap());
        let mut client = TcpStream::connect(addr(&serving, 0)).unwrap();
        // As another process does.
        socket_options::set_of(&listener, (libc::IPPROTO_IP, libc::IP_MINTTL), 255).unwrap();
        let (release, released) = mpsc::channel::<()>();
        serving.handles()[0].post(move || released.recv().unwrap_or(())).unwrap();
        client.write_all(b"a").unwrap();
        // The kernel drops this, because nobody has accepted the connection.
        client.write_all(b"b").unwrap();
        let ending = thread::spawn(move || serving.shutdown(LONG));
        drop(release);
        client.set_read_timeout(Some(LONG)).unwrap();
        let mut answer = [0];
        client.read_exact(&mut answer).expect("answered");
        assert_eq!(ending.join().unwrap().unwrap(), 0);
    }
}
