//! The same over TLS.

use std::io::{Read, Write};
use std::pin::pin;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use socket2::SockRef;
use wakeful_http::client::{Target, UpgradeAnswer};
use wakeful_http::tls::ClientTls;
use wakeful_http::upgrade::Upgraded;

use super::common::{addr, router, server};
use super::http2::{Clients, are_closed_in_their_time};
use super::material::Site;
use super::*;

fn target(addr: SocketAddr, version: HttpVersion) -> Target {
    let target: Target = format!("https://localhost:{}", addr.port()).parse().unwrap();
    target.version(version)
}

#[test]
fn both_versions_are_spoken_over_tls() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    on_a_loop(async {
        for version in [HttpVersion::Http1, HttpVersion::Http2] {
            let client: Client = Client::builder().tls(site.client().build().unwrap()).build();
            let host = client.host(&target(addr(&running), version));
            for number in 0..20 {
                let response = host.send(get(&format!("/n/{number}"))).await;
                assert_eq!(text(response).await, number.to_string());
            }
            let response = host.send(request("POST", "/echo", "a body")).await;
            assert_eq!(text(response).await, "a body");
            assert_eq!((client.counts().opened(), client.counts().reused()), (1, 20));
        }
        let client: Client = Client::builder().tls(site.client().build().unwrap()).build();
        let uri = format!("https://localhost:{}/n/7", addr(&running).port());
        assert_eq!(text(client.send(get(&uri)).await).await, "7");
    });
}

#[test]
fn a_server_that_is_not_trusted_is_an_error_of_the_connection() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    on_a_loop(async {
        for tls in [Some(ClientTls::builder().build().unwrap()), None] {
            let settings = Client::builder();
            let settings = match tls {
                Some(tls) => settings.tls(tls),
                None => settings,
            };
            let client: Client = settings.build();
            let host = client.host(&target(addr(&running), HttpVersion::Http1));
            let error = host.send(get("/")).await.unwrap_err();
            assert!(error.is_connect(), "{error}");
            assert_eq!((client.counts().failed(), host.connections()), (1, 0));
        }
    });
}

#[test]
fn a_server_that_says_nothing_in_the_handshake_is_an_error_in_its_time() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| until_closed(&mut stream).await).await;
        let site = Site::new();
        let after = std::time::Duration::from_millis(20);
        let settings = Client::builder().tls(site.client().build().unwrap());
        let client: Client = settings.connect_timeout(after).build();
        let error =
            client.host(&target(addr, HttpVersion::Http1)).send(get("/")).await.unwrap_err();
        assert!(matches!(error, ClientError::ConnectTimeout { .. }), "{error}");
    });
}

/// The handshake of the first connection ends after the request that began it was given up. No
/// further connection is answered.
#[test]
fn a_request_that_is_given_up_while_it_connects_by_http2_leaves_its_connection_to_who_waits() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let server = addr(&running);
    on_a_loop(async {
        let (may_pass, passes) = async_channel::bounded::<()>(1);
        let (came, comes) = async_channel::unbounded();
        let relay = scripted(move |number, client| {
            let (passes, came) = (passes.clone(), came.clone());
            async move {
                came.send(()).await.unwrap();
                if number > 0 {
                    std::future::pending::<()>().await;
                }
                passes.recv().await.unwrap();
                let server = TcpStream::connect(server).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                let up = futures_lite::io::copy(from_client, to_server);
                let down = futures_lite::io::copy(from_server, to_client);
                let _ = futures_lite::future::zip(up, down).await;
            }
        })
        .await;
        let client: Client = Client::builder().tls(site.client().build().unwrap()).build();
        let host = client.host(&target(relay, HttpVersion::Http2));
        let mut first = Box::pin(host.send(get("/n/1")));
        assert!(futures_util::poll!(&mut first).is_pending());
        comes.recv().await.unwrap();
        let mut second = pin!(host.send(get("/n/2")));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        may_pass.send(()).await.unwrap();
        assert_eq!(text(second.await).await, "2");
        assert_eq!((client.counts().opened(), host.connections()), (1, 1));
        assert!(comes.is_empty(), "no other connection was made");
    });
}

/// TLS holds bytes that h2 has written.
#[test]
fn a_connection_of_http2_over_tls_whose_server_does_not_read_is_closed_in_its_time() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let server = addr(&running);
    on_a_loop(async {
        let clients = Clients::default();
        let accepted = clients.clone();
        let relay = scripted(move |_, client| {
            accepted.borrow_mut().push(client.peer_addr().unwrap());
            async move {
                SockRef::from(&client).set_recv_buffer_size(4096).unwrap();
                let server = TcpStream::connect(server).await.unwrap();
                let ((mut from_client, mut to_client), (from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                // The handshake, and not all of the requests.
                let first = (&mut from_client).take(4096);
                let up = futures_lite::io::copy(first, &mut to_server);
                let down = futures_lite::io::copy(from_server, &mut to_client);
                let _ = futures_lite::future::zip(up, down).await;
                std::future::pending::<()>().await;
            }
        })
        .await;
        let settings = Client::builder().tls(site.client().build().unwrap());
        let target = target(relay, HttpVersion::Http2);
        are_closed_in_their_time(&clients, settings, &target).await;
    });
}

#[test]
fn a_response_given_up_in_the_middle_closes_its_connection_and_the_next_has_another_one() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    on_a_loop(async {
        let client: Client = Client::builder().tls(site.client().build().unwrap()).build();
        let host = client.host(&target(addr(&running), HttpVersion::Http1));
        let large = Request::post("/echo").body(Full::from(vec![7; 5 << 20])).unwrap();
        let mut response = host.send(large).await.unwrap();
        assert!(response.body_mut().frame().await.unwrap().is_ok());
        drop(response);
        assert_eq!(text(host.send(get("/n/1")).await).await, "1");
        assert_eq!(client.counts().opened(), 2);
    });
}

/// What a server gets from an upgraded connection that `end` ends.
fn heard_by_a_server(end: impl AsyncFnOnce(Upgraded)) -> std::io::Result<String> {
    let site = Site::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, config) = (listener.local_addr().unwrap(), site.rustls_server());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut session = rustls::ServerConnection::new(config).unwrap();
        let mut server = rustls::Stream::new(&mut session, &mut stream);
        assert!(server.read(&mut [0; 1024]).unwrap() > 0, "the request");
        let answer =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        server.write_all(answer.as_bytes()).unwrap();
        server.flush().unwrap();
        let mut rest = String::new();
        server.read_to_string(&mut rest).map(|_| rest)
    });
    on_a_loop(async {
        let client: Client = Client::builder().tls(site.client().build().unwrap()).build();
        let mut ask = get("/");
        ask.headers_mut().insert("connection", "upgrade".parse().unwrap());
        ask.headers_mut().insert("upgrade", "x".parse().unwrap());
        let host = client.host(&target(addr, HttpVersion::Http1));
        let UpgradeAnswer::Switched(_, stream) = host.upgrade(ask).await.unwrap() else {
            panic!("it agrees")
        };
        end(stream).await;
    });
    server.join().unwrap()
}

#[test]
fn an_upgraded_connection_that_is_dropped_says_that_it_ends() {
    let heard = heard_by_a_server(async |mut stream| {
        // It is neither flushed nor closed.
        stream.write_all(b"the rest").await.unwrap();
    });
    assert_eq!(heard.unwrap(), "the rest");
}

#[test]
fn an_upgraded_connection_that_is_aborted_is_cut_off() {
    let heard = heard_by_a_server(async |mut stream| {
        stream.write_all(b"the first half").await.unwrap();
        stream.flush().await.unwrap();
        stream.abort();
    });
    assert_eq!(heard.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}
