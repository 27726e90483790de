//! A connection, as its handler gets it.

use super::draining::Draining;
use super::moving::Moving;
use crate::net::{PeerAddr, Stream};

/// A connection for a handler.
///
/// *Threads*: Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct Connection {
    /// Its bytes.
    pub stream: Stream,
    /// Who is at the other end.
    pub peer: PeerAddr,
    /// The listener that accepted the connection, as an index into the server's listeners.
    pub listener: usize,
    /// When the server begins to drain.
    pub draining: Draining,
    /// The bytes that the previous handler has read and not used, if the connection comes from
    /// another loop: see [`Moving`].
    pub unread: Vec<u8>,
    /// Whether it should go on to another loop.
    pub moving: Moving,
}
