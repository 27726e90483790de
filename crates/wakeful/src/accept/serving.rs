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

/// A running server. Dropping it aborts all connections and stops the loops.
///
/// # Threads
/// `Send`, not `Sync`. [`shutdown`](Self::shutdown) and dropping it block, so do neither on one of
/// its loops.
#[derive(Debug)]
pub struct Serving {
    /// Dropped first, while the sockets are open: see `socket_file.rs`. The sockets themselves
    /// belong to the loops, so that they close when the loops stop accepting.
    pub(super) files: Vec<Arc<SocketFile>>,
    /// Dropped before the loops end.
    pub(super) listeners: OpenListeners,
    pub(super) group: LoopGroup,
    pub(super) addrs: Vec<ListenAddr>,
    pub(super) filter: SynFilter,
    pub(super) stop: Stop,
    /// Closed to tell the connections of the drain: see `Shared`.
    pub(super) tell: async_channel::Sender<Infallible>,
    pub(super) all_closed: mpsc::Receiver<Infallible>,
    pub(super) counts: Arc<Counts>,
}

impl Serving {
    /// Returns the addresses on which the server listens. If a port was 0, the address has the port
    /// that the kernel chose.
    #[must_use]
    pub fn local_addrs(&self) -> &[ListenAddr] {
        &self.addrs
    }

    /// Returns the handles of the loops.
    #[must_use]
    pub fn handles(&self) -> &[LoopHandle] {
        self.group.handles()
    }

    /// Returns how busy the loops are, and how many are active. It can be read from any thread.
    #[must_use]
    pub fn loads(&self) -> Loads {
        self.group.loads()
    }

    /// Returns the counters of this server, which can be read from any thread.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Completes with an error when the server can no longer accept: other code has closed or shut
    /// down its last listener, or the loops that accepted have ended. The server still serves open
    /// connections: call [`shutdown`](Self::shutdown) to let them finish. If the server is shut
    /// down before it fails, the future never completes.
    ///
    /// If accepting fails only for lack of descriptors or memory, the server retries, and the
    /// listener does not count as failed. A listener does not count as failed either if other code
    /// closes its descriptor while the loops sleep, because the kernel does not report this.
    ///
    /// [`run_until_terminated_or_failed`](crate::signal::run_until_terminated_or_failed) awaits
    /// this future.
    ///
    /// # Threads
    /// The future is `Send`, and runs on any executor.
    pub fn failure(&self) -> impl Future<Output = io::Error> + Send + use<> {
        self.listeners.failure()
    }

    /// Drains the server and stops it. Blocks the calling thread, and returns how many connections
    /// were aborted.
    ///
    /// 1. The server lets no new clients in, with the exceptions that
    ///    [`AcceptStrategy`](super::AcceptStrategy) describes. A client that tries to connect by
    ///    TCP meanwhile is refused a second later.
    /// 2. It accepts the connections in the kernel's backlogs, closes the listeners, and tells the
    ///    connections to finish.
    /// 3. It waits up to `grace` until all connections have closed, aborts the rest, and stops the
    ///    loops.
    ///
    /// If the limit of connections or a lack of descriptors keeps connections in the backlog, the
    /// server first tells the open connections to finish, and serves those in the backlog as the
    /// open ones close. It also tells them at once if the loop that accepts for all is blocked
    /// ([`AcceptStrategy::Dispatch`](super::AcceptStrategy::Dispatch)), and at the latest when a
    /// quarter of `grace` is over. Connections that are still in the backlog after `grace` are
    /// closed, and count as aborted. The call always ends: if a task blocks its loop, the call does
    /// not wait for that loop for more than another second.
    ///
    /// # Errors
    /// A loop was blocked, or had ended with an error before; or this process is a fork of the
    /// process that started the server.
    pub fn shutdown(self, grace: Duration) -> Result<usize, ShutdownError> {
        if self.stop.is_forked() {
            // A forked child has none of the loops, and the group's shutdown reports that.
            return self.group.shutdown(Duration::ZERO).map(|()| 0);
        }
        // The files are removed before the sockets close, so that no client connects any more.
        drop(self.files);
        drop(self.listeners);
        let mut grace = Patience::new(grace);
        let (settle, began) = (grace.left() / 4, Instant::now());
        self.filter.attach(settle);
        grace.took(settle, began.elapsed());
        drop(self.stop);
        // The waits end when the last connection drops its sender.
        let mut quarter = Patience::new(settle.saturating_sub(began.elapsed()).min(grace.left()));
        let mut rest = Patience::new(grace.left() - quarter.left());
        let _ = quarter.wait_for(&self.all_closed);
        self.tell.close();
        let _ = rest.wait_for(&self.all_closed);
        self.counts.end();
        let aborted = self.counts.open();
        if aborted > 0 {
            panics::log!(warn, aborted, "the grace period is over: open connections are aborted");
        }
        let ended = self.group.shutdown(Duration::ZERO);
        self.filter.detach();
        ended.map(|()| aborted + self.counts.left())
    }
}
