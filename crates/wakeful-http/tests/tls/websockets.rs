//! WebSockets over TLS, which keeps what is written until it is flushed.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use axum::Router;
use axum::routing::any;
use futures_util::SinkExt;
use wakeful::time::timeout;
use wakeful_http::Running;
use wakeful_http::ws::{Message, WebSocket, WebSocketUpgrade};

use crate::common::*;
use crate::material::Site;
use crate::raw::{self, Raw};

/// Reads to the end, and keeps the socket until it is told to drop it.
async fn keeps(mut socket: WebSocket, kept: Receiver<()>) {
    while let Some(Ok(_)) = socket.recv().await {}
    kept.recv().await.unwrap_err();
}

/// Reads a message, sends until there is no room, and then reads the client's Close. The client
/// must not read meanwhile.
async fn reads_close(socket: &mut WebSocket) {
    assert!(socket.recv().await.unwrap().unwrap().is_text());
    let piece = Message::binary(vec![7; 1 << 16]);
    while timeout(Duration::from_millis(200), socket.send(piece.clone())).await.is_ok() {}
    assert_eq!(socket.recv().await.unwrap().unwrap(), Message::Close(None));
}

/// Drops the socket at its client's Close.
async fn leaves(mut socket: WebSocket, told: Sender<()>) {
    reads_close(&mut socket).await;
    drop(socket);
    told.send(()).await.unwrap();
}

/// Closes as a sink does, and keeps the socket until it is told to drop it.
async fn closes(mut socket: WebSocket, told: Sender<()>, kept: Receiver<()>) {
    reads_close(&mut socket).await;
    told.send(()).await.unwrap();
    SinkExt::close(&mut socket).await.unwrap();
    kept.recv().await.unwrap_err();
}

/// A client that has opened a socket, and sent an empty text and a Close.
fn closing(running: &Running, site: &Site, path: &str) -> Raw {
    let mut client = raw::connect(addr(running), raw::config(&site.ca()));
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n";
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    write!(client, "GET {path} HTTP/1.1\r\nhost: localhost\r\n{upgrade}{key}\r\n").unwrap();
    raw::read_until(&mut client, b"\r\n\r\n");
    client.write_all(&[0x81, 0x80, 0, 0, 0, 0, 0x88, 0x80, 0, 0, 0, 0]).unwrap();
    client
}

#[test]
fn a_client_s_close_is_answered_before_the_handler_drops_the_socket_and_though_there_is_no_room() {
    const CLOSE: &[u8] = &[0x88, 0];
    let site = Site::new();
    let (keep, kept) = async_channel::bounded(1);
    let (tell, told) = async_channel::bounded(1);
    let (keeper, teller) = (kept.clone(), tell.clone());
    let keeps = async move |ws: WebSocketUpgrade| ws.on_upgrade(|socket| keeps(socket, keeper));
    let leaves = async move |ws: WebSocketUpgrade| ws.on_upgrade(|socket| leaves(socket, teller));
    let closes =
        async move |ws: WebSocketUpgrade| ws.on_upgrade(|socket| closes(socket, tell, kept));
    let app = Router::new()
        .route("/keeps", any(keeps))
        .route("/leaves", any(leaves))
        .route("/closes", any(closes));
    let running = server().tls(site.tls()).start(app).unwrap();

    let mut client = closing(&running, &site, "/keeps");
    raw::read_until(&mut client, CLOSE);

    let mut client = closing(&running, &site, "/leaves");
    told.recv_blocking().unwrap();
    let mut all = Vec::new();
    // There may be no room for `close_notify`.
    let _ = client.read_to_end(&mut all);
    assert!(all.ends_with(CLOSE), "{} bytes, {:?}", all.len(), all.last_chunk::<8>());

    let mut client = closing(&running, &site, "/closes");
    told.recv_blocking().unwrap();
    raw::read_until(&mut client, CLOSE);
    drop((keep, client));
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}
