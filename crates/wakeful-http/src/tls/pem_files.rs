//! Certificates and keys: loads them from PEM files into rustls's form.
//!
//! A pair is checked before it is used: the key must fit, and the certificate must be valid now.
//! Errors name the file.

use std::collections::HashMap;
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
use webpki::EndEntityCert;

use super::TlsError;
use crate::foreign_code;

/// Where a certificate and its key are.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Pair {
    /// Loads the pair. A certificate that is not valid at this time is an error, unless the server
    /// `has_no_other`: then it is only logged.
    pub(super) fn load(
        &self,
        provider: &CryptoProvider,
        has_no_other: impl FnOnce(&CertificateDer<'_>) -> bool,
    ) -> Result<CertifiedKey, TlsError> {
        let chain = certificates(&self.certificate)?;
        let not_now = check_time(&chain, provider);
        if let Some(reason) = not_now.map_err(|reason| unusable(&self.certificate, reason))? {
            if !chain.first().is_some_and(has_no_other) {
                return Err(unusable(&self.certificate, reason));
            }
            let certificate = self.certificate.display();
            foreign_code::log!(warn, %certificate, "TLS: {reason}. Clients will refuse it: replace the file and reload");
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
            error => {
                let kinds = "ECDSA of P-256, P-384 or P-521, Ed25519, or RSA of 2,048 bits or more";
                unusable(
                    &self.key,
                    format!("the private key cannot be used: {error}; expected {kinds}"),
                )
            }
        })
    }

    /// Loads the chain and the key without checks, for a client.
    pub(super) fn load_plain(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        Ok((certificates(&self.certificate)?, self.key()?))
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let text = read(&self.key)?;
        if is_encrypted(&text) {
            return Err(unusable(
                &self.key,
                "the private key is encrypted: decrypt it into another file (`openssl pkey -in THIS -out OTHER`)",
            ));
        }
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            let reason = match error {
                pem::Error::NoItemsFound => "no private key in it: expected PEM of PKCS#8 (PRIVATE KEY), SEC1 (EC PRIVATE KEY) or PKCS#1 (RSA PRIVATE KEY), not encrypted".to_owned(),
                error => not_pem(&error),
            };
            unusable(&self.key, reason)
        })
    }
}

/// Is it a private key that needs a passphrase, in PKCS#8 or in OpenSSL's older form?
fn is_encrypted(pem: &[u8]) -> bool {
    let has = |text: &[u8]| pem.windows(text.len()).any(|part| part == text);
    has(b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || has(b"Proc-Type: 4,ENCRYPTED")
}

/// Larger than any bundle of certificates. (A device may have no end.)
const LARGEST: u64 = 16 << 20;

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let text = wakeful::fs::read_small(path, LARGEST)
        .map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })?;
    if text.len() as u64 > LARGEST {
        return Err(unusable(path, "this is larger than 16 MiB"));
    }
    Ok(text)
}

/// # Errors
/// The path is a pipe, and reading it could take for ever.
pub(super) fn check_not_pipe(path: &Path) -> Result<(), TlsError> {
    match std::fs::metadata(path) {
        Ok(file) if !file.is_file() => Err(unusable(path, "this is not a regular file")),
        // Reading the file reports any other problem.
        _ => Ok(()),
    }
}

const NOT_VALID_YET: &str = "the certificate is not valid yet: is the clock right?";

/// May the same file be usable later? Permissions, mounts, free descriptors and the time may change
/// without a change of the file.
pub(super) fn may_pass(error: &TlsError) -> bool {
    match error {
        TlsError::Unreadable { .. } => true,
        TlsError::Unusable { reason, .. } => reason == NOT_VALID_YET,
        TlsError::Settings(_) => false,
    }
}

fn unusable(path: &Path, reason: impl Into<String>) -> TlsError {
    TlsError::Unusable { path: path.to_owned(), reason: reason.into() }
}

fn not_pem(error: &pem::Error) -> String {
    let reason = match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let name = String::from_utf8_lossy(end_marker);
            format!("it ends before the line -----END {name}-----: was it cut off?")
        }
        // The line itself must not be logged, because it may be a part of a key.
        pem::Error::IllegalSectionStart { .. } => {
            "a line begins with -----BEGIN and does not end with -----".to_owned()
        }
        error => error.to_string(),
    };
    format!("not a PEM file: {reason}")
}

/// All certificates of a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| unusable(path, not_pem(&error)))?;
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
/// The data is no certificate.
fn check_time(
    chain: &[CertificateDer<'_>],
    provider: &CryptoProvider,
) -> Result<Option<&'static str>, String> {
    let [leaf, issuers @ ..] = chain else { return Ok(None) };
    let parsed = ParsedCertificate::try_from(leaf).map_err(|error| error.to_string())?;
    // rustls checks the time only when it verifies a chain, so this chain is verified against its
    // own end. Whether clients would trust it is for them to decide. Only an answer about the time
    // counts here.
    let mut roots = RootCertStore::empty();
    roots.add(issuers.last().unwrap_or(leaf).clone()).map_err(|error| error.to_string())?;
    let algorithms = provider.signature_verification_algorithms.all;
    let now = UnixTime::now();
    match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, issuers, now, algorithms) {
        Err(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => {
            Ok(Some("the certificate has expired"))
        }
        Err(rustls::Error::InvalidCertificate(NotValidYet | NotValidYetContext { .. })) => {
            Ok(Some(NOT_VALID_YET))
        }
        _ => Ok(None),
    }
}

/// Chooses a certificate by the name that the client asks for. If the client asks for no name, or
/// for one that no certificate has, it gets the first certificate. A handshake looks the name up in
/// a table, because there may be thousands of certificates. Their names are read once, when they
/// are loaded.
#[derive(Debug)]
pub(super) struct ByName {
    first: Arc<CertifiedKey>,
    /// The names in lower case, with wildcards as they are, and the places of their certificates.
    /// If two certificates match, the one that was given first is used.
    names: HashMap<String, (usize, Arc<CertifiedKey>)>,
}

impl ByName {
    /// `None` without a key.
    pub(super) fn new(keys: &[Arc<CertifiedKey>]) -> Option<Self> {
        let first = keys.first()?.clone();
        let mut names = HashMap::new();
        // A single certificate is used for every name.
        let keys = if keys.len() > 1 { keys } else { &[] };
        for (place, key) in keys.iter().enumerate() {
            for name in names_of(key) {
                names.entry(name).or_insert_with(|| (place, key.clone()));
            }
        }
        Some(Self { first, names })
    }

    fn find(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let wildcard = name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let fit = [Some(name), wildcard].into_iter().flatten().filter_map(|n| self.names.get(&n));
        fit.min_by_key(|(place, _)| *place).map_or(&self.first, |(_, key)| key)
    }
}

/// The names that a certificate is valid for, by rustls' rules.
fn names_of(key: &CertifiedKey) -> Vec<String> {
    let Ok(leaf) = key.end_entity_cert() else { return Vec::new() };
    let (Ok(names), Ok(parsed)) =
        (EndEntityCert::try_from(leaf), ParsedCertificate::try_from(leaf))
    else {
        return Vec::new();
    };
    let is_valid = |name: &&str| {
        let example = name.strip_prefix("*.").map(|rest| format!("x.{rest}"));
        let example = ServerName::try_from(example.as_deref().unwrap_or(name));
        example.is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    };
    names.valid_dns_names().filter(is_valid).map(str::to_ascii_lowercase).collect()
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(hello.server_name().map_or(&self.first, |name| self.find(name)).clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rcgen::KeyPair;

    use super::*;
    use crate::tls::provider;

    fn issued(names: &[&str]) -> Arc<CertifiedKey> {
        let key = KeyPair::generate().unwrap();
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain = vec![certificate.der().clone()];
        Arc::new(CertifiedKey::from_der(chain, key, &provider()).unwrap())
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = certificates(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("/dev/zero") && error.contains("larger than 16 MiB"), "{error}");
    }

    #[test]
    fn a_file_that_was_cut_off_is_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cert.pem");
        for (text, expected) in [
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "before the line -----END CERTIFICATE-----"),
            ("-----BEGIN CERT", "a line begins with -----BEGIN"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = certificates(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn of_those_that_are_valid_for_a_name_the_first_one_serves() {
        let keys = [
            issued(&["a.d.example"]),
            issued(&["*.D.Example", "far.example"]),
            issued(&["b.d.example"]),
            issued(&["d.example"]),
        ];
        let by_name = ByName::new(&keys).unwrap();
        for (name, place) in [
            ("a.d.example", 0),
            ("A.D.EXAMPLE", 0),
            ("b.d.example", 1),
            ("new.d.example", 1),
            ("far.example", 1),
            ("d.example", 3),
            // No certificate has these names.
            ("x.y.d.example", 0),
            ("x.far.example", 0),
            ("", 0),
        ] {
            assert!(Arc::ptr_eq(by_name.find(name), &keys[place]), "{name:?} is not of {place}");
        }
    }

    #[test]
    fn a_handshake_does_not_take_longer_the_more_certificates_there_are() {
        let (many, wanted) = (issued(&["many.example"]), issued(&["wanted.example"]));
        let took = |others: usize| {
            let mut keys = vec![many.clone(); others];
            keys.push(wanted.clone());
            let by_name = ByName::new(&keys).unwrap();
            let once = |_| {
                let start = Instant::now();
                assert!(Arc::ptr_eq(by_name.find("wanted.example"), &wanted));
                start.elapsed()
            };
            (0..20).map(once).min().unwrap()
        };
        let (few, many) = (took(1), took(5_000));
        assert!(many < few * 100 + Duration::from_micros(100), "{many:?}, and {few:?} with few");
    }
}
