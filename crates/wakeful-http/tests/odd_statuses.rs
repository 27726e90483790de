//! Responses whose status says that they are none, or that they have no body, and whose version is
//! not that of their connection.

mod common;

use std::convert::Infallible;
use std::io::{Read, Write};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use wakeful::LoopGroup;
use wakeful_http::client::{Client, HttpVersion};
use wakeful_http::{RequestBody, Running, service_fn};

use common::*;

/// Answers with the status that the path names, and a body. `/200` waits until a second one comes.
fn start() -> Running {
    let (together, met) = async_channel::bounded::<()>(1);
    server()
        .group(LoopGroup::builder().loops(1))
        .start_with(move || {
            let (together, met) = (together.clone(), met.clone());
            service_fn(move |request: Request<RequestBody>| {
                let (together, met) = (together.clone(), met.clone());
                async move {
                    let status = request.uri().path()[1..].parse().unwrap();
                    if status == 200 && request.method() == Method::GET {
                        met.recv().await.unwrap();
                    } else {
                        let _ = together.try_send(());
                    }
                    let mut response = Response::new(Full::<Bytes>::from("a body"));
                    *response.status_mut() = StatusCode::from_u16(status).unwrap();
                    Ok::<_, Infallible>(response)
                }
            })
        })
        .unwrap()
}

fn http2() -> Client<Full<Bytes>> {
    Client::builder().version(HttpVersion::Http2).max_connections(1).build()
}

fn request(running: &Running, method: Method, status: u16) -> Request<Full<Bytes>> {
    let url = format!("http://{}/{status}", addr(running));
    Request::builder().method(method).uri(url).body(Full::default()).unwrap()
}

#[test]
fn an_interim_status_from_a_handler_is_500_and_ends_no_other_request() {
    for status in [100, 101, 103] {
        let running = start();
        wakeful::block_on(async {
            let client = http2();
            let beside = client.send(request(&running, Method::GET, 200));
            let interim = client.send(request(&running, Method::GET, status));
            let (beside, interim) = futures_util::join!(beside, interim);
            assert_eq!(interim.unwrap().status(), 500, "{status}");
            let beside = beside.expect("it is another request").into_body().collect().await;
            assert_eq!(beside.unwrap().to_bytes(), "a body");
        });
    }
}

#[test]
fn a_change_of_protocol_that_nobody_asked_for_is_500() {
    let running = start();
    let mut stream = raw(&running);
    let twice = "GET /101 HTTP/1.1\r\nhost: x\r\n\r\nGET /404 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(twice.as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert!(answers.starts_with("HTTP/1.1 500"), "{answers}");
    assert!(answers.contains("HTTP/1.1 404"), "the next one is answered: {answers}");
}

#[test]
fn an_interim_status_for_a_request_that_asks_for_an_upgrade_is_500() {
    for status in [100, 103] {
        let running = start();
        let mut stream = raw(&running);
        let asks = "connection: upgrade\r\nupgrade: x\r\n";
        let twice = format!(
            "GET /{status} HTTP/1.1\r\nhost: x\r\n{asks}\r\nGET /404 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(twice.as_bytes()).unwrap();
        let answers = read_all(stream);
        assert!(answers.starts_with("HTTP/1.1 500"), "{answers}");
        assert!(answers.contains("HTTP/1.1 404"), "the next one is answered: {answers}");
    }
}

#[test]
fn with_http2_no_body_follows_where_there_is_none() {
    let running = start();
    wakeful::block_on(async {
        let client = http2();
        for (method, status) in [(Method::HEAD, 200), (Method::GET, 204), (Method::GET, 304)] {
            let response = client.send(request(&running, method, status)).await.unwrap();
            assert_eq!(response.status(), status);
            let body = response.into_body().collect().await.expect("no error of the stream");
            assert_eq!(body.to_bytes(), "", "{status}");
        }
    });
}

#[test]
fn a_version_that_a_response_was_given_costs_neither_it_nor_its_connection() {
    let versions = [Version::HTTP_09, Version::HTTP_10, Version::HTTP_2, Version::HTTP_3];
    for version in versions {
        let service = move |_: Request<RequestBody>| async move {
            let mut response = Response::new(Full::<Bytes>::from("a body"));
            *response.version_mut() = version;
            Ok::<_, Infallible>(response)
        };
        let running = server().start_with(move || service_fn(service)).unwrap();
        let mut stream = raw(&running);
        let twice = "GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(twice.as_bytes()).unwrap();
        let answers = read_all(stream);
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{version:?}: {answers}");
    }
}
