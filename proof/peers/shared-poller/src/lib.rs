//! A key-value service (GET, SET, DEL and PING of RESP) on two network layers: threads that share
//! one poller and every connection (`bin/shared-poller.rs`), and loops that own their sockets
//! (`bin/owned-sockets.rs`). Everything else is the same, including the sharded locks of the keys.
//! So the two differ only in what the public case of `shared-socket` changed.

pub mod buffers;
pub mod resp;
pub mod store;

use clap::Parser;
use peer_common::Listen;

/// The flags of both programs.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Arguments {
    /// IP:PORT or unix:PATH.
    #[arg(long, default_value = "127.0.0.1:7001")]
    pub listen: Listen,

    /// How many threads to start.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: u16,
}
