//! Slow clients, and what waits for them in the proxy.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use socket2::{Domain, Socket, Type};

use crate::common::*;

#[test]
fn a_slow_upload_holds_no_connection_to_a_backend() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10000\r\n\r\n").unwrap();
    stream.write_all(&[b'x'; 5000]).unwrap();
    until("half of it waits", || proxy.counts().buffered() == 5000);
    assert_eq!((backend.connections(), proxy.counts().backends()[0].requests()), (0, 0));
    stream.write_all(&[b'x'; 5000]).unwrap();
    until("it has come", || backend.requests().len() == 1);
    assert!(backend.requests()[0].ends_with(&"x".repeat(10000)));
    until("nothing waits", || proxy.counts().buffered() == 0);
}

/// What waits is counted by its bytes, so a piece may not cost many times as much.
#[test]
fn a_body_in_chunks_of_a_byte_comes_to_the_backend_in_large_ones() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings);
    let head = "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\ntrailer: a\r\n\r\n";
    let chunks: String = (0..10_000).map(|at| format!("1\r\n{}\r\n", at % 10)).collect();
    assert_status(&ask(addr(&proxy), &format!("{head}{chunks}0\r\na: b\r\n\r\n")), 200);
    let requests = backend.requests();
    let pieces = requests[0].split_once("\r\n\r\n").unwrap().1.split("\r\n");
    // Trailers need chunks, so the pieces are seen.
    let text: Vec<&str> = pieces.skip(1).step_by(2).take(3).collect();
    assert_eq!(text.iter().map(|piece| piece.len()).collect::<Vec<_>>(), [4096, 4096, 1808]);
    assert!(text.concat() == "0123456789".repeat(1000), "{text:?}");
}

#[test]
fn an_upload_beyond_the_buffer_is_streamed() {
    let come = Arc::new(AtomicUsize::new(0));
    let counter = come.clone();
    let backend = Backend::start(move |_, stream| {
        let mut buf = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buf) {
            counter.fetch_add(read, Ordering::Relaxed);
        }
    });
    let proxy = proxy(&[backend.addr], |settings| settings.request_buffer(1000));
    let mut stream = connect(addr(&proxy));
    stream.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10000\r\n\r\n").unwrap();
    stream.write_all(&[b'x'; 2000]).unwrap();
    // And its head.
    until("the backend has what there is", || come.load(Ordering::Relaxed) > 2000);
    until("nothing waits", || proxy.counts().buffered() == 0);
    stream.write_all(&[b'x'; 3000]).unwrap();
    until("the backend has what there is", || come.load(Ordering::Relaxed) > 5000);
}

/// A client that takes little at a time from the kernel.
fn narrow(proxy: &wakeful_services::proxy::RunningProxy) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&addr(proxy).into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream
}

fn ask_for(stream: &mut TcpStream, bytes: usize) {
    let request = format!("GET /bytes/{bytes} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
}

/// More than the kernel keeps for a connection that is not read (`tcp_wmem`), so that the proxy has
/// the rest.
const LARGE: usize = 12 << 20;

#[test]
fn a_slow_reader_holds_no_connection_to_a_backend() {
    let (_service, to) = service();
    let proxy = proxy(&[to], |settings| settings.response_buffer(LARGE));
    let mut stream = narrow(&proxy);
    ask_for(&mut stream, LARGE);
    until("the backend has it behind it", || {
        proxy.counts().backends()[0].requests() == 1
            && proxy.counts().backends()[0].in_flight() == 0
    });
    assert!(proxy.counts().buffered() > 0, "the client has read nothing");
    assert_eq!(body(&read_all(&mut stream)).len(), LARGE);
    until("nothing waits", || proxy.counts().buffered() == 0);
}

/// How much the proxy has when nothing moves any more. hyper reads at most so much at once.
const PIECE: u64 = 64 * 1024;

fn settled(proxy: &wakeful_services::proxy::RunningProxy) -> u64 {
    let polls = || proxy.server().handles()[0].metrics().polls;
    let mut last = (polls(), 0);
    until("the loop has nothing to do", || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (before, same) = last;
        last = if polls() == before { (before, same + 1) } else { (polls(), 0) };
        last.1 >= 5
    });
    proxy.counts().buffered()
}

#[test]
fn beyond_its_buffer_a_response_is_read_as_its_client_reads() {
    let (_service, to) = service();
    let proxy = proxy(&[to], |settings| settings.response_buffer(100_000));
    let mut stream = narrow(&proxy);
    ask_for(&mut stream, LARGE * 3);
    until("much of it has come", || proxy.counts().buffered() >= 100_000);
    let waits = settled(&proxy);
    assert!((100_000..100_000 + PIECE).contains(&waits), "{waits}");
    assert_eq!(proxy.counts().backends()[0].in_flight(), 1);
    assert_eq!(body(&read_all(&mut stream)).len(), LARGE * 3);
    until("nothing waits", || proxy.counts().buffered() == 0);
}

#[test]
fn all_responses_of_a_loop_together_have_a_limit_and_none_is_stuck_behind_the_others() {
    let (_service, to) = service();
    let proxy = proxy(&[to], |settings| settings.loop_buffer(300_000));
    let mut streams: Vec<_> = (0..6).map(|_| narrow(&proxy)).collect();
    for stream in &mut streams {
        ask_for(stream, LARGE);
    }
    until("much of it has come", || proxy.counts().buffered() >= 300_000);
    let waits = settled(&proxy);
    assert!((300_000..300_000 + 6 * PIECE).contains(&waits), "{waits}");
    // From the last to the first, each to its end while the others wait.
    while let Some(mut stream) = streams.pop() {
        assert_eq!(body(&read_all(&mut stream)).len(), LARGE);
    }
    until("nothing waits", || proxy.counts().buffered() == 0);
}

#[test]
fn a_client_that_leaves_ends_what_the_backend_does_for_it() {
    let (_service, to) = service();
    let proxy = proxy(&[to], |settings| settings);
    let mut stream = narrow(&proxy);
    ask_for(&mut stream, 1 << 30);
    stream.read_exact(&mut [0; 1000]).unwrap();
    assert_eq!(proxy.counts().backends()[0].in_flight(), 1);
    drop(stream);
    until("it is over", || {
        proxy.counts().backends()[0].in_flight() == 0 && proxy.counts().buffered() == 0
    });
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
}

#[test]
fn pieces_of_a_stream_reach_the_client_as_they_come() {
    let (next, nexts) = std::sync::mpsc::channel::<()>();
    let nexts = std::sync::Mutex::new(nexts);
    let backend = Backend::start(move |this, stream| {
        this.read(stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        while nexts.lock().unwrap().recv().is_ok() {
            stream.write_all(b"9\r\ndata: x\n\n\r\n").unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    for number in 1..=5 {
        next.send(()).unwrap();
        while text.matches("data: x").count() < number {
            let mut buf = [0; 1000];
            let read = stream.read(&mut buf).unwrap();
            assert!(read > 0, "{text}");
            text.push_str(std::str::from_utf8(&buf[..read]).unwrap());
        }
    }
    drop(next);
    assert!(read_all(&mut stream).ends_with("0\r\n\r\n"));
}

#[test]
fn a_call_of_grpc_that_waits_for_an_answer_gets_it() {
    let (_service, to) = service();
    let proxy = proxy(&[to], |settings| settings);
    let mut stream = connect(addr(&proxy));
    let head = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    for word in ["hello", "again"] {
        stream.write_all(format!("5\r\n{word}\r\n").as_bytes()).unwrap();
        let (mut text, mut buf) = (String::new(), [0; 1024]);
        while !text.contains(word) {
            let read = stream.read(&mut buf).unwrap();
            assert!(read > 0, "{text}");
            text.push_str(std::str::from_utf8(&buf[..read]).unwrap());
        }
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
}
