//! What of a server's limits means something else in a proxy: calls of gRPC are spared its time
//! limits only where they can be calls.

use std::io::Write;
use std::time::Duration;

use wakeful_http::Limits;
use wakeful_http::client::HttpVersion;
use wakeful_services::proxy::{self, ProxyOptions, RunningProxy};

use crate::common::*;

const CLAIM: &str = "content-type: application/grpc\r\n";

/// It does not wait for bodies.
fn impatient(to: std::net::SocketAddr, version: HttpVersion) -> RunningProxy {
    let limits = Limits::new().body_timeout(Duration::from_millis(100));
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let options = options(1).limits(limits).listen(listen);
    let settings = ProxyOptions::new(vec![to.into()]).version(version);
    proxy::start(&options, settings, options.bind().unwrap(), Vec::new()).unwrap()
}

fn half(fields: &str) -> String {
    format!(
        "POST /echo HTTP/1.1\r\nhost: x\r\n{fields}content-length: 10\r\nconnection: close\r\n\r\nhalf "
    )
}

#[test]
fn in_front_of_backends_of_http1_nobody_is_spared_who_calls_himself_grpc() {
    let backend = Backend::mirror();
    let proxy = impatient(backend.addr, HttpVersion::Http1);
    for fields in ["", CLAIM] {
        assert_status(&ask(addr(&proxy), &half(fields)), 408);
    }
}

#[test]
fn in_front_of_backends_of_http2_a_call_may_take_its_time() {
    let (_service, to) = service();
    let proxy = impatient(to, HttpVersion::Http2);
    let mut call = connect(addr(&proxy));
    call.write_all(half(CLAIM).as_bytes()).unwrap();
    // The same, but for its type, tells that the time has passed.
    assert!(!ask(addr(&proxy), &half("")).ends_with("again"));
    call.write_all(b"again").unwrap();
    let answer = read_all(&mut call);
    assert_status(&answer, 200);
    assert!(answer.contains("half ") && answer.contains("again"), "{answer}");
}

/// What has come could be the whole body, until more comes.
#[test]
fn a_body_without_a_length_that_becomes_too_large_is_413_and_not_cut_off() {
    const MOST: usize = 1000;
    let backend = Backend::mirror();
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let options = options(1).limits(Limits::new().max_body(MOST as u64)).listen(listen);
    let settings = ProxyOptions::new(vec![backend.addr.into()]).request_buffer(MOST);
    let proxy = proxy::start(&options, settings, options.bind().unwrap(), Vec::new()).unwrap();
    let head =
        "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = "x".repeat(MOST);
    let begun = format!("{head}{MOST:x}\r\n{chunk}\r\n");
    for (rest, status) in [("1\r\ny\r\n0\r\n\r\n", 413), ("0\r\n\r\n", 200)] {
        for at_once in [true, false] {
            let mut client = connect(addr(&proxy));
            if at_once {
                client.write_all(format!("{begun}{rest}").as_bytes()).unwrap();
            } else {
                client.write_all(begun.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                client.write_all(rest.as_bytes()).unwrap();
            }
            assert_status(&read_all(&mut client), status);
        }
    }
}
