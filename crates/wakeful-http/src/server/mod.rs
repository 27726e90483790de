//! A server: its settings, its start and its end, and each of its connections until the protocol is
//! known.
//!
//! `settings` has [`Server`] and how it starts, `running` how it ends. `connection` is what the
//! accept frame calls: it takes the connection's place among its peer's, has `tls_connection` do
//! the handshake and read what ALPN chose, waits for the client's first bytes (`first_request`,
//! `detect`), and hands the stream to `http1` or `http2`. It keeps one invariant: a silent
//! connection occupies only its socket and its place.
//!
//! At the limit of connections, further ones wait in the kernel's backlog: the accept frame of
//! `wakeful` takes no connection without a permit. If the next one is accepted all the same,
//! `replaceable` ends another one.

mod caller;
mod connection;
mod detect;
mod first_request;
mod make_service;
mod replaceable;
mod running;
mod settings;
mod start;
mod tls_connection;
mod tower_service;

pub use self::caller::Caller;
pub use self::running::Running;
pub use self::settings::Server;
