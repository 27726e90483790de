//! The TLS counters of a server. They count once per handshake or reload, never per request.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a [`ServerTls`](super::ServerTls), over all loops, since it was built.
///
/// # Threads
/// `Send` and `Sync`. Each number is exact, but two numbers are not read at the same instant.
#[derive(Debug, Default)]
pub struct TlsCounts {
    pub(super) handshakes: Count,
    pub(super) resumed: Count,
    pub(super) failed: Count,
    pub(super) timed_out: Count,
    pub(super) not_tls: Count,
    pub(super) reloads: Count,
    pub(super) failed_reloads: Count,
}

/// One of them.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl TlsCounts {
    /// Returns how many handshakes succeeded.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        self.handshakes.get()
    }

    /// Returns how many of the successful handshakes resumed an earlier session, without
    /// certificates.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed.get()
    }

    /// Returns how many handshakes failed: the two sides had no version, cipher or protocol in
    /// common, one side refused the other's certificate, or the client left in the middle. Those of
    /// [`timed_out`](Self::timed_out) and [`not_tls`](Self::not_tls) are included. A client that
    /// leaves before it has sent a byte does not count.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// Returns how many handshakes failed because the client took longer than the handshake
    /// timeout.
    #[must_use]
    pub fn timed_out(&self) -> u64 {
        self.timed_out.get()
    }

    /// Returns how many handshakes failed because the client did not speak TLS. Usually such a
    /// client sends plain HTTP.
    #[must_use]
    pub fn not_tls(&self) -> u64 {
        self.not_tls.get()
    }

    /// Returns how many reloads succeeded.
    #[must_use]
    pub fn reloads(&self) -> u64 {
        self.reloads.get()
    }

    /// Returns how many reloads failed, and so changed nothing.
    #[must_use]
    pub fn failed_reloads(&self) -> u64 {
        self.failed_reloads.get()
    }
}
