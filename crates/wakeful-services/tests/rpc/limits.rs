//! The time limits of requests spare calls.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use wakeful_http::Limits;
use wakeful_services::ServeOptions;
use wakeful_services::rpc::{self, RpcOptions};

use super::channel::{GUARD, addr};

#[test]
fn a_call_may_be_silent_for_longer_than_a_body() {
    let options = ServeOptions::new()
        .listen(vec!["127.0.0.1:0".parse().unwrap()])
        .loops(1)
        .limits(Limits::new().body_timeout(Duration::from_millis(100)));
    let listeners = options.bind().unwrap();
    let running = rpc::start(&options, &RpcOptions::default(), listeners, Vec::new()).unwrap();
    let mut call = TcpStream::connect(addr(running.server())).unwrap();
    call.set_read_timeout(Some(GUARD)).unwrap();
    let head = "POST /wakeful.echo.v1.Echo/ClientStream HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc\r\n\
                connection: close\r\ncontent-length: 10\r\n\r\n";
    call.write_all(head.as_bytes()).unwrap();
    call.write_all(&[0; 5]).unwrap();
    // Much longer than a body may be silent.
    std::thread::sleep(Duration::from_millis(500));
    call.write_all(&[0; 5]).unwrap();
    let mut answer = Vec::new();
    call.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    // A message of two bytes: the first field says that two came.
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\x02\x08\x02"), "{answer:?}");
}

#[test]
fn what_is_no_grpc_by_its_type_is_415() {
    let options = ServeOptions::new().listen(vec!["127.0.0.1:0".parse().unwrap()]).loops(1);
    let listeners = options.bind().unwrap();
    let running = rpc::start(&options, &RpcOptions::default(), listeners, Vec::new()).unwrap();
    for (kind, status) in [
        ("content-type: application/json\r\n", 415),
        ("content-type: application/grpc-web\r\n", 415),
        ("content-type: application/grpc-web-text+proto\r\n", 415),
        ("content-type: application/grpcx\r\n", 415),
        ("", 415),
        ("content-type: application/grpc\r\n", 200),
        ("content-type: application/grpc+proto\r\n", 200),
        ("content-type: Application/GRPC; x=y\r\n", 200),
    ] {
        let mut call = TcpStream::connect(addr(running.server())).unwrap();
        call.set_read_timeout(Some(GUARD)).unwrap();
        let head = format!(
            "POST /wakeful.echo.v1.Echo/Unary HTTP/1.1\r\nhost: x\r\n{kind}connection: close\r\n\
             content-length: 5\r\n\r\n\0\0\0\0\0"
        );
        call.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        call.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{kind}: {answer}");
    }
}
