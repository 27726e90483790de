//! Certificates and keys: from PEM files to what rustls serves.
//!
//! A pair is checked before it is used: the key fits, and the certificate's time is now. What is wrong is said with the file's name.

use std::path::{Path, PathBuf};

use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

use std::sync::Arc;

use super::TlsError;
use crate::panics;

/// Where a certificate and its key are.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Pair {
    pub(super) fn load(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let chain = certificates(&self.certificate)?;
        if let Some(reason) = self.not_now(&chain, provider)? {
            return Err(unusable(&self.certificate, reason));
        }
        self.load_chain(chain, provider)
    }

    /// Returns why the certificate is not valid at this time, if it is not.
    fn not_now(
        &self,
        chain: &[CertificateDer<'_>],
        provider: &CryptoProvider,
    ) -> Result<Option<&'static str>, TlsError> {
        check_time(chain, provider).map_err(|reason| unusable(&self.certificate, reason))
    }

    /// As [`load`](Self::load), but a certificate whose time is not now is only logged: the server has no other one.
    pub(super) fn load_at_start(
        &self,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, TlsError> {
        let chain = certificates(&self.certificate)?;
        if let Some(reason) = self.not_now(&chain, provider)? {
            let certificate = self.certificate.display();
            panics::log!(warn, %certificate, "TLS: {reason}. Clients will refuse it: replace the file and reload");
        }
        self.load_chain(chain, provider)
    }

    fn load_chain(
        &self,
        chain: Vec<CertificateDer<'static>>,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, TlsError> {
        let key = self.key()?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let of = self.certificate.display();
                unusable(&self.key, format!("this is not the private key of {of}"))
            }
            rustls::Error::InvalidCertificate(error) => {
                unusable(&self.certificate, format!("a certificate in it is not valid: {error}"))
            }
            error => unusable(&self.key, format!("the private key cannot be used: {error}")),
        })
    }

    /// The chain and the key as they are, for a client.
    pub(super) fn load_plain(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        Ok((certificates(&self.certificate)?, self.key()?))
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let text = read(&self.key)?;
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            let reason = match error {
                pem::Error::NoItemsFound => "no private key in it: expected PEM of PKCS#8 (PRIVATE KEY), SEC1 (EC PRIVATE KEY) or PKCS#1 (RSA PRIVATE KEY), not encrypted".to_owned(),
                error => format!("not a PEM file: {error}"),
            };
            unusable(&self.key, reason)
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

/// # Errors
/// Reading it could take for ever.
pub(super) fn check_not_pipe(path: &Path) -> Result<(), TlsError> {
    match std::fs::metadata(path) {
        Ok(file) if !file.is_file() => Err(unusable(path, "this is not a regular file")),
        // What else is wrong with it, reading it tells.
        _ => Ok(()),
    }
}

fn unusable(path: &Path, reason: impl Into<String>) -> TlsError {
    TlsError::Unusable { path: path.to_owned(), reason: reason.into() }
}

/// All certificates of a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| unusable(path, format!("not a PEM file: {error}")))?;
    if chain.is_empty() {
        return Err(unusable(path, "no certificate in it: expected PEM (CERTIFICATE)"));
    }
    Ok(chain)
}

/// The certificates of authorities.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| unusable(path, error.to_string()))?;
    }
    Ok(roots)
}

/// Returns why the first certificate is not valid at this time, if it is not.
///
/// # Errors
/// It is none.
fn check_time(
    chain: &[CertificateDer<'_>],
    provider: &CryptoProvider,
) -> Result<Option<&'static str>, String> {
    let [leaf, issuers @ ..] = chain else { return Ok(None) };
    let parsed = ParsedCertificate::try_from(leaf).map_err(|error| error.to_string())?;
    // rustls looks at the time when it verifies a chain, so this one is verified against its own end. Whether clients would trust that is
    // theirs to say: of the answer only the time counts.
    let mut roots = RootCertStore::empty();
    roots.add(issuers.last().unwrap_or(leaf).clone()).map_err(|error| error.to_string())?;
    let algorithms = provider.signature_verification_algorithms.all;
    let now = UnixTime::now();
    match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, issuers, now, algorithms) {
        Err(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => {
            Ok(Some("the certificate has expired"))
        }
        Err(rustls::Error::InvalidCertificate(NotValidYet | NotValidYetContext { .. })) => {
            Ok(Some("the certificate is not valid yet: is the clock right?"))
        }
        _ => Ok(None),
    }
}

/// Chooses by the name that the client asks for; the first one serves who asks for none, or for one that nobody has.
#[derive(Debug)]
pub(super) struct ByName(pub(super) Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let first = self.0.first()?;
        let name = hello.server_name().filter(|_| self.0.len() > 1);
        let name = name.and_then(|name| ServerName::try_from(name).ok());
        let fits = |key: &&Arc<CertifiedKey>| {
            let (Some(name), Ok(leaf)) = (&name, key.end_entity_cert()) else { return false };
            let parsed = ParsedCertificate::try_from(leaf);
            parsed.is_ok_and(|parsed| verify_server_name(&parsed, name).is_ok())
        };
        Some(self.0.iter().find(fits).unwrap_or(first).clone())
    }
}
