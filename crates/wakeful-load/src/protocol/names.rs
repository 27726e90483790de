//! The names of the protocols.

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Echoed payloads, each after a four-byte length: `frames`.
    Frames,
    /// The protocol of Redis: `resp`.
    Resp,
    /// HTTP/1.1: `http1`.
    Http1,
    /// HTTP/2 with prior knowledge, without TLS: `h2`.
    Http2,
}

impl Protocol {
    /// Returns its name, as in error messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Resp => "resp",
            Self::Http1 => "http1",
            Self::Http2 => "h2",
        }
    }
}
