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
    /// Handshakes that succeeded.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        self.handshakes.get()
    }

    /// How many of them resumed an earlier session, without certificates.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed.get()
    }

    /// Handshakes that failed: no version, cipher or protocol in common, a certificate that one
    /// side refused, a client that left, or one of the failures below.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// Handshakes that failed because the client took longer than the handshake timeout.
    #[must_use]
    pub fn timed_out(&self) -> u64 {
        self.timed_out.get()
    }

    /// Handshakes that failed because the client did not send TLS: mostly plain HTTP.
    #[must_use]
    pub fn not_tls(&self) -> u64 {
        self.not_tls.get()
    }

    /// Reloads that succeeded.
    #[must_use]
    pub fn reloads(&self) -> u64 {
        self.reloads.get()
    }

    /// Reloads that failed and left everything as it was.
    #[must_use]
    pub fn failed_reloads(&self) -> u64 {
        self.failed_reloads.get()
    }
}
