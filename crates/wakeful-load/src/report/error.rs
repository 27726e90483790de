//! Errors of writing a report.

/// A report could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A plot could not be drawn.
    #[error("a plot could not be drawn: {0}")]
    Plot(String),
    /// A page could not be written.
    #[error("a page could not be written: {0}")]
    Page(String),
}
