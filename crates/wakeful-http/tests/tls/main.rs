//! TLS: handshakes, certificates and their reload, connections from beginning to end. The raw
//! clients are rustls on blocking sockets; hyper's are over this crate's own client side.

#[path = "../common/mod.rs"]
mod common;

mod client_certificates;
mod connections;
mod draining;
mod flood;
mod handshakes;
mod material;
mod raw;
mod reloading;
mod slow_readers;
mod streams;
#[cfg(feature = "ws")]
mod websockets;
