//! What `/metrics` reports about HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use wakeful::IdlePolicy;
use wakeful::accept::AcceptStrategy;
use wakeful::net::ListenAddr;
use wakeful_services::{ServeOptions, http};

/// Everything that is answered to `text` on a connection of its own.
fn ask(addr: &ListenAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(addr.to_string()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_is_refused_is_a_line_that_rises() {
    let options = ServeOptions::new()
        .listen(vec!["127.0.0.1:0".parse().unwrap()])
        .loops(2)
        .accept(AcceptStrategy::Exclusive)
        .concentrate(None)
        .moves(None)
        .idle(IdlePolicy::Park)
        .grace(Duration::from_secs(10));
    let running =
        http::start(&options, http::HttpOptions::default(), options.bind().unwrap(), Vec::new())
            .unwrap()
            .into_server();
    let addr = &running.local_addrs()[0];
    let metrics = || ask(addr, "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let before = metrics();
    assert!(before.contains("wakeful_http_refused_total{reason=\"malformed\"} 0\n"), "{before}");
    assert!(before.contains("wakeful_http_requests_in_flight{loop=\"1\"}"), "{before}");
    assert!(ask(addr, "no such thing\r\n\r\n").starts_with("HTTP/1.1 400"));
    let line = "wakeful_http_refused_total{reason=\"malformed\"} 1\n";
    // hyper answers before it says why.
    let counted = (0..1000).any(|_| metrics().contains(line));
    assert!(counted, "{}", metrics());
    let after = metrics();
    assert!(after.contains("wakeful_http_responses_total{class=\"2xx\"}"), "{after}");
    assert_eq!(running.shutdown(Duration::from_secs(10)).unwrap(), 0);
}
