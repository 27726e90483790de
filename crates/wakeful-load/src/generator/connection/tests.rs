//! A peer that takes less than there is to send.

use std::io::Read;
use std::os::unix::net::UnixStream;

use super::*;
use crate::protocol::{Protocol, Requests, Template};

const LARGE: usize = 64 << 10;

/// More than any test has in flight.
const IN_FLIGHT: usize = 1000;

/// Returns a connection, and its other end.
fn open(protocol: Protocol, template: &Template) -> (Connection, UnixStream) {
    let requests = Requests::new(protocol, template).unwrap();
    let (ours, peer) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    peer.set_nonblocking(true).unwrap();
    let mut connection = Connection::new(requests.conversation());
    connection.open(ours.into(), requests.conversation());
    (connection, peer)
}

fn ask(connection: &mut Connection) {
    let request = Request { intended: 0, possible: 0, sent: 0, kind: 0 };
    connection.request(request, Draw::default());
    connection.flush().unwrap();
}

#[test]
fn what_was_sent_takes_no_memory_even_if_something_always_waits() {
    let (mut connection, mut peer) = open(Protocol::Frames, &Template::of_size(LARGE));
    // More than the kernel has room for.
    for _ in 0..16 {
        ask(&mut connection);
    }
    let mut taken = vec![0; LARGE];
    for _ in 0..500 {
        peer.read_exact(&mut taken).unwrap();
        ask(&mut connection);
        assert!(connection.unsent() > 0);
        assert!(connection.output.len() < 64 * LARGE, "{}", connection.output.len());
    }
}

#[test]
fn a_connection_takes_requests_until_much_is_unsent() {
    let (mut connection, mut peer) = open(Protocol::Frames, &Template::of_size(LARGE));
    for _ in 0..10 {
        while connection.may_request(IN_FLIGHT) {
            ask(&mut connection);
        }
        let unsent = connection.unsent();
        assert!((MOST_UNSENT..MOST_UNSENT + 2 * LARGE).contains(&unsent), "{unsent}");
        while !connection.may_request(IN_FLIGHT) {
            let _ = peer.read(&mut vec![0; LARGE]).unwrap();
            connection.flush().unwrap();
        }
    }
}
