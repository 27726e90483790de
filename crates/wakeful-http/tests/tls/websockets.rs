//! WebSockets over TLS, which keeps what is written until it is flushed.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use axum::Router;
use axum::routing::any;
use wakeful::time::timeout;
use wakeful_http::ws::{Message, WebSocket, WebSocketUpgrade};

use crate::common::*;
use crate::material::Site;
use crate::raw::{self, Raw};

/// Reads to the end, and keeps the socket until it is told to drop it.
async fn keeps(mut socket: WebSocket, kept: Receiver<()>) {
    while let Some(Ok(_)) = socket.recv().await {}
    kept.recv().await.unwrap_err();
}

/// Drops the socket at its client's Close, for whose answer there is no room.
async fn leaves(mut socket: WebSocket, left: Sender<()>) {
    let piece = Message::binary(vec![7; 1 << 16]);
    while timeout(Duration::from_millis(200), socket.send(piece.clone())).await.is_ok() {}
    assert_eq!(socket.recv().await.unwrap().unwrap(), Message::Close(None));
    drop(socket);
    left.send(()).await.unwrap();
}

fn open(client: &mut Raw, path: &str) {
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n";
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    write!(client, "GET {path} HTTP/1.1\r\nhost: localhost\r\n{upgrade}{key}\r\n").unwrap();
    raw::read_until(client, b"\r\n\r\n");
}

#[test]
fn a_client_s_close_is_answered_before_the_handler_drops_the_socket_and_though_there_is_no_room() {
    let site = Site::new();
    let (keep, kept) = async_channel::bounded(1);
    let (left, has_left) = async_channel::bounded(1);
    let keeps = async move |ws: WebSocketUpgrade| ws.on_upgrade(|socket| keeps(socket, kept));
    let leaves = async move |ws: WebSocketUpgrade| ws.on_upgrade(|socket| leaves(socket, left));
    let app = Router::new().route("/keeps", any(keeps)).route("/leaves", any(leaves));
    let running = server().tls(site.tls()).start(app).unwrap();
    const CLOSE: &[u8] = &[0x88, 0x80, 0, 0, 0, 0];

    let mut client = raw::connect(addr(&running), raw::config(&site.ca()));
    open(&mut client, "/keeps");
    client.write_all(CLOSE).unwrap();
    let mut answer = [0; 2];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0x88, 0]);
    drop((keep, client));

    let mut client = raw::connect(addr(&running), raw::config(&site.ca()));
    open(&mut client, "/leaves");
    client.write_all(CLOSE).unwrap();
    has_left.recv_blocking().unwrap();
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    assert!(all.ends_with(&[0x88, 0]), "{} bytes, {:?}", all.len(), all.last_chunk::<8>());
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}
