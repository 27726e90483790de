//! How old a connection may become.

use std::time::Duration;

use super::timeouts::{LONGEST_TIMEOUT, SHORTEST_TIMEOUT};

/// The maximum age of a connection, for [`Limits::max_age`](crate::Limits::max_age).
///
/// | setting | default | range |
/// |---|---|---|
/// | [`jitter`](Self::jitter) | 0.1 | 0.0 to 1.0 |
/// | [`grace`](Self::grace) | 10 s | any |
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use = "a setter returns the changed age"]
pub struct MaxAge {
    pub(crate) age: Duration,
    pub(crate) jitter: f64,
    pub(crate) grace: Duration,
}

impl MaxAge {
    /// Makes a maximum age of `age`, counted from the accept. A time below 1 ms becomes 1 ms.
    pub const fn new(age: Duration) -> Self {
        Self { age, jitter: 0.1, grace: Duration::from_secs(10) }
    }

    /// Sets the largest random addition to the age, as a share of the age. Each connection gets a
    /// different addition, so connections that were opened together do not close together. A value
    /// out of range becomes the nearest value in the range, and NaN becomes 0.
    pub const fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// Sets how long requests that are in flight at the maximum age may take to finish. After that
    /// they are aborted.
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    pub(super) fn clamped(self) -> Self {
        Self {
            age: self.age.clamp(SHORTEST_TIMEOUT, LONGEST_TIMEOUT),
            jitter: if self.jitter.is_nan() { 0.0 } else { self.jitter.clamp(0.0, 1.0) },
            grace: self.grace.min(LONGEST_TIMEOUT),
        }
    }
}
