//! What is no call passes through the layer, beside calls of the same server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use async_channel::Sender;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use futures_util::stream;
use http_body_util::BodyExt;
use wakeful::LoopGroup;
use wakeful_http::grpc::GrpcLayer;
use wakeful_http::{Running, Server, drain_begins};

use super::channel::{GUARD, addr};

const SHORT: Duration = Duration::from_millis(100);

fn start(app: Router, layer: GrpcLayer) -> Running {
    let server = Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(1));
    server.start(app.layer(layer)).unwrap()
}

fn ask(running: &Running, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr(running)).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Longer than the layer's time.
async fn takes_long() {
    wakeful::time::sleep(5 * SHORT).await;
}

#[test]
fn what_is_no_call_has_no_deadline() {
    let late = || async {
        takes_long().await;
        "late"
    };
    let app = Router::new().route("/late", get(late)).route("/", get(|| async { "hello" }));
    let running = start(app, GrpcLayer::new().max_deadline(SHORT));
    for (path, timeout, says) in [("/late", "", "late"), ("/", "grpc-timeout: soon\r\n", "hello")] {
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{timeout}connection: close\r\n\r\n");
        let text = answer(ask(&running, &head));
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with(says), "{path}: {text}");
        assert!(!text.contains("grpc-status"), "{text}");
    }
}

/// Three pieces, of which the second one comes after the layer has cut streams.
fn download(has_begun: Sender<()>) -> Body {
    let pieces = stream::unfold(0, move |piece| {
        let has_begun = has_begun.clone();
        async move {
            match piece {
                0 => has_begun.send(()).await.unwrap(),
                1 => {
                    drain_begins().await;
                    takes_long().await;
                }
                2 => {}
                _ => return None,
            }
            Some((Ok::<_, std::io::Error>(Bytes::from(format!("piece {piece}"))), piece + 1))
        }
    });
    Body::from_stream(pieces)
}

#[test]
fn what_is_no_call_is_not_cut_when_the_server_drains() {
    let (begins, begun) = async_channel::unbounded();
    let downloads = begins.clone();
    let upload = async move |body: Body| {
        let (mut body, mut length) = (body, 0);
        while let Some(frame) = body.frame().await {
            length += frame.unwrap().into_data().unwrap().len();
            if length == 5 + 0x2066 {
                begins.send(()).await.unwrap();
            }
        }
        length.to_string()
    };
    let app = Router::new()
        .route("/download", get(async move || download(downloads)))
        .route("/upload", post(upload));
    let running = start(app, GrpcLayer::new().linger(Duration::ZERO));
    let close = "HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let download = ask(&running, &format!("GET /download {close}\r\n"));
    // It begins as a film does: as a call, it would have a message of this length.
    let mut upload = ask(&running, &format!("POST /upload {close}content-length: 10000\r\n\r\n"));
    for piece in [&[0, 0, 0, 0x20, 0x66][..], &[0; 0x2066]] {
        upload.write_all(piece).unwrap();
    }
    for _ in 0..2 {
        begun.recv_blocking().unwrap();
    }
    let drain = std::thread::spawn(move || running.shutdown(GUARD).unwrap());
    let text = answer(download);
    assert!(text.contains("piece 2") && text.ends_with("\r\n0\r\n\r\n"), "{text}");
    // It has taken as long as a call may not.
    upload.write_all(&[0; 10_000 - 5 - 0x2066]).unwrap();
    let text = answer(upload);
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("\r\n10000"), "{text}");
    assert_eq!(drain.join().unwrap(), 0);
}
