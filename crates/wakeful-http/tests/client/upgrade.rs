//! Requests for another protocol: on a connection of their own, which is the caller's if the server
//! agrees.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use http::StatusCode;
use socket2::{Domain, SockRef, Socket, Type};
use wakeful_http::client::{Awaited, UpgradeAnswer};

use super::*;

fn ask() -> Request<Full<Bytes>> {
    asking(get("/"))
}

fn asking<B>(mut request: Request<B>) -> Request<B> {
    request.headers_mut().insert("connection", "upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "echo".parse().unwrap());
    request
}

#[test]
fn a_server_that_agrees_has_the_connection_and_what_it_said_at_once() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| {
            let head = read_request(&mut stream).await;
            assert!(head.contains("\r\nupgrade: echo\r\n"), "{head}");
            let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nwelcome";
            stream.write_all(answer.as_bytes()).await.unwrap();
            let mut buf = [0; 5];
            stream.read_exact(&mut buf).await.unwrap();
            stream.write_all(&buf).await.unwrap();
        })
        .await;
        let (client, host) = http1(Client::builder(), addr);
        let UpgradeAnswer::Switched(response, mut stream) = host.upgrade(ask()).await.unwrap()
        else {
            panic!("it agrees")
        };
        assert_eq!(response.headers()["upgrade"], "echo");
        let mut buf = [0; 7];
        stream.read_exact(&mut buf).await.unwrap();
        assert_eq!(&buf, b"welcome");
        stream.write_all(b"hello").await.unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "hello");
        // The connection is not one of the pool's.
        assert_eq!((host.connections(), client.counts().opened()), (0, 1));
    });
}

#[test]
fn any_other_answer_is_an_ordinary_one_and_its_connection_closes_behind_it() {
    on_a_loop(async {
        let (end, ended) = async_channel::bounded(1);
        let large = "x".repeat(1 << 20);
        let body = large.clone();
        let addr = scripted(move |_, mut stream| {
            let (end, body) = (end.clone(), body.clone());
            async move {
                read_request(&mut stream).await;
                answer(&mut stream, &body).await;
                assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
                end.send(()).await.unwrap();
            }
        })
        .await;
        let (_client, host) = http1(Client::builder(), addr);
        let UpgradeAnswer::Ordinary(response) = host.upgrade(ask()).await.unwrap() else {
            panic!("it does not agree")
        };
        assert_eq!(response.status(), StatusCode::OK);
        assert!(text(Ok(response)).await == large);
        ended.recv().await.unwrap();
    });
}

/// The server answers, and does not read on.
#[test]
fn an_ordinary_answer_that_ends_before_its_request_s_body_closes_its_connection() {
    on_a_loop(async {
        for (length, is_read) in [(0, true), (5, true), (5, false), (100, false)] {
            let (end, ended) = async_channel::bounded(1);
            let addr = scripted(move |_, mut stream| {
                let end = end.clone();
                async move {
                    read_request(&mut stream).await;
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                    let body = if length == 0 { "" } else { "early" };
                    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                    until_closed(&mut stream).await;
                    end.send(()).await.unwrap();
                }
            })
            .await;
            let client = Client::builder().build::<Pieces>();
            let host = client.host(&wakeful_http::client::Target::from(addr));
            let (_endless, body) = pieces();
            let request = asking(Request::post("/").body(body).unwrap());
            let Ok(UpgradeAnswer::Ordinary(response)) = host.upgrade(request).await else {
                panic!("it does not agree")
            };
            if is_read {
                response.into_body().collect().await.unwrap();
            } else {
                drop(response);
            }
            ended.recv().await.unwrap();
        }
    });
}

#[test]
fn an_ordinary_answer_whose_request_nobody_reads_on_keeps_its_connection_for_a_bounded_time() {
    on_a_loop(async {
        let addr = answers_and_reads_no_more().await;
        let (_client, host) =
            http1(Client::builder().idle_timeout(Duration::from_millis(20)), addr);
        let (post, is_dropped) = unread();
        let UpgradeAnswer::Ordinary(response) = host.upgrade(asking(post)).await.unwrap() else {
            panic!("it does not agree")
        };
        assert_eq!(text(Ok(response)).await, "early");
        until(is_dropped).await;
    });
}

#[test]
fn a_request_that_no_server_had_comes_back() {
    on_a_loop(async {
        // Bound, so that no other test's server gets the port.
        let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        silent.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let addr = silent.local_addr().unwrap().as_socket().unwrap();
        let (_client, host) = http1(Client::builder(), addr);
        let failure = host.upgrade(ask()).await.unwrap_err();
        assert!(failure.error.is_connect(), "{}", failure.error);
        assert_eq!(failure.request.unwrap().headers()["upgrade"], "echo");
        let mut awaited = Vec::new();
        host.upgrade_watched(ask(), |what| awaited.push(what)).await.unwrap_err();
        assert_eq!(awaited, [Awaited::Connection]);
        // And one that a server may have had does not.
        let addr = scripted(async |_, mut stream| drop(read_request(&mut stream).await)).await;
        let (_client, host) = http1(Client::builder(), addr);
        awaited.clear();
        let failure = host.upgrade_watched(ask(), |what| awaited.push(what)).await.unwrap_err();
        assert_eq!(awaited, [Awaited::Connection, Awaited::Response]);
        assert!(matches!(failure.error, ClientError::Exchange { .. }), "{}", failure.error);
        assert!(failure.request.is_none());
    });
}

/// As a backend does that ends while the connection waits in its backlog.
#[test]
fn a_request_whose_connection_ends_before_anything_is_written_comes_back() {
    for is_reset in [false, true] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (close, closes) = std::sync::mpsc::channel();
        let (closed, has_closed) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            if is_reset {
                SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
            closes.recv().unwrap();
            drop(stream);
            closed.send(()).unwrap();
        });
        on_a_loop(async move {
            let (_client, host) = http1(Client::builder(), addr);
            let waits = |what| {
                if what == Awaited::Response {
                    close.send(()).unwrap();
                    has_closed.recv().unwrap();
                }
            };
            let request = asking(request("GET", "/", "a body"));
            let failure = host.upgrade_watched(request, waits).await.unwrap_err();
            assert!(matches!(failure.error, ClientError::Exchange { .. }), "{}", failure.error);
            let (head, body) = failure.request.expect("nothing was sent").into_parts();
            assert_eq!(head.headers["upgrade"], "echo");
            assert_eq!(body.collect().await.unwrap().to_bytes(), "a body");
        });
        server.join().unwrap();
    }
}

#[test]
fn the_time_in_all_holds_for_an_ordinary_answer_and_for_none() {
    const SHORT: Duration = Duration::from_millis(20);
    on_a_loop(async {
        for answers in [true, false] {
            let addr = scripted(move |_, mut stream| async move {
                read_request(&mut stream).await;
                if answers {
                    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
                    stream.write_all(half).await.unwrap();
                }
                until_closed(&mut stream).await;
            })
            .await;
            let (_client, host) = http1(Client::builder().total_timeout(SHORT), addr);
            // On a slow machine half an answer may be late, too.
            let error = match host.upgrade(ask()).await {
                Ok(UpgradeAnswer::Ordinary(response)) if answers => {
                    response.into_body().collect().await.unwrap_err()
                }
                Ok(answer) => panic!("{answer:?}"),
                Err(failed) => failed.error,
            };
            assert!(matches!(error, ClientError::TotalTimeout { after: SHORT, .. }), "{error}");
        }
    });
}
