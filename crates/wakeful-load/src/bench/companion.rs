//! What runs beside a server during a block.

use std::io;

use crate::servers::Server;

/// Something that runs beside a server while the server is loaded, and is told when a block's
/// phases begin and end. If a block is measured again, the calls start again with
/// [`server_started`](Self::server_started).
pub trait Companion {
    /// Called when the server accepts connections, before its clients connect.
    ///
    /// # Errors
    /// The companion cannot do its part. There is no block then.
    fn server_started(&mut self, _server: &Server) -> io::Result<()> {
        Ok(())
    }
    /// Returns other processes whose CPU time counts as the server's.
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Called when the measured time is about to begin, on the generator's thread. It must not take
    /// longer than about 0.1 ms.
    fn window_begins(&mut self) {}
    /// Called when the measured time is over.
    fn window_ended(&mut self) {}
}

/// Stands for no companion.
impl Companion for () {}
