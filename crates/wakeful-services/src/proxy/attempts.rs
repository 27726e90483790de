//! How many backends one request may try.

use std::io::ErrorKind;

use wakeful_http::client::ClientError;

use super::health::Id;

/// A refused connection takes no time, so it does not use up an attempt: if half of many backends
/// are gone, three refusals in a row are common. But a request should not try thousands of
/// backends.
const MOST_REFUSALS: usize = 32;

/// The attempts of one request.
pub(super) struct Attempts {
    left: usize,
    refusals_left: usize,
    /// The backends that were tried in vain.
    tried: Vec<Id>,
    second: Second,
}

/// The second attempt at the same backend. A server that is restarted or reloaded closes the
/// connections that it has not answered yet, and accepts new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Second {
    NoReason,
    /// This backend has closed a connection, and the request can be sent again.
    At(Id),
    Made,
}

impl Attempts {
    pub(super) fn new(attempts: usize) -> Self {
        let (refusals_left, tried) = (MOST_REFUSALS, Vec::new());
        Self { left: attempts, refusals_left, tried, second: Second::NoReason }
    }

    pub(super) fn tried(&self) -> &[Id] {
        &self.tried
    }

    /// Was the request sent to a backend before?
    pub(super) fn is_retry(&self) -> bool {
        !self.tried.is_empty() || self.second == Second::Made
    }

    /// Notes the failure of an attempt `at` a backend. May there be another attempt? If the backend
    /// was removed meanwhile, that was no attempt.
    pub(super) fn goes_on(&mut self, at: Id, error: &ClientError) -> bool {
        self.tried.push(at);
        if matches!(error, ClientError::Retired { .. }) {
            return true;
        }
        if self.second != Second::Made && is_closed_early(error) {
            self.second = Second::At(at);
        }
        let count = if is_refusal(error) { &mut self.refusals_left } else { &mut self.left };
        *count = count.saturating_sub(1);
        *count > 0
    }

    /// If no other backend is left: may one of those that were tried be tried again? Once for each
    /// request.
    pub(super) fn begin_second(&mut self) -> bool {
        let Second::At(again) = self.second else { return false };
        self.second = Second::Made;
        self.tried.retain(|tried| *tried != again);
        true
    }
}

/// Is the error a refused connection, or a missing Unix socket? A failed look-up is none, because
/// it has taken time.
fn is_refusal(error: &ClientError) -> bool {
    let ClientError::Connect { source, .. } = error else { return false };
    match source.kind() {
        ErrorKind::ConnectionRefused => true,
        ErrorKind::NotFound => source.raw_os_error().is_some(),
        _ => false,
    }
}

/// Has the backend closed the connection before it answered? That may have been in the TLS
/// handshake.
fn is_closed_early(error: &ClientError) -> bool {
    match error {
        ClientError::Connect { source, .. } => matches!(
            source.kind(),
            ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
        ),
        // The client gives a request back whose connection closed, or that its server refused.
        ClientError::Exchange { .. } => true,
        _ => false,
    }
}
