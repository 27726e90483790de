//! The names of the protocols.

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Payloads that the server echoes, each after its length in four bytes. The name is `frames`.
    Frames,
    /// The protocol of Redis. The name is `resp`.
    Resp,
    /// HTTP/1.1. The name is `http1`.
    Http1,
    /// HTTP/2 with prior knowledge, without TLS. The name is `h2`.
    Http2,
}

impl Protocol {
    /// Returns the name of the protocol, as it appears in error messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Resp => "resp",
            Self::Http1 => "http1",
            Self::Http2 => "h2",
        }
    }
}
