//! Keeps the loops of a server from accepting until the last of them has started.
//!
//! If the start fails, no connection has been accepted. Those in the backlog are left to the other
//! processes that have the socket.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_channel::{Receiver, Sender};

/// The side of the thread that starts the server. If it is dropped, the gate never opens.
#[derive(Debug)]
pub(super) struct Gate {
    is_open: Arc<AtomicBool>,
    /// Nothing is ever sent. The loops see the channel close.
    _opens: Sender<Infallible>,
}

/// The side of the loops.
#[derive(Debug, Clone)]
pub(super) struct AtGate {
    is_open: Arc<AtomicBool>,
    opens: Receiver<Infallible>,
}

impl Gate {
    pub(super) fn new() -> (Self, AtGate) {
        let (sender, opens) = async_channel::bounded(1);
        let is_open = Arc::new(AtomicBool::new(false));
        (Self { is_open: is_open.clone(), _opens: sender }, AtGate { is_open, opens })
    }

    pub(super) fn open(self) {
        self.is_open.store(true, Ordering::Release);
    }
}

impl AtGate {
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Completes when the gate is open.
    pub(super) async fn opens(&self) {
        if !self.is_open() {
            let _ = self.opens.recv().await;
            if !self.is_open() {
                // The start has failed. This loop is about to end, perhaps after user code that
                // blocks it.
                pending::<()>().await;
            }
        }
    }
}
