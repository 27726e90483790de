//! Interim responses (1xx): which client is told to continue with its body, and what happens to a
//! backend's.

use std::io::{Read, Write};

use crate::common::*;

#[test]
fn a_client_that_expects_100_is_told_to_go_on_and_the_backend_hears_nothing_of_it() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream
        .write_all(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").unwrap();
    assert_status(&read_all(&mut stream), 200);
    let seen = &backend.requests()[0];
    assert!(!seen.contains("expect") && seen.ends_with("\r\n\r\nbody"), "{seen}");
    let answer = ask(addr(&proxy), "GET / HTTP/1.1\r\nhost: x\r\nexpect: a-wonder\r\n\r\n");
    assert_status(&answer, 417);
}

/// It is told when its body is wanted: at once where that is gathered, and when a backend takes it
/// where it is streamed.
#[test]
fn a_client_is_told_to_go_on_if_and_when_its_body_is_wanted() {
    let expects = "POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\nconnection: close\r\n";
    let go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    for request_buffer in [0, 1000] {
        let backend = Backend::mirror();
        let proxy = proxy(&[backend.addr], |settings| settings.request_buffer(request_buffer));
        let mut stream = connect(addr(&proxy));
        stream.write_all(format!("{expects}\r\n").as_bytes()).unwrap();
        let mut interim = vec![0; go_on.len()];
        stream.read_exact(&mut interim).unwrap();
        assert_eq!(String::from_utf8_lossy(&interim), go_on);
        assert_eq!(backend.requests().len(), 0, "it has no body yet");
        stream.write_all(b"body").unwrap();
        assert_status(&read_all(&mut stream), 200);
        assert!(backend.requests()[0].ends_with("\r\n\r\nbody"));
    }
    // Nobody wants what is refused, and what no backend takes.
    let proxy = proxy(&[nowhere()], |settings| settings.request_buffer(0));
    assert_status(&ask(addr(&proxy), &format!("{expects}\r\n")), 502);
    let refused = ask(addr(&proxy), &format!("{expects}transfer-encoding: gzip\r\n\r\n"));
    assert!(refused.starts_with("HTTP/1.1 4"), "{refused}");
}

/// Whatever a backend says before its answer, and however often.
#[test]
fn interim_responses_of_a_backend_are_its_and_the_proxys_affair() {
    let backend = Backend::saying(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
         HTTP/1.1 103 Early Hints\r\nlink: </b>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    );
    let proxy = proxy(&[backend.addr], |settings| settings);
    for _ in 0..2 {
        let answer = ask(
            addr(&proxy),
            "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbody",
        );
        assert_status(&answer, 200);
        assert_eq!(body(&answer), "ok");
        assert!(!answer.contains("link"), "{answer}");
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn an_interim_response_goes_no_further_and_disturbs_nothing() {
    let backend = Backend::saying(
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    );
    let proxy = proxy(&[backend.addr], |settings| settings);
    for _ in 0..2 {
        let answer = get(addr(&proxy), "/");
        assert_status(&answer, 200);
        assert_eq!(body(&answer), "ok");
    }
}
