//! Errors of any kind.

/// An error of any kind.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
