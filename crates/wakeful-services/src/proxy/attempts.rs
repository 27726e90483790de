//! How many backends one request may try.

use std::io::ErrorKind;

use wakeful_http::client::ClientError;

/// A refusal takes no time, so it does not use up an attempt: where half of many backends are gone,
/// three in a row often are. But a request shall not go through thousands.
const MOST_REFUSALS: usize = 32;

pub(super) struct Attempts {
    left: usize,
    refusals_left: usize,
}

impl Attempts {
    pub(super) fn new(attempts: usize) -> Self {
        Self { left: attempts, refusals_left: MOST_REFUSALS }
    }

    /// Another backend may be tried behind this failure. One that has gone meanwhile was no
    /// attempt.
    pub(super) fn goes_on(&mut self, error: &ClientError) -> bool {
        if matches!(error, ClientError::Retired { .. }) {
            return true;
        }
        let count = if is_refusal(error) { &mut self.refusals_left } else { &mut self.left };
        *count = count.saturating_sub(1);
        *count > 0
    }
}

/// Nobody listens there, or there is no such socket of Unix. A look-up that finds nothing has taken
/// its time.
fn is_refusal(error: &ClientError) -> bool {
    let ClientError::Connect { source, .. } = error else { return false };
    match source.kind() {
        ErrorKind::ConnectionRefused => true,
        ErrorKind::NotFound => source.raw_os_error().is_some(),
        _ => false,
    }
}
