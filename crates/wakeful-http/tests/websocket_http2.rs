//! WebSockets over HTTP/2 (RFC 8441): several on a connection, and the drain.

mod common;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_tungstenite::WebSocketStream;
use async_tungstenite::tungstenite::protocol::Role;
use axum::Router;
use axum::response::Response;
use axum::routing::any;
use futures_lite::StreamExt;
use hyper::rt::{Read as _, ReadBuf, Write as _};
use wakeful_http::Limits;
use wakeful_http::ws::{CloseCode, Message, WebSocketUpgrade};

use common::*;

async fn open(ws: WebSocketUpgrade) -> Response {
    ws.on_upgrade(async |mut socket| {
        while let Some(Ok(message)) = socket.recv().await {
            if message.is_binary() && socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

/// A stream of HTTP/2 as futures-io has it.
struct Http2Stream(hyper::upgrade::Upgraded);

impl futures_io::AsyncRead for Http2Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        Pin::new(&mut self.0).poll_read(cx, buf.unfilled()).map_ok(|()| buf.filled().len())
    }
}

impl futures_io::AsyncWrite for Http2Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[test]
fn on_http2_sockets_share_a_connection_and_are_told_of_the_drain() {
    // A connection with an open socket is not idle, though nothing is said.
    let idle_timeout = Duration::from_millis(100);
    let server = server().limits(Limits::new().idle_timeout(idle_timeout));
    let running = server.start(Router::new().route("/ws", any(open))).unwrap();
    let addr = addr(&running);
    let (open, opened) = async_channel::bounded(1);
    let client = std::thread::spawn(move || {
        wakeful::block_on(async {
            let mut sender = http2_client(addr).await;
            // The server's SETTINGS have to come first: they allow it.
            sender.send_request(request("GET", "/missing", "")).await.unwrap();
            let mut sockets = Vec::new();
            for _ in 0..3 {
                let mut request = request("CONNECT", "/ws", "");
                let protocol = hyper::ext::Protocol::from_static("websocket");
                request.extensions_mut().insert(protocol);
                let version = http::HeaderValue::from_static("13");
                request.headers_mut().insert("sec-websocket-version", version);
                let response = sender.send_request(request).await.unwrap();
                assert_eq!(response.status(), 200);
                assert!(!response.headers().contains_key("sec-websocket-accept"));
                let stream = Http2Stream(hyper::upgrade::on(response).await.unwrap());
                sockets.push(WebSocketStream::from_raw_socket(stream, Role::Client, None).await);
            }
            for socket in &mut sockets {
                let message = Message::binary(vec![7; 200_000]);
                socket.send(message.clone()).await.unwrap();
                assert!(socket.next().await.unwrap().unwrap() == message);
            }
            wakeful::time::sleep(5 * idle_timeout).await;
            // It was not told to go, either.
            sender.send_request(request("GET", "/missing", "")).await.unwrap();
            for socket in &mut sockets {
                socket.send(Message::binary("still here")).await.unwrap();
                assert!(socket.next().await.unwrap().unwrap().is_binary());
            }
            open.send(()).await.unwrap();
            for socket in &mut sockets {
                let Message::Close(Some(close)) = socket.next().await.unwrap().unwrap() else {
                    panic!("not closed")
                };
                assert_eq!(close.code, CloseCode::Away);
                assert!(socket.next().await.is_none());
            }
        });
    });
    opened.recv_blocking().unwrap();
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    client.join().unwrap();
}
