//! A connection whose peer reads too slowly.

use std::io::{Read, Write};
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
    let request = Request { intended: 0, sent: 0, kind: 0 };
    connection.request(request, Draw::default());
    connection.flush().unwrap();
}

fn post(size: usize) -> Template {
    Template::http("POST", "localhost", "/").body_of_size(size)
}

/// The header of a frame of HTTP/2 on no stream, and its payload.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 0], payload].concat()
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

#[test]
fn an_answer_may_begin_while_much_of_its_request_is_unsent() {
    let (mut connection, mut peer) = open(Protocol::Http1, &post(MOST_REPLIES + MOST_UNSENT));
    ask(&mut connection);
    peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n").unwrap();
    assert_eq!(connection.read(&mut Vec::new()).unwrap(), Reading::Drained);
    assert!(connection.unsent() > MOST_REPLIES);
}

#[test]
fn a_body_for_which_the_server_makes_room_is_no_reply() {
    let (mut connection, mut peer) = open(Protocol::Http2, &post(MOST_REPLIES + MOST_UNSENT));
    let room = i32::MAX.to_be_bytes();
    peer.write_all(&frame(4, &[&[0, 4], &room[..]].concat())).unwrap();
    connection.read(&mut Vec::new()).unwrap();
    ask(&mut connection);
    assert!(connection.unsent() < LARGE, "the rest waits for the connection's window");
    let room = (i32::MAX - 65_535).to_be_bytes();
    peer.write_all(&frame(8, &room)).unwrap();
    assert_eq!(connection.read(&mut Vec::new()).unwrap(), Reading::Drained);
    assert!(connection.unsent() > MOST_REPLIES);
}

#[test]
fn replies_that_the_server_does_not_take_end_the_connection() {
    let (mut connection, mut peer) = open(Protocol::Http2, &post(0));
    peer.write_all(&frame(4, &[])).unwrap();
    let pings = frame(6, &[0; 8]).repeat(4096);
    let mut unsent = 0;
    let error = loop {
        peer.write_all(&pings).unwrap();
        if let Err(error) = connection.read(&mut Vec::new()) {
            break error;
        }
        connection.flush().unwrap();
        unsent = connection.unsent();
        assert!(unsent <= MOST_REPLIES);
    };
    assert!(error.to_string().contains("does not take"), "{error}");
    assert!(unsent > MOST_REPLIES - 2 * pings.len());
}
