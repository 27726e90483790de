//! A server's TLS: its settings, and the configuration that they load.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};

use super::pem_files::{self, ByName, Pair};
use super::tickets::{SharedTickets, TicketSecret};
use super::{Alpn, ClientAuth, MinVersion, TlsCounts, TlsError, provider};
use crate::limits::LONGEST_TIMEOUT;

/// The TLS settings of a server, made by [`ServerTls::builder`]. Clones share their state: keep a
/// clone to [reload](Self::reload) the files while a server runs.
///
/// A handshake occupies its loop for about 0.1 ms with an ECDSA key, and ten times as long with an
/// RSA key of 2,048 bits. Prefer ECDSA.
///
/// # Threads
/// `Clone`, `Send` and `Sync`.
#[derive(Clone)]
pub struct ServerTls(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) current: RwLock<Arc<ServerConfig>>,
    /// Locked during a reload.
    pub(super) source: Mutex<Source>,
    pub(super) counts: Arc<TlsCounts>,
}

/// The source of the current configuration.
pub(super) struct Source {
    /// The files' metadata before they were last read.
    pub(super) looks: Vec<Look>,
    /// The certificates in use, without those of their issuers, one for each pair.
    pub(super) leaves: Vec<CertificateDer<'static>>,
    /// Why the files were unusable, if that may change while their metadata stay the same.
    pub(super) may_pass: Option<String>,
}

/// Changes when a file is written or replaced. `None`: the metadata cannot be read.
pub(super) type Look = Option<(i64, i64, u64, u64)>;

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pairs: Vec<Pair>,
    clients: Option<(ClientAuth, PathBuf)>,
    min_version: MinVersion,
    protocols: Vec<Alpn>,
    ticket_secret: Option<TicketSecret>,
    pub(super) handshake_timeout: Duration,
}

impl ServerTls {
    /// Returns a builder with the default settings. Add at least one certificate.
    pub fn builder() -> ServerTlsBuilder {
        ServerTlsBuilder(Settings {
            pairs: Vec::new(),
            clients: None,
            min_version: MinVersion::default(),
            protocols: Alpn::ALL.to_vec(),
            ticket_secret: None,
            handshake_timeout: Duration::from_secs(10),
        })
    }

    /// Makes the settings from a certificate chain and its private key, both PEM files, with the
    /// defaults for everything else.
    ///
    /// # Errors
    /// The same as for [`ServerTlsBuilder::build`].
    pub fn from_files(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, TlsError> {
        Self::builder().certificate(certificate, key).build()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> Arc<TlsCounts> {
        self.0.counts.clone()
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { settings, counts, .. } = &*self.0;
        f.debug_struct("ServerTls").field("settings", settings).field("counts", counts).finish()
    }
}

/// Builds a [`ServerTls`].
///
/// | setting | default | what happens beyond it |
/// |---|---|---|
/// | [`certificate`](Self::certificate) | none; at least one is needed | |
/// | [`client_ca`](Self::client_ca) | clients are not asked for certificates | the handshake fails |
/// | [`min_version`](Self::min_version) | TLS 1.2 | the handshake fails |
/// | [`protocols`](Self::protocols) | h2, http/1.1 | the handshake fails |
/// | [`handshake_timeout`](Self::handshake_timeout) | 10 s | the connection is closed |
/// | [`ticket_secret`](Self::ticket_secret) | a random secret | |
#[derive(Debug, Clone)]
#[must_use = "call `build`"]
pub struct ServerTlsBuilder(Settings);

impl ServerTlsBuilder {
    /// Adds a PEM file with a certificate followed by those of its issuers, and a PEM file with its
    /// private key (PKCS#8, SEC1 or PKCS#1, not encrypted). It may be called several times: the
    /// name that a client asks for (SNI) selects the certificate. A client that asks for another
    /// name, or for none, gets the first certificate.
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.0.pairs.push(Pair { certificate: certificate.into(), key: key.into() });
        self
    }

    /// Asks clients for certificates of the authorities in `ca`, a PEM file. Handlers find the
    /// certificates in the request's extension [`PeerCertificates`](super::PeerCertificates).
    pub fn client_ca(mut self, auth: ClientAuth, ca: impl Into<PathBuf>) -> Self {
        self.0.clients = Some((auth, ca.into()));
        self
    }

    /// Sets the oldest TLS version that the server accepts.
    pub fn min_version(mut self, version: MinVersion) -> Self {
        self.0.min_version = version;
        self
    }

    /// Sets the protocols that the server offers to clients that use ALPN, the preferred one first.
    /// If a client does not use ALPN, its first bytes decide.
    pub fn protocols(mut self, protocols: &[Alpn]) -> Self {
        self.0.protocols = protocols.to_vec();
        self
    }

    /// Sets how long a client may take for its handshake, counted from the accept.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.0.handshake_timeout = timeout.clamp(Duration::from_nanos(1), LONGEST_TIMEOUT);
        self
    }

    /// Sets the secret of session tickets, so that processes with the same secret can resume each
    /// other's sessions. With `None` the server makes a random secret of its own. A server that
    /// asks clients for certificates ([`client_ca`](Self::client_ca)) resumes no session.
    pub fn ticket_secret(mut self, secret: impl Into<Option<TicketSecret>>) -> Self {
        self.0.ticket_secret = secret.into();
        self
    }

    /// Reads the files, and makes the [`ServerTls`]. Blocks the thread while it reads them.
    ///
    /// A certificate that has expired, or is not valid yet, is used nevertheless, with a warning in
    /// the log, because a server that does not start would be worse. [`reload`](ServerTls::reload)
    /// refuses such a certificate, unless it is in use already.
    ///
    /// # Errors
    /// A file cannot be read, or contains no PEM of the right kind; a private key is encrypted, is
    /// of a kind that is not supported, or does not belong to its certificate; or there is no
    /// certificate.
    pub fn build(self) -> Result<ServerTls, TlsError> {
        let Self(settings) = self;
        let looks = settings.looks();
        let (config, leaves) = settings.load(None)?;
        Ok(ServerTls(Arc::new(Shared {
            settings,
            current: RwLock::new(config),
            source: Mutex::new(Source { looks, leaves, may_pass: None }),
            counts: Arc::default(),
        })))
    }
}

impl Settings {
    /// Returns the configuration, and its certificates without those of their issuers. `before`:
    /// what makes the present tickets, and the certificates in use. `None` at the start.
    pub(super) fn load(
        &self,
        before: Option<(Arc<dyn ProducesTickets>, &[CertificateDer<'static>])>,
    ) -> Result<(Arc<ServerConfig>, Vec<CertificateDer<'static>>), TlsError> {
        let settings = |error: &dyn fmt::Display| TlsError::Settings(error.to_string());
        if before.is_some() {
            // At the start a file may be a shell's pipe. Later, perhaps nobody writes into a pipe,
            // and then it would block all further reloads.
            self.paths().try_for_each(|path| pem_files::check_not_pipe(path))?;
        }
        let provider = provider();
        let (before, in_use) = before.unzip();
        let load = |(number, pair): (usize, &Pair)| {
            // Otherwise one name that is given up would keep all others from being renewed.
            let is_in_use = |leaf: &CertificateDer<'_>| {
                in_use.is_none_or(|in_use| in_use.get(number).is_some_and(|one| one == leaf))
            };
            pair.load(&provider, is_in_use).map(Arc::new)
        };
        let keys: Vec<_> = self.pairs.iter().enumerate().map(load).collect::<Result<_, _>>()?;
        let leaves = keys.iter().filter_map(|key| key.cert.first().cloned()).collect();
        let roots = self.clients.as_ref().map(|(_, ca)| pem_files::roots(ca)).transpose()?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(self.min_version.versions())
            .map_err(|error| settings(&error))?;
        let builder = match (&self.clients, roots) {
            (Some((auth, _)), Some(roots)) => {
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match auth {
                    ClientAuth::Request => verifier.allow_unauthenticated(),
                    ClientAuth::Require => verifier,
                };
                let verifier = verifier.build().map_err(|error| settings(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let keys = ByName::new(&keys)
            .ok_or_else(|| TlsError::Settings("no certificate is given".to_owned()))?;
        let mut config = builder.with_cert_resolver(Arc::new(keys));
        config.alpn_protocols = Alpn::names(&self.protocols);
        // Sessions are in tickets, so that all loops can use them without a lock or a store.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if self.clients.is_some() {
            // rustls does not verify the client of a resumed session again, and each resumption
            // gives it another ticket: its certificate might have expired long ago.
            config.send_tls13_tickets = 0;
            return Ok((Arc::new(config), leaves));
        }
        config.ticketer = match (before, &self.ticket_secret) {
            (Some(ticketer), _) => ticketer,
            (None, Some(secret)) => Arc::new(SharedTickets::new(secret)),
            (None, None) => {
                rustls::crypto::ring::Ticketer::new().map_err(|error| settings(&error))?
            }
        };
        Ok((Arc::new(config), leaves))
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let pairs = self.pairs.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
        pairs.chain(self.clients.as_ref().map(|(_, ca)| ca))
    }

    pub(super) fn looks(&self) -> Vec<Look> {
        let look = |path: &PathBuf| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.mtime(), file.mtime_nsec(), file.ino(), file.size()))
        };
        self.paths().map(look).collect()
    }
}
