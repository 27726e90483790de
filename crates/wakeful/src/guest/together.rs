//! The runtimes of a group's loops end together.
//!
//! A client that several loops share (a pool of connections that was made in `main`, or on the
//! first loop) has its sockets and its tasks on one loop's runtime. The other loops' requests need
//! them until they end. So a runtime whose loop has ended continues until all loops have ended.

use std::convert::Infallible;
use std::time::Duration;

use async_channel::{Receiver, Sender};

/// No loop's end waits longer for the others.
const PATIENCE: Duration = Duration::from_millis(500);

/// A loop that is still there.
#[derive(Debug, Clone)]
pub(crate) struct Together {
    /// Nothing is sent: the channel closes when the last sender is gone.
    here: Sender<Infallible>,
    all_gone: Receiver<Infallible>,
}

impl Together {
    /// To be cloned for each loop, and dropped.
    pub(crate) fn new() -> Self {
        let (here, all_gone) = async_channel::bounded(1);
        Self { here, all_gone }
    }

    /// This loop has ended: until the others have, too.
    pub(crate) async fn others(self) {
        let Self { here, all_gone } = self;
        drop(here);
        let _ = ::tokio::time::timeout(PATIENCE, all_gone.recv()).await;
    }
}
