//! The version of HTTP that a connection speaks. `server::detect` finds it out.

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}
