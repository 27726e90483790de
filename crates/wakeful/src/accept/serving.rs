//! A server that runs, and its shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::open_listeners::OpenListeners;
use super::socket_file::SocketFile;
use super::stop::Stop;
use super::syn_filter::SynFilter;
use crate::balance::counts::Counts;
use crate::event_loop::LoopHandle;
use crate::group::{Loads, LoopGroup, ShutdownError};
use crate::net::ListenAddr;
use crate::sys::panics;
use crate::sys::patience::Patience;

/// A server that runs. Dropping it aborts all connections and stops the loops.
///
/// *Threads*: `Send`, not `Sync`; `shutdown` and dropping it block, so do neither on one of its
/// loops.
#[derive(Debug)]
pub struct Serving {
    /// Dropped first, while the sockets are open: see `socket_file.rs`. The sockets themselves are
    /// the loops', so that they close when the loops stop accepting.
    pub(super) files: Vec<Arc<SocketFile>>,
    /// Dropped before the loops end.
    pub(super) listeners: OpenListeners,
    pub(super) group: LoopGroup,
    pub(super) addrs: Vec<ListenAddr>,
    pub(super) filter: SynFilter,
    pub(super) stop: Stop,
    pub(super) all_closed: mpsc::Receiver<Infallible>,
    pub(super) counts: Arc<Counts>,
}

impl Serving {
    /// Where it listens, with the ports that the kernel chose where 0 was asked for.
    #[must_use]
    pub fn local_addrs(&self) -> &[ListenAddr] {
        &self.addrs
    }

    /// The loops' handles.
    #[must_use]
    pub fn handles(&self) -> &[LoopHandle] {
        self.group.handles()
    }

    /// How busy the loops are, and how many of them are active; to be read from any thread.
    #[must_use]
    pub fn loads(&self) -> Loads {
        self.group.loads()
    }

    /// Counts of this server, to be read from any thread.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Completes with an error when the server can accept no more: its last listener was shut down
    /// or closed by somebody else, or the loops that accepted have ended. Open connections are
    /// still served: call [`shutdown`](Self::shutdown) to let them finish. If the server ends
    /// before, the future never completes.
    ///
    /// A listener that only lacks descriptors or memory is tried again, and does not count as
    /// failed. Neither does one whose descriptor was closed while its loops slept: the kernel tells
    /// nobody.
    ///
    /// [`run_until_terminated_or_failed`](crate::signal::run_until_terminated_or_failed) does so.
    ///
    /// *Threads*: the future is `Send` and runs on any executor.
    pub fn failure(&self) -> impl Future<Output = io::Error> + Send + use<> {
        self.listeners.failure()
    }

    /// Lets nobody in any more (see [`AcceptStrategy`](super::AcceptStrategy); a client that tries
    /// to connect by TCP meanwhile is refused a second later), accepts what the kernel's backlogs
    /// hold, closes the listeners, tells the connections, waits up to `grace` until all have
    /// closed, aborts the rest, and stops the loops. Returns how many were aborted. Where the limit
    /// of connections or a lack of descriptors keeps connections in the backlog, the open ones are
    /// told first, and those in the backlog are served as the open ones close. What is left in the
    /// backlog after `grace` is closed, and counts as aborted, also where there was no descriptor
    /// to accept it. It always ends: a loop that one of its tasks blocks is left behind a second
    /// later. Blocks the calling thread.
    ///
    /// # Errors
    /// A loop was blocked, or had ended with an error before; or this is a fork of the process that
    /// started the server.
    pub fn shutdown(self, grace: Duration) -> Result<usize, ShutdownError> {
        if self.stop.is_forked() {
            // It has none of the loops: their group says so.
            return self.group.shutdown(Duration::ZERO).map(|()| 0);
        }
        // Before the sockets close, and so that no client connects any more.
        drop(self.files);
        drop(self.listeners);
        let mut grace = Patience::new(grace);
        let (settle, began) = (grace.left() / 4, Instant::now());
        self.filter.attach(settle);
        grace.took(settle, began.elapsed());
        drop(self.stop);
        // Ends when the last connection drops its sender.
        let _ = grace.wait_for(&self.all_closed);
        self.counts.end();
        let aborted = self.counts.open();
        if aborted > 0 {
            panics::log!(warn, aborted, "the grace period is over");
        }
        let ended = self.group.shutdown(Duration::ZERO);
        self.filter.detach();
        ended.map(|()| aborted + self.counts.left())
    }
}
