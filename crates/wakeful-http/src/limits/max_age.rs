//! How old a connection may become.

use std::time::Duration;

use super::timeouts::{LONGEST_TIMEOUT, SHORTEST_TIMEOUT};

/// How long a connection is kept: [`Limits::max_age`](crate::Limits::max_age).
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
    /// `age` from the accept on, 1 ms and more. A shorter one becomes 1 ms.
    pub const fn new(age: Duration) -> Self {
        Self { age, jitter: 0.1, grace: Duration::from_secs(10) }
    }

    /// Sets up to which share of the age is added to it, differently for each connection, so that
    /// connections that came together do not go together. Out of range becomes the nearest in it;
    /// NaN is 0.
    pub const fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// Sets how long the requests that are in flight at that age may take to finish. Then they are
    /// aborted.
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
