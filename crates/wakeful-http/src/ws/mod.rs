//! WebSockets (RFC 6455, and RFC 8441 on HTTP/2) for axum's handlers (feature `ws`).
//!
//! ```
//! use axum::{Router, response::Response, routing::any};
//! use wakeful_http::ws::{WebSocket, WebSocketUpgrade};
//!
//! async fn handler(ws: WebSocketUpgrade) -> Response {
//!     ws.max_message_size(64 * 1024).on_upgrade(echo)
//! }
//!
//! async fn echo(mut socket: WebSocket) {
//!     while let Some(Ok(message)) = socket.recv().await {
//!         if message.is_text() || message.is_binary() {
//!             if socket.send(message).await.is_err() {
//!                 break;
//!             }
//!         }
//!     }
//! }
//!
//! // `any`: on HTTP/2 the method is CONNECT.
//! let app: Router = Router::new().route("/ws", any(handler));
//! # drop(app);
//! ```
//!
//! The API is that of `axum::extract::ws`. (axum's own WebSockets need a tokio runtime, on each
//! loop or beside the loops: `Server::tokio`, `Server::tokio_handle`.) A socket's task runs on the
//! loop of its connection and need not be `Send`.
//!
//! A browser opens WebSockets to any host, with its cookies for that host. A handler that trusts
//! cookies must check the `Origin` header first.
//!
//! # What is limited
//! The size of messages and frames is limited
//! ([`max_message_size`](WebSocketUpgrade::max_message_size),
//! [`max_frame_size`](WebSocketUpgrade::max_frame_size)). If a client exceeds a limit, the server
//! sends Close 1009. The buffer for sent messages is also limited: a [`send`](WebSocket::send)
//! waits until the connection has accepted the message. To limit how long a client may be silent,
//! use `wakeful::time::timeout` around [`recv`](WebSocket::recv).
//!
//! # When the server drains
//! A socket that is being read sends Close 1001 ("going away"), at once or after
//! [`linger`](WebSocketUpgrade::linger). It continues to read until the client's Close arrives, and
//! then ends: `recv` returns `None`. A handler that only sends should await
//! [`drain_begins`](crate::drain_begins), and then close the socket. No socket delays the drain for
//! longer than its grace period.
//!
//! Compression (`permessage-deflate`) is not offered.

mod connection;
mod flushers;
mod lengths;
mod rejection;
mod socket;
mod upgrade;

pub use async_tungstenite::tungstenite::protocol::CloseFrame;
pub use async_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
pub use async_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

pub use self::rejection::WebSocketRejection;
pub use self::socket::WebSocket;
pub use self::upgrade::WebSocketUpgrade;
