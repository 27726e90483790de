//! Clients that see what happens on the wire: rustls on a blocking socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::common::GUARD;
use crate::material::Issued;

pub(crate) type Raw = StreamOwned<ClientConnection, TcpStream>;

pub(crate) const CLOSING_GET: &[u8] =
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
pub(crate) const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Trusts the authority in `ca`, names no protocol, takes no session up.
pub(crate) fn config(ca: &Path) -> ClientConfig {
    with(ca, rustls::ALL_VERSIONS, None)
}

pub(crate) fn with(
    ca: &Path,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<&Issued>,
) -> ClientConfig {
    with_provider(rustls::crypto::ring::default_provider(), ca, versions, identity)
}

pub(crate) fn with_provider(
    provider: CryptoProvider,
    ca: &Path,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<&Issued>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        Some(Issued { certificate, key, .. }) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    config
}

pub(crate) fn connect_as(addr: SocketAddr, config: &Arc<ClientConfig>, name: &str) -> Raw {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let session = ClientConnection::new(config.clone(), name).unwrap();
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    StreamOwned::new(session, stream)
}

pub(crate) fn connect(addr: SocketAddr, config: ClientConfig) -> Raw {
    connect_as(addr, &Arc::new(config), "localhost")
}

/// The handshake and no more.
pub(crate) fn shake(client: &mut Raw) -> std::io::Result<()> {
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock)?;
    }
    Ok(())
}

/// One request on a connection that is kept.
pub(crate) fn ask(client: &mut Raw) {
    client.write_all(GET).unwrap();
    read_until(client, b"hello");
}

pub(crate) fn read_until(client: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    while !answer.ends_with(end) {
        let mut buf = [0; 1024];
        let read = client.read(&mut buf).unwrap();
        assert!(read > 0, "closed early: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buf[..read]);
    }
    answer
}

/// Everything until the server says that it ends. A connection that is cut is an error.
pub(crate) fn rest(client: &mut Raw) -> std::io::Result<String> {
    let mut answer = String::new();
    client.read_to_string(&mut answer).map(|_| answer)
}

/// The server's own certificate, as this client got it.
pub(crate) fn certificate(client: &Raw) -> Vec<u8> {
    client.conn.peer_certificates().unwrap()[0].to_vec()
}
