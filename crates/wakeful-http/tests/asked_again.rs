//! What has ended, or fails at once, and is asked again and again by code that passes over that,
//! leaves its loop to others.

mod common;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{any, post};
use http_body_util::{BodyExt, Full};
use wakeful::LoopGroup;
use wakeful_http::client::{Client, HttpVersion};
use wakeful_http::ws::{Message, WebSocket, WebSocketUpgrade};
use wakeful_http::{Running, Server};

use common::frames::{self, *};
use common::*;

/// Another task has its turn although `operation` is never pending of itself.
async fn gives_way(mut operation: impl AsyncFnMut()) -> bool {
    let others = Arc::new(AtomicBool::new(false));
    let mark = others.clone();
    wakeful::spawn(async move { mark.store(true, Ordering::Relaxed) }).detach();
    let mut times = 0;
    while !others.load(Ordering::Relaxed) && times < 10_000 {
        operation().await;
        times += 1;
    }
    times < 10_000
}

/// Starts a server of one loop.
fn start(app: Router) -> Running {
    let group = LoopGroup::builder().loops(1);
    Server::bind("127.0.0.1:0").unwrap().group(group).start(app).unwrap()
}

fn reads(tell: Sender<bool>) -> Router {
    let reads = async move |mut body: Body| {
        // It outlives its request.
        wakeful::spawn(async move {
            while let Some(Ok(_)) = body.frame().await {}
            tell.send(gives_way(async || drop(body.frame().await)).await).unwrap();
        })
        .detach();
        std::future::pending::<&str>().await
    };
    Router::new().route("/", post(reads))
}

#[test]
fn a_request_s_body_behind_an_error_leaves_its_loop_to_others() {
    let (tell, told) = mpsc::channel();
    let running = start(reads(tell));
    let mut stream = raw(&running);
    stream.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nbody").unwrap();
    drop(stream);
    assert!(told.recv_timeout(GUARD).unwrap(), "HTTP/1.1");
    let mut client = frames::Client::new(&running);
    client.send(HEADERS, END_HEADERS, 1, &head("POST", "/"));
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    assert!(told.recv_timeout(GUARD).unwrap(), "HTTP/2");
}

#[test]
fn a_websocket_whose_client_is_gone_leaves_its_loop_to_others() {
    let (tell, told) = mpsc::channel();
    let uses = async move |mut socket: WebSocket| {
        while let Some(Ok(_)) = socket.recv().await {}
        let reads = gives_way(async || assert!(socket.recv().await.is_none())).await;
        let sends = async || drop(socket.send(Message::text("x")).await.unwrap_err());
        tell.send((reads, gives_way(sends).await)).unwrap();
    };
    let open = async move |ws: WebSocketUpgrade| ws.on_upgrade(uses);
    let running = start(Router::new().route("/", any(open)));
    let mut stream = raw(&running);
    let handshake = "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(handshake.as_bytes()).unwrap();
    assert!(stream.read(&mut [0; 512]).unwrap() > 0);
    drop(stream);
    assert_eq!(told.recv_timeout(GUARD).unwrap(), (true, true));
}

fn request(uri: &str) -> http::Request<Full<Bytes>> {
    http::Request::get(uri).body(Full::default()).unwrap()
}

/// The first of them could never be answered: the queue moves when others have their turn.
#[test]
fn a_request_that_fails_at_once_leaves_its_loop_to_others() {
    let running = server().start(router()).unwrap();
    let url = |path: &str| format!("http://{}{path}", addr(&running));
    wakeful::block_on(async {
        let client: Client<Full<Bytes>> =
            Client::<Full<Bytes>>::builder().max_connections(1).max_waiting(0).build();
        let (never, first) = (request(&url("/never")), client.clone());
        let first = wakeful::spawn(async move { first.send(never).await.map(drop) });
        while running.http_counts().in_flight() == 0 {
            wakeful::time::sleep(Duration::from_millis(1)).await;
        }
        let full =
            async || assert!(client.send(request(&url("/"))).await.unwrap_err().is_overload());
        assert!(gives_way(full).await, "the queue is full");
        let unknown = async || drop(client.send(request("ftp://x/")).await.unwrap_err());
        assert!(gives_way(unknown).await, "not a scheme of ours");
        let host = client.host(&"unix:/none".parse().unwrap());
        let nobody = async || drop(host.send(request("http://x/")).await.unwrap_err());
        assert!(gives_way(nobody).await, "nobody listens");
        let nobody = async || drop(host.upgrade(request("http://x/")).await.unwrap_err());
        assert!(gives_way(nobody).await, "nobody listens, for an upgrade");
        first.abort();
    });
}

#[test]
fn a_response_s_body_behind_its_end_leaves_its_loop_to_others() {
    let running = server().start(router()).unwrap();
    let url = format!("http://{}/", addr(&running));
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        wakeful::block_on(async {
            let client: Client<Full<Bytes>> =
                Client::<Full<Bytes>>::builder().version(version).build();
            let mut body = client.send(request(&url)).await.unwrap().into_body();
            while let Some(frame) = body.frame().await {
                frame.unwrap();
            }
            let ended = async || assert!(body.frame().await.is_none());
            assert!(gives_way(ended).await, "{version:?}");
        });
    }
}
