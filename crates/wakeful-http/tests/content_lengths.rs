//! A response's `Content-Length` that does not fit its body.

mod common;

use std::convert::Infallible;
use std::io::Write;

use axum::body::Body;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use wakeful::time::timeout;
use wakeful_http::client::{Client, HttpVersion};
use wakeful_http::{RequestBody, Running, service_fn};

use common::*;

/// Answers with the lengths of the header `x-lengths`, the codings of `x-codings`, and `a body`:
/// `/stream` does not know how long it is, `/empty` has none, and `/204` has that status.
fn start() -> Running {
    let service = |request: Request<RequestBody>| async move {
        let pieces = [Ok::<_, Infallible>("a "), Ok("body")];
        let mut response = Response::new(match request.uri().path() {
            "/stream" => Body::from_stream(stream::iter(pieces)),
            "/empty" => Body::empty(),
            _ => Body::from("a body"),
        });
        if let Ok(status) = request.uri().path()[1..].parse() {
            *response.status_mut() = status;
        }
        for length in request.headers().get_all("x-lengths") {
            response.headers_mut().append(CONTENT_LENGTH, length.clone());
        }
        for coding in request.headers().get_all("x-codings") {
            response.headers_mut().append(TRANSFER_ENCODING, coding.clone());
        }
        Ok::<_, Infallible>(response)
    };
    server().start_with(move || service_fn(service)).unwrap()
}

/// The answers of a connection to two requests.
fn ask_twice(running: &Running, method: &str, path: &str, lengths: &[&str]) -> String {
    let lengths: String = lengths.iter().map(|it| format!("x-lengths: {it}\r\n")).collect();
    let one = format!("{method} {path} HTTP/1.1\r\nhost: x\r\n{lengths}");
    let mut stream = raw(running);
    stream.write_all(format!("{one}\r\n{one}connection: close\r\n\r\n").as_bytes()).unwrap();
    read_all(stream)
}

#[test]
fn a_length_that_is_not_the_body_s_is_not_sent_and_the_next_response_is_found() {
    let running = start();
    let none: [&[&str]; 8] = [
        &["abc"],
        &["+6"],
        &["-6"],
        &["6, 6"],
        &["6", "7"],
        &["6", "6"],
        &[""],
        &["99999999999999999999"],
    ];
    let another: [&[&str]; 4] = [&["0"], &["3"], &["7"], &["100"]];
    let known = none.iter().chain(&another).map(|it| ("/known", "content-length: 6\r\n", *it));
    let stream = none.iter().map(|it| ("/stream", "transfer-encoding: chunked\r\n", *it));
    let empty = another[1..].iter().map(|it| ("/empty", "content-length: 0\r\n", *it));
    for (path, own, lengths) in known.chain(stream).chain(empty) {
        let answers = ask_twice(&running, "GET", path, lengths);
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{path} {lengths:?}: {answers}");
        assert_eq!(answers.matches(own).count(), 2, "{path} {lengths:?}: {answers}");
        let is_chunked = path == "/stream";
        let lengths_sent = answers.matches("content-length").count();
        assert_eq!(lengths_sent, if is_chunked { 0 } else { 2 }, "{path} {lengths:?}: {answers}");
    }
    let answers = ask_twice(&running, "HEAD", "/empty", &["0", "0"]);
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
}

#[test]
fn a_length_that_fits_is_sent_and_so_is_that_of_a_head() {
    let running = start();
    let cases = [("GET", "/known", "6"), ("GET", "/stream", "6"), ("HEAD", "/empty", "1000")];
    for (method, path, length) in cases {
        let answers = ask_twice(&running, method, path, &[length]);
        let sent = answers.matches(&format!("content-length: {length}\r\n")).count();
        assert_eq!(sent, 2, "{method} {path}: {answers}");
    }
}

#[test]
fn a_length_beside_a_transfer_encoding_is_not_sent() {
    let running = start();
    for path in ["/known", "/stream"] {
        let answers = ask_twice(&running, "GET", path, &["6\r\nx-codings: chunked"]);
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{path}: {answers}");
        assert_eq!(answers.matches("content-length").count(), 0, "{path}: {answers}");
        assert_eq!(answers.matches("transfer-encoding: chunked").count(), 2, "{path}: {answers}");
    }
}

#[test]
fn a_response_with_no_content_has_no_length() {
    let running = start();
    for length in ["0", "6", "abc"] {
        let answers = ask_twice(&running, "GET", "/204", &[length]);
        assert_eq!(answers.matches("HTTP/1.1 204").count(), 2, "{length}: {answers}");
        assert!(!answers.contains("content-length"), "{length}: {answers}");
    }
}

#[test]
fn a_wrong_length_costs_no_response_over_http2() {
    let running = start();
    let test = async {
        let client: Client<Full<Bytes>> = Client::builder().version(HttpVersion::Http2).build();
        for length in ["0", "3", "7", "100", "abc"] {
            let uri = format!("http://{}/known", addr(&running));
            let request = Request::builder().method(Method::GET).uri(uri);
            let request = request.header("x-lengths", length).body(Full::default()).unwrap();
            let body = client.send(request).await.unwrap().into_body().collect().await;
            assert_eq!(body.expect("it is whole").to_bytes(), "a body", "{length}");
        }
    };
    wakeful::block_on(timeout(GUARD, test)).expect("a hang is a failure");
}
