//! Certificates for a test, in files of a directory of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use wakeful_http::tls::{ClientTls, ClientTlsBuilder, ServerTls, ServerTlsBuilder};

/// Goes with the test.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("wakeful-tls-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An authority that signs, and its certificate.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, as PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) der: Vec<u8>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn issue(&self, name: &str) -> Issued {
        self.issue_with(name, |_| {})
    }

    pub(crate) fn issue_with(&self, name: &str, change: fn(&mut CertificateParams)) -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let der = certificate.der().to_vec();
        Issued { certificate: certificate.pem(), key: key.serialize_pem(), der }
    }
}

/// An authority, and a server's pair of it for `localhost` and in files.
pub(crate) struct Site {
    pub(crate) directory: Directory,
    pub(crate) authority: Authority,
    pub(crate) served: Issued,
}

impl Site {
    pub(crate) fn new() -> Self {
        let (directory, authority) = (Directory::new(), Authority::new("the authority"));
        directory.write("ca.pem", &authority.pem);
        let served = authority.issue("localhost");
        let site = Self { directory, authority, served };
        site.serve(&site.served);
        site
    }

    /// Puts it where the server's files are.
    pub(crate) fn serve(&self, issued: &Issued) {
        self.directory.write("server.pem", &issued.certificate);
        self.directory.write("server.key", &issued.key);
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.path("ca.pem")
    }

    pub(crate) fn builder(&self) -> ServerTlsBuilder {
        let (certificate, key) =
            (self.directory.path("server.pem"), self.directory.path("server.key"));
        ServerTls::builder().certificate(certificate, key)
    }

    pub(crate) fn tls(&self) -> ServerTls {
        self.builder().build().unwrap()
    }

    /// For a server that is not ours.
    pub(crate) fn rustls_server(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let chain = vec![CertificateDer::from(self.served.der.clone())];
        let key = PrivateKeyDer::from_pem_slice(self.served.key.as_bytes()).unwrap();
        Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
    }

    pub(crate) fn client(&self) -> ClientTlsBuilder {
        ClientTls::builder().ca(self.ca())
    }
}

/// A key or certificate that is kept with the tests.
pub(crate) fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls/keys").join(name)
}
