//! A connection, as its handler gets it.

use super::draining::Draining;
use super::moving::Moving;
use crate::net::{PeerAddr, Stream};

/// A connection, as a handler gets it.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct Connection {
    /// The stream of its bytes.
    pub stream: Stream,
    /// The address of the peer.
    pub peer: PeerAddr,
    /// The listener that accepted the connection, as an index into the server's listeners.
    pub listener: usize,
    /// Tells the handler when the server begins to drain.
    pub draining: Draining,
    /// The bytes that the previous handler had read but not used, if the connection comes from
    /// another loop. See [`Moving`].
    pub unread: Vec<u8>,
    /// Tells the handler whether to move the connection to another loop.
    pub moving: Moving,
}
