//! TLS 1.2 and 1.3 by rustls, for servers and clients.
//!
//! [`ServerTls`] has a server's certificates and settings, for [`Server::tls`](crate::Server::tls)
//! and [`Server::bind_tls`](crate::Server::bind_tls). Keep a clone to reload its files while the
//! server runs. [`ClientTls`] connects. Both make a [`TlsStream`] over any stream that hyper
//! accepts. hyper also accepts the `TlsStream`.
//!
//! The cryptography provider is `ring`, which builds in seconds and needs no CMake. The program may
//! choose another one for the process (`rustls::crypto::CryptoProvider::install_default`, for
//! example that of aws-lc-rs).

// `stream` carries the bytes. `pem_files` reads certificates. `server` and `accept` are the
// server's side, with the session `tickets`. `client` is the client's side.

mod accept;
mod client;
mod counts;
mod pem_files;
mod reload;
pub(crate) mod security;
mod server;
mod stream;
mod tickets;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;
use rustls::version::{TLS12, TLS13};

pub use rustls::pki_types::CertificateDer;

pub use self::accept::AcceptError;
pub use self::client::{ClientTls, ClientTlsBuilder};
pub use self::counts::TlsCounts;
pub use self::server::{ServerTls, ServerTlsBuilder};
pub use self::stream::TlsStream;
pub use self::tickets::TicketSecret;

/// Whether a client must send a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// The server asks for a certificate, but also serves clients without one. It refuses a client
    /// with a certificate that does not verify.
    Request,
    /// The server refuses a client without a certificate, or with one that does not verify.
    Require,
}

/// The oldest version of TLS that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

impl MinVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        const BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
        match self {
            Self::Tls12 => BOTH,
            Self::Tls13 => &BOTH[..1],
        }
    }
}

/// A protocol that client and server agree on in the handshake (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// `h2`.
    Http2,
    /// `http/1.1`.
    Http1,
}

impl Alpn {
    /// All protocols, the preferred one first.
    pub const ALL: &'static [Self] = &[Self::Http2, Self::Http1];

    fn wire(self) -> &'static [u8] {
        match self {
            Self::Http2 => b"h2",
            Self::Http1 => b"http/1.1",
        }
    }

    fn from_wire(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|alpn| alpn.wire() == name)
    }

    fn names(protocols: &[Self]) -> Vec<Vec<u8>> {
        protocols.iter().map(|alpn| alpn.wire().to_vec()).collect()
    }
}

/// The verified certificates of a client, its own first. Each request of the client has them among
/// its extensions, unless the client sent no certificate.
#[derive(Debug, Clone)]
pub struct PeerCertificates(pub(crate) Arc<[CertificateDer<'static>]>);

impl PeerCertificates {
    /// Returns the client's own certificate, in DER.
    #[must_use]
    pub fn leaf(&self) -> &CertificateDer<'static> {
        &self.0[0]
    }

    /// Returns all certificates that the client has sent, its own first.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0
    }
}

/// The error of [`ServerTlsBuilder::build`] and [`ClientTlsBuilder::build`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file was read, but its contents cannot be used.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The settings contradict each other.
    #[error("TLS: {0}")]
    Settings(String),
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        let kind = match &error {
            TlsError::Unreadable { source, .. } => source.kind(),
            TlsError::Unusable { .. } => io::ErrorKind::InvalidData,
            TlsError::Settings(_) => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// The process's provider, or ring's.
fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}
