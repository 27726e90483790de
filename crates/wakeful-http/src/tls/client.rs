//! The client's side: the trusted authorities, and a handshake over any stream.

use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::rt::{Read, Write};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::pem_files::{self, Pair};
use super::stream::{TlsStream, Truncation};
use super::{Alpn, MinVersion, TlsError, provider};

/// Makes TLS connections as a client, with the settings of its [builder](Self::builder).
///
/// ```no_run
/// use wakeful::net::TcpStream;
/// use wakeful_http::tls::{Alpn, ClientTls};
///
/// # async fn example() -> std::io::Result<()> {
/// let tls = ClientTls::builder().build()?;
/// let stream = TcpStream::connect("example.org:443").await?;
/// let stream = tls.connect(stream, "example.org").await?;
/// if stream.alpn() == Some(Alpn::Http2) {
///     // hyper::client::conn::http2::handshake(stream)
/// }
/// # Ok(())
/// # }
/// ```
///
/// It keeps the sessions of the last 256 servers in memory, so that the next handshake with one of
/// them is short. Clones share the sessions.
///
/// # Threads
/// `Send` and `Sync`. Clones share a lock for the sessions. If each loop builds its own, the loops
/// share no lock.
#[derive(Debug, Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// Returns a builder with the default settings: Mozilla's authorities (`webpki-roots`), no
    /// client certificate, TLS 1.2 and 1.3, h2 and http/1.1.
    pub fn builder() -> ClientTlsBuilder {
        ClientTlsBuilder {
            ca: None,
            identity: None,
            min_version: MinVersion::default(),
            protocols: Alpn::ALL.to_vec(),
        }
    }

    /// Performs the handshake over `io` with the server `server_name`: a host name, or an IP
    /// address, with or without the brackets of a URL. [`TlsStream::alpn`] returns the negotiated
    /// protocol. The call has no time limit: use `wakeful::time::timeout`.
    ///
    /// With TLS 1.3, a server that refuses the client's certificate reports this only after the
    /// handshake. Then the first read fails.
    ///
    /// # Cancel safety
    /// Not cancel-safe: dropping the future closes the connection.
    ///
    /// # Errors
    /// `InvalidInput`: the name is not valid. `InvalidData`: the server's certificate is not
    /// trusted or not for this name, or the two sides have no version, cipher or protocol in
    /// common. Otherwise an error of `io`.
    pub async fn connect<IO>(&self, io: IO, server_name: &str) -> io::Result<TlsStream<IO>>
    where
        IO: Read + Write + Unpin,
    {
        self.handshake(io, server_name, self.0.alpn_protocols.clone()).await
    }

    /// Performs the handshake like [`connect`](Self::connect), but offers `protocols` instead of
    /// the builder's. With an empty list it does not use ALPN.
    ///
    /// # Cancel safety
    /// The same as for [`connect`](Self::connect).
    ///
    /// # Errors
    /// The same as for [`connect`](Self::connect).
    pub async fn connect_with<IO>(
        &self,
        io: IO,
        server_name: &str,
        protocols: &[Alpn],
    ) -> io::Result<TlsStream<IO>>
    where
        IO: Read + Write + Unpin,
    {
        self.handshake(io, server_name, Alpn::names(protocols)).await
    }

    async fn handshake<IO>(
        &self,
        io: IO,
        server_name: &str,
        protocols: Vec<Vec<u8>>,
    ) -> io::Result<TlsStream<IO>>
    where
        IO: Read + Write + Unpin,
    {
        let bare = server_name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let name = ServerName::try_from(bare.unwrap_or(server_name).to_owned());
        let name = name.map_err(|error| {
            let text = format!("{server_name:?} is not a valid server name: {error}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let session = ClientConnection::new_with_alpn(self.0.clone(), name, protocols);
        let session = session.map_err(io::Error::other)?;
        let mut stream = TlsStream::new(io, session, Vec::new(), Truncation::IsAnError);
        poll_fn(|cx| stream.poll_handshake(cx)).await?;
        // The server waits for the last message of the handshake.
        poll_fn(|cx| stream.poll_send(cx)).await?;
        Ok(stream)
    }
}

/// Builds a [`ClientTls`]. [`ClientTls::builder`] has the defaults.
#[derive(Debug, Clone)]
#[must_use = "call `build`"]
pub struct ClientTlsBuilder {
    ca: Option<PathBuf>,
    identity: Option<Pair>,
    min_version: MinVersion,
    protocols: Vec<Alpn>,
}

impl ClientTlsBuilder {
    /// Trusts only the authorities in this PEM file, instead of Mozilla's.
    pub fn ca(mut self, ca: impl Into<PathBuf>) -> Self {
        self.ca = Some(ca.into());
        self
    }

    /// Sends this certificate to servers that ask for one: PEM files, as for
    /// [`ServerTlsBuilder::certificate`](super::ServerTlsBuilder::certificate).
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some(Pair { certificate: certificate.into(), key: key.into() });
        self
    }

    /// Sets the oldest TLS version that the client accepts.
    pub fn min_version(mut self, version: MinVersion) -> Self {
        self.min_version = version;
        self
    }

    /// Sets the protocols that the client offers, the preferred one first. With an empty list it
    /// does not use ALPN.
    pub fn protocols(mut self, protocols: &[Alpn]) -> Self {
        self.protocols = protocols.to_vec();
        self
    }

    /// Reads the files, and makes the [`ClientTls`]. Blocks the thread while it reads them.
    ///
    /// # Errors
    /// The same as for [`ServerTlsBuilder::build`](super::ServerTlsBuilder::build), except that the
    /// client does not check the validity period of its own certificate.
    pub fn build(self) -> Result<ClientTls, TlsError> {
        let roots = match &self.ca {
            Some(ca) => pem_files::roots(ca)?,
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        };
        let settings = |error: rustls::Error| TlsError::Settings(error.to_string());
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(self.min_version.versions())
            .map_err(settings)?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some(pair) => {
                let (chain, key) = pair.load_plain()?;
                builder.with_client_auth_cert(chain, key).map_err(settings)?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = Alpn::names(&self.protocols);
        Ok(ClientTls(Arc::new(config)))
    }
}
