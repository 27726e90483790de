//! How many backends one request may try.

use std::io::ErrorKind;

use wakeful_http::client::ClientError;

/// A refused connection takes no time, so it does not use up an attempt: if half of many backends
/// are gone, three refusals in a row are common. But a request should not try thousands of
/// backends.
const MOST_REFUSALS: usize = 32;

pub(super) struct Attempts {
    left: usize,
    refusals_left: usize,
}

impl Attempts {
    pub(super) fn new(attempts: usize) -> Self {
        Self { left: attempts, refusals_left: MOST_REFUSALS }
    }

    /// May another backend be tried after this failure? If the backend was removed meanwhile, that
    /// was no attempt.
    pub(super) fn goes_on(&mut self, error: &ClientError) -> bool {
        if matches!(error, ClientError::Retired { .. }) {
            return true;
        }
        let count = if is_refusal(error) { &mut self.refusals_left } else { &mut self.left };
        *count = count.saturating_sub(1);
        *count > 0
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
