//! The runtimes of a group's loops end together.
//!
//! A client that several loops share (a pool of connections that was made in `main`, or on the
//! first loop) has its sockets and its tasks on one loop's runtime. The other loops' requests need
//! them until they end. So a runtime whose loop has ended continues until all loops have ended.

use std::convert::Infallible;
use std::time::Duration;

use async_channel::{Receiver, Sender};

/// The end of a loop waits no longer than this for the others.
const PATIENCE: Duration = Duration::from_millis(500);

/// Held by each loop that has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Together {
    /// Nothing is sent. The channel closes when the last sender is gone.
    here: Sender<Infallible>,
    all_gone: Receiver<Infallible>,
}

impl Together {
    /// The original is cloned for each loop, and then dropped.
    pub(crate) fn new() -> Self {
        let (here, all_gone) = async_channel::bounded(1);
        Self { here, all_gone }
    }

    /// Notes that this loop has ended, and waits until the others have, too.
    pub(crate) async fn others(self) {
        let Self { here, all_gone } = self;
        drop(here);
        let _ = ::tokio::time::timeout(PATIENCE, all_gone.recv()).await;
    }
}
