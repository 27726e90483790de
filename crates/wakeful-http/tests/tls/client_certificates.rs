//! Clients that identify themselves.

use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::Extension;
use axum::http::StatusCode;
use axum::routing::get;
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use rcgen::date_time_ymd;
use rustls::HandshakeKind;
use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use wakeful::io::LoopExecutor;
use wakeful::net::TcpStream;
use wakeful_http::tls::{ClientAuth, PeerCertificates, ServerTls};
use wakeful_http::{Peer, Running};

use crate::common::{addr, request, server, until};
use crate::material::{Authority, Issued, Site};
use crate::raw::{CLOSING_GET, connect, connect_as, rest, with};

/// Says how long the certificate of the client is.
fn app() -> Router {
    let who = |peer: Option<Extension<PeerCertificates>>| async move {
        peer.map_or("nobody".to_owned(), |Extension(peer)| {
            format!("{}, of {}", peer.leaf().len(), peer.chain().len())
        })
    };
    Router::new().route("/", get(who))
}

fn serving(site: &Site, auth: ClientAuth) -> (Running, ServerTls) {
    let tls = site.builder().client_ca(auth, site.ca()).build().unwrap();
    (server().tls(tls.clone()).start(app()).unwrap(), tls)
}

fn answer(running: &Running, site: &Site, identity: Option<&Issued>) -> std::io::Result<String> {
    let config = with(&site.ca(), rustls::ALL_VERSIONS, identity);
    let mut client = connect(addr(running), config);
    client.write_all(CLOSING_GET)?;
    rest(&mut client).map(|text| text.rsplit("\r\n\r\n").next().unwrap().to_owned())
}

#[test]
fn a_client_that_must_identify_itself_is_refused_without_and_served_with_a_certificate() {
    let site = Site::new();
    let (running, tls) = serving(&site, ClientAuth::Require);
    let refused = answer(&running, &site, None).unwrap_err();
    assert!(refused.to_string().contains("CertificateRequired"), "{refused}");
    until("it is counted", || tls.counts().failed() == 1);

    let client = site.authority.issue("a client");
    let expected = format!("{}, of 1", client.der.len());
    assert_eq!(answer(&running, &site, Some(&client)).unwrap(), expected);

    let of_a_stranger = Authority::new("a stranger").issue("a client");
    let refused = answer(&running, &site, Some(&of_a_stranger)).unwrap_err();
    assert!(refused.to_string().contains("UnknownCA"), "{refused}");
    until("it is counted", || tls.counts().failed() == 2);
    assert_eq!(tls.counts().handshakes(), 1);
}

#[test]
fn a_client_that_is_asked_may_stay_nobody_but_may_not_lie() {
    let site = Site::new();
    let (running, _) = serving(&site, ClientAuth::Request);
    assert_eq!(answer(&running, &site, None).unwrap(), "nobody");
    let client = site.authority.issue("a client");
    let expected = format!("{}, of 1", client.der.len());
    assert_eq!(answer(&running, &site, Some(&client)).unwrap(), expected);
    let of_a_stranger = Authority::new("a stranger").issue("a client");
    assert!(answer(&running, &site, Some(&of_a_stranger)).is_err());
}

/// How long the certificate of the next test is valid. The first handshakes have to be in time.
const VALID: Duration = Duration::from_secs(4);

#[test]
fn a_session_does_not_outlive_the_certificate_of_its_client() {
    let site = Site::new();
    let client = site.authority.issue_with("a client", |params| {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(now.as_secs()) + VALID;
    });
    let began = SystemTime::now();
    let servers: Vec<_> = [
        (&TLS12, ClientAuth::Request),
        (&TLS13, ClientAuth::Require),
        (&TLS13, ClientAuth::Request),
    ]
    .into_iter()
    .map(|(version, auth)| {
        let (running, tls) = serving(&site, auth);
        let mut config = with(&site.ca(), &[version], Some(&client));
        config.resumption = Resumption::in_memory_sessions(8);
        (running, tls, Arc::new(config))
    })
    .collect();
    let ask = |running: &Running, config: &Arc<_>| {
        let mut client = connect_as(addr(running), config, "localhost");
        client.write_all(CLOSING_GET)?;
        let answer = rest(&mut client)?;
        std::io::Result::Ok((answer, client.conn.handshake_kind().unwrap()))
    };
    for _ in 0..2 {
        for (running, _, config) in &servers {
            let (answer, kind) = ask(running, config).unwrap();
            assert!(answer.ends_with(", of 1"), "{answer}");
            assert_eq!(kind, HandshakeKind::Full, "each is verified");
        }
    }
    // The last second of a certificate is part of its time.
    while began.elapsed().unwrap() < VALID + Duration::from_secs(2) {
        thread::sleep(Duration::from_millis(50));
    }
    for (running, tls, config) in &servers {
        assert!(ask(running, config).is_err(), "it is served");
        until("it is counted", || tls.counts().failed() == 1);
    }
}

#[test]
fn each_request_of_http2_says_who_asks() {
    let site = Site::new();
    let (running, _) = serving(&site, ClientAuth::Require);
    let client = site.authority.issue("a client");
    let expected = format!("{}, of 1", client.der.len());
    let tls = site
        .client()
        .certificate(
            site.directory.write("client.pem", &client.certificate),
            site.directory.write("client.key", &client.key),
        )
        .build()
        .unwrap();
    let addr = addr(&running);
    wakeful::block_on(async {
        let stream = TcpStream::connect(addr).await.unwrap();
        let stream = tls.connect(stream, "localhost").await.unwrap();
        let (mut sender, connection) =
            http2::Builder::new(LoopExecutor).handshake(stream).await.unwrap();
        wakeful::spawn(connection).detach();
        for _ in 0..3 {
            let response = sender.send_request(request("GET", "/", "")).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, expected);
        }
    });
}

/// `Tls, Some(Http2), 1`: what protects the connection, the protocol, and how many certificates.
async fn identity(peer: Peer, certificates: Option<PeerCertificates>) -> String {
    let count = certificates.map_or(0, |certificates| certificates.chain().len());
    assert!(peer.socket_addr().is_some());
    format!("{:?}, {:?}, {count}", peer.security, peer.alpn)
}

#[test]
fn a_handler_s_peer_says_tls_and_protocol_and_its_certificates_are_an_argument() {
    let site = Site::new();
    let tls = site.builder().client_ca(ClientAuth::Request, site.ca()).build().unwrap();
    let app = Router::new()
        .route("/", get(identity))
        .route("/certified", get(|_: PeerCertificates| async { "certified" }));
    let running = server().tls(tls).start(app).unwrap();
    let certified = site.authority.issue("a client");
    for (client, expected) in [(None, "Tls, None, 0"), (Some(&certified), "Tls, None, 1")] {
        assert_eq!(answer(&running, &site, client).unwrap(), expected);
    }
    let tls = site.client().build().unwrap();
    wakeful::block_on(async {
        let stream = TcpStream::connect(addr(&running)).await.unwrap();
        let stream = tls.connect(stream, "localhost").await.unwrap();
        let (mut sender, connection) =
            http2::Builder::new(LoopExecutor).handshake(stream).await.unwrap();
        wakeful::spawn(connection).detach();
        let response = sender.send_request(request("GET", "/", "")).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "Tls, Some(Http2), 0");
        let refused = sender.send_request(request("GET", "/certified", "")).await.unwrap();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    });
}
