//! What is logged, and where it goes.

use std::path::PathBuf;

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// A JSON object on each line. Bytes that are not UTF-8 become U+FFFD. The fields:
    /// * `time`: when the request arrived (RFC 3339, UTC);
    /// * `peer`, `method`, `path`, `query` (if it is logged), `protocol`;
    /// * `status`: null if none was sent;
    /// * `bytes`: the size of the response's body;
    /// * `duration_us`: microseconds from the request's header to the last byte of the body;
    /// * `aborted`: whether the body did not reach its end, or there was no response;
    /// * `user_agent`, `referer`, `request_id` and `trace_id`, if known.
    #[default]
    Json,
    /// The common log format of Apache:
    /// `127.0.0.1 - - [22/Nov/2026:06:30:00 +0000] "GET / HTTP/1.1" 200 5`. Quotes, backslashes and
    /// bytes that are not printable ASCII are written as `\xNN`. A status that was never sent is
    /// written as `-`.
    Common,
    /// The common format, followed by the referer and the user agent in quotes.
    Combined,
}

/// Where lines are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file. Lines are appended, and the file is created if it does not exist.
    File(PathBuf),
}

/// Whether queries are logged. They may contain data that should not be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Query {
    /// The path only.
    #[default]
    Omit,
    /// `path?query`. In JSON the query has its own field.
    Log,
}
