//! What client and server agree on, and what happens if they do not agree.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::HandshakeKind;
use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use socket2::SockRef;
use wakeful::LoopGroup;
use wakeful_http::tls::{ClientAuth, MinVersion, ServerTls, TicketSecret};
use wakeful_http::{Refusal, Running};

use crate::common::{addr, raw as plain, read_all, router, server, until};
use crate::material::{Site, kept};
use crate::raw::{
    CLOSING_GET, GET, ask, certificate, config, connect, connect_as, rest, shake, with,
};

#[test]
fn tls_1_2_and_1_3_are_spoken() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    for version in [&TLS12, &TLS13] {
        let mut client = connect(addr(&running), with(&site.ca(), &[version], None));
        client.write_all(CLOSING_GET).unwrap();
        assert!(rest(&mut client).unwrap().ends_with("hello"));
        assert_eq!(client.conn.protocol_version(), Some(version.version));
    }
    assert_eq!((tls.counts().handshakes(), tls.counts().failed()), (2, 0));
}

#[test]
fn an_older_version_than_the_least_is_refused_and_told_so() {
    let site = Site::new();
    let tls = site.builder().min_version(MinVersion::Tls13).build().unwrap();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let mut old = connect(addr(&running), with(&site.ca(), &[&TLS12], None));
    let error = shake(&mut old).unwrap_err();
    assert!(error.to_string().contains("ProtocolVersion"), "{error}");
    until("it is counted", || tls.counts().failed() == 1);
    ask(&mut connect(addr(&running), config(&site.ca())));
}

#[test]
fn alpn_decides_the_protocol_and_the_first_bytes_do_where_there_is_none() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let offering = |protocols: &[&[u8]]| {
        let mut config = config(&site.ca());
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let mut client = connect(addr(&running), config);
        shake(&mut client).unwrap();
        let chosen = client.conn.alpn_protocol().map(<[u8]>::to_vec);
        (client, chosen)
    };
    // The preface and an empty SETTINGS frame; the answer is the server's SETTINGS.
    let speaks_http2 = |client: &mut crate::raw::Raw| {
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        let mut frame = [0; 9];
        client.read_exact(&mut frame).unwrap();
        frame[3] == 4
    };

    let (mut client, chosen) = offering(&[b"http/1.1", b"h2"]);
    assert_eq!(chosen.as_deref(), Some(&b"h2"[..]), "the server's order counts");
    assert!(speaks_http2(&mut client));
    let (mut client, chosen) = offering(&[b"http/1.1"]);
    assert_eq!(chosen.as_deref(), Some(&b"http/1.1"[..]));
    ask(&mut client);
    let (mut client, chosen) = offering(&[]);
    assert_eq!(chosen, None);
    ask(&mut client);
    let (mut client, chosen) = offering(&[]);
    assert_eq!(chosen, None);
    assert!(speaks_http2(&mut client));
    // What was agreed on holds.
    let (mut client, _) = offering(&[b"http/1.1"]);
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert_eq!(rest(&mut client).unwrap(), "", "hyper answers nothing, and it closes");
}

#[test]
fn a_client_whose_protocols_nobody_speaks_is_refused_and_told_so() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let mut config = config(&site.ca());
    config.alpn_protocols = vec![b"gopher".to_vec()];
    let error = shake(&mut connect(addr(&running), config)).unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    until("it is counted", || tls.counts().failed() == 1);
}

#[test]
fn the_certificate_is_chosen_by_the_name_that_the_client_asks_for() {
    let site = Site::new();
    let other = site.authority.issue("other.example");
    let tls = site
        .builder()
        .certificate(
            site.directory.write("other.pem", &other.certificate),
            site.directory.write("other.key", &other.key),
        )
        .build()
        .unwrap();
    let running = server().tls(tls).start(router()).unwrap();
    let config = Arc::new(config(&site.ca()));
    for (name, expected) in [("localhost", &site.served), ("other.example", &other)] {
        let mut client = connect_as(addr(&running), &config, name);
        ask(&mut client);
        assert_eq!(certificate(&client), expected.der, "{name}");
    }
    // Nobody has it: the client sees the first one, and that it is not for this name.
    let mut stranger = connect_as(addr(&running), &config, "stranger.example");
    let error = shake(&mut stranger).unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
}

#[test]
fn private_keys_of_all_three_kinds_are_read() {
    for (certificate, key) in
        [("rsa.pem", "rsa-pkcs1.key"), ("rsa.pem", "rsa-pkcs8.key"), ("ec.pem", "ec-sec1.key")]
    {
        let tls = ServerTls::from_files(kept(certificate), kept(key)).expect(key);
        let running = server().tls(tls).start(router()).unwrap();
        // It is signed by itself, so it is its own authority.
        ask(&mut connect(addr(&running), config(&kept(certificate))));
    }
}

/// A client that keeps sessions.
fn resuming(site: &Site) -> Arc<rustls::ClientConfig> {
    let mut config = config(&site.ca());
    config.resumption = Resumption::in_memory_sessions(8);
    Arc::new(config)
}

/// How a connection of this client that asks once begins.
fn kind_of(running: &Running, config: &Arc<rustls::ClientConfig>) -> HandshakeKind {
    let mut client = connect_as(addr(running), config, "localhost");
    ask(&mut client);
    client.conn.handshake_kind().unwrap()
}

#[test]
fn a_session_is_taken_up_again_also_behind_a_reload() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let config = resuming(&site);
    let kind = || kind_of(&running, &config);
    assert_eq!(kind(), HandshakeKind::Full);
    assert_eq!(kind(), HandshakeKind::Resumed);
    site.serve(&site.authority.issue("localhost"));
    tls.reload().unwrap();
    assert_eq!(kind(), HandshakeKind::Resumed);
    assert_eq!((tls.counts().handshakes(), tls.counts().resumed()), (3, 2));
}

#[test]
fn a_session_is_taken_up_by_another_server_that_has_the_same_secret_and_by_no_other_one() {
    let site = Site::new();
    let config = resuming(&site);
    let start = |secret: &TicketSecret| {
        let tls = site.builder().ticket_secret(secret.clone()).build().unwrap();
        server().tls(tls).start(router()).unwrap()
    };
    let kind = |running| kind_of(running, &config);
    let (secret, another) = (TicketSecret::random().unwrap(), TicketSecret::random().unwrap());
    let (one, sibling, stranger) = (start(&secret), start(&secret), start(&another));
    assert_eq!(kind(&one), HandshakeKind::Full);
    assert_eq!(kind(&sibling), HandshakeKind::Resumed);
    assert_eq!(kind(&stranger), HandshakeKind::Full);
}

/// A ticket would say that its client was verified; perhaps long ago, or by authorities that are
/// gone.
#[test]
fn no_session_is_taken_up_where_clients_are_asked_for_certificates() {
    let site = Site::new();
    let ca = site.directory.write("clients.pem", &site.authority.pem);
    for secret in [None, Some(TicketSecret::random().unwrap())] {
        let tls = site.builder().client_ca(ClientAuth::Request, &ca).ticket_secret(secret);
        let tls = tls.build().unwrap();
        let running = server().tls(tls.clone()).start(router()).unwrap();
        let config = resuming(&site);
        let kind = || kind_of(&running, &config);
        assert_eq!((kind(), kind()), (HandshakeKind::Full, HandshakeKind::Full));
        tls.reload().unwrap();
        assert_eq!(kind(), HandshakeKind::Full);
    }
}

#[test]
fn a_client_that_stalls_in_its_handshake_is_closed_in_time_and_counted() {
    let site = Site::new();
    let tls = site.builder().handshake_timeout(Duration::from_millis(100)).build().unwrap();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let silent = plain(&running);
    let mut half = plain(&running);
    // A record that is announced and does not come.
    half.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
    ask(&mut connect(addr(&running), config(&site.ca())));
    assert_eq!(read_all(silent), "");
    assert_eq!(read_all(half), "");
    assert_eq!((tls.counts().timed_out(), tls.counts().failed()), (2, 2));
    until("nothing of them is left", || running.counts().open() == 0);
}

#[test]
fn a_client_that_began_while_its_loop_stood_still_may_finish_its_handshake() {
    let (site, limit) = (Site::new(), Duration::from_millis(100));
    let tls = site.builder().handshake_timeout(limit).build().unwrap();
    let server = server().group(LoopGroup::builder().loops(1)).tls(tls.clone());
    let running = server.start(router()).unwrap();
    for round in 0..5 {
        let mut client = connect(addr(&running), config(&site.ca()));
        until("it is accepted", || running.counts().accepted() == round + 1);
        let (stands, stood) = std::sync::mpsc::channel();
        let stand_still = move || {
            stands.send(()).unwrap();
            std::thread::sleep(2 * limit);
        };
        running.handles()[0].post(stand_still).unwrap();
        stood.recv().unwrap();
        ask(&mut client);
    }
    assert_eq!(tls.counts().timed_out(), 0);
}

#[test]
fn a_handshake_that_may_take_for_ever_is_done() {
    let site = Site::new();
    let tls = site.builder().handshake_timeout(Duration::MAX).build().unwrap();
    let running = server().tls(tls).start(router()).unwrap();
    ask(&mut connect(addr(&running), config(&site.ca())));
}

#[test]
fn plain_http_is_answered_in_plain_and_other_protocols_are_closed() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let mut lost = plain(&running);
    lost.write_all(GET).unwrap();
    let answer = read_all(lost);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}", body.len())), "{answer}");
    let mut other = plain(&running);
    other.write_all(b"\0\0\0\x04ping").unwrap();
    assert_eq!(read_all(other), "");
    assert_eq!((tls.counts().not_tls(), tls.counts().failed()), (2, 2));
    ask(&mut connect(addr(&running), config(&site.ca())));
}

/// A balancer does this all the time, and some end by a reset.
#[test]
fn a_probe_that_only_connects_is_no_failed_handshake() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let counts = running.http_counts();
    for (resets, seen) in [(false, 1), (true, 2)] {
        let probe = plain(&running);
        until("it is served", || running.counts().open() == 1);
        if resets {
            SockRef::from(&probe).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(probe);
        until("it is gone", || running.counts().open() == 0);
        assert_eq!(counts.refused(Refusal::NoRequest), seen);
    }
    assert_eq!((tls.counts().failed(), counts.refused(Refusal::Tls)), (0, 0));
}

#[test]
fn garbage_within_a_record_fails_that_handshake_only() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    for garbage in [&b"\x16\x03\x01\x00\x04\xff\xff\xff\xff"[..], b"\x16\xff\xff\xff\xff\xff"] {
        let mut client = plain(&running);
        client.write_all(garbage).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut alert = Vec::new();
        client.read_to_end(&mut alert).unwrap();
        assert!(alert.is_empty() || alert[0] == 21, "{alert:?}");
    }
    until("both are counted", || tls.counts().failed() == 2);
    ask(&mut connect(addr(&running), config(&site.ca())));
}

#[test]
fn a_handshake_may_come_byte_by_byte() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let mut client = connect(addr(&running), config(&site.ca()));
    client.sock.set_nodelay(true).unwrap();
    let mut records = Vec::new();
    while client.conn.is_handshaking() {
        records.clear();
        while client.conn.wants_write() {
            client.conn.write_tls(&mut records).unwrap();
        }
        for byte in &records {
            client.sock.write_all(&[*byte]).unwrap();
        }
        if client.conn.is_handshaking() {
            client.conn.read_tls(&mut client.sock).unwrap();
            client.conn.process_new_packets().unwrap();
        }
    }
    ask(&mut client);
}
