//! HTTP/1.1: which connection a request gets, and what becomes of it.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_util::stream;
use http::StatusCode;
use wakeful_http::Server;
use wakeful_http::client::Target;

use super::common::{addr, router, server};
use super::*;

#[test]
fn requests_one_after_the_other_share_a_connection() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http1(Client::builder(), addr(&running));
        for number in 0..100 {
            let response = host.send(get(&format!("/n/{number}"))).await;
            assert_eq!(text(response).await, number.to_string());
        }
        let response = host.send(request("POST", "/echo", "a body")).await;
        assert_eq!(text(response).await, "a body");
        let missing = host.send(get("/missing")).await.unwrap();
        assert_eq!(missing.status(), StatusCode::NOT_FOUND);
        assert_eq!((client.counts().opened(), client.counts().reused()), (1, 101));
    });
    assert_eq!(running.counts().accepted(), 1);
}

#[test]
fn a_client_finds_the_host_by_the_uri_of_the_request() {
    let running = server().start(router()).unwrap();
    let port = addr(&running).port();
    on_a_loop(async {
        let client = Client::new();
        for host in ["127.0.0.1", "localhost"] {
            let response = client.send(get(&format!("http://{host}:{port}/n/7?q"))).await;
            assert_eq!(text(response).await, "7");
        }
        for (uri, shown) in [
            ("/n/7", "/n/7"),
            ("ftp://127.0.0.1/", "ftp://127.0.0.1/"),
            ("http://user@127.0.0.1/", "http://...@127.0.0.1/"),
        ] {
            let error = client.send(get(uri)).await.unwrap_err();
            assert!(matches!(error, ClientError::Target(_)), "{error}");
            assert!(error.to_string().contains(shown), "{error}");
        }
    });
}

#[test]
fn a_request_says_in_its_head_whom_it_is_for() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| {
            loop {
                let head = read_request(&mut stream).await;
                if head.is_empty() {
                    return;
                }
                answer(&mut stream, &head).await;
            }
        })
        .await;
        let (_client, host) = http1(Client::builder(), addr);
        let head = text(host.send(get("/path?query")).await).await;
        assert!(head.starts_with("GET /path?query HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("host: {addr}\r\n")), "{head}");
        let head = text(host.send(get("http://elsewhere.example/path")).await).await;
        assert!(head.starts_with("GET /path HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("host: elsewhere.example\r\n"), "{head}");
        let mut named = get("http://elsewhere.example");
        named.headers_mut().insert("host", "named.example".parse().unwrap());
        let head = text(host.send(named).await).await;
        assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("host: named.example\r\n"), "{head}");
        let error = host.send(request("CONNECT", "a:80", "")).await.unwrap_err();
        assert!(matches!(error, ClientError::Unsupported { .. }), "{error}");
    });
}

#[test]
fn a_user_name_and_a_password_in_a_uri_are_sent_to_nobody() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| {
            let head = read_request(&mut stream).await;
            answer(&mut stream, &head).await;
        })
        .await;
        for builder in [http1, http2] {
            let (_client, host) = builder(Client::builder(), addr);
            let error = host.send(get("http://user:secret@elsewhere.example/")).await.unwrap_err();
            assert!(matches!(error, ClientError::Unsupported { .. }), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
            assert_eq!(host.connections(), 0);
        }
    });
}

#[test]
fn a_unix_socket_is_a_host_as_well() {
    let path = std::env::temp_dir().join(format!("wakeful-client-{}.sock", std::process::id()));
    let name = format!("unix:{}", path.display());
    let running = Server::bind(name.as_str()).unwrap().start(router()).unwrap();
    on_a_loop(async {
        let target: Target = name.parse().unwrap();
        let client = Client::new();
        assert_eq!(text(client.host(&target).send(get("/")).await).await, "hello");
        assert_eq!(text(client.host(&target).send(get("/n/1")).await).await, "1");
        assert_eq!(client.counts().opened(), 1);
    });
    drop(running);
    let _ = std::fs::remove_file(path);
}

#[test]
fn a_response_given_up_in_the_middle_closes_its_connection() {
    on_a_loop(async {
        let (closed, is_closed) = counter();
        let addr = scripted(move |_, mut stream| {
            let closed = closed.clone();
            async move {
                read_request(&mut stream).await;
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
                    .await
                    .unwrap();
                until_closed(&mut stream).await;
                closed.set(closed.get() + 1);
            }
        })
        .await;
        let (client, host) = http1(Client::builder(), addr);
        let mut response = host.send(get("/")).await.unwrap();
        let part = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(part.into_data().unwrap(), "half");
        drop(response);
        until(|| is_closed.get() == 1).await;
        until(|| host.connections() == 0).await;
        // One that was not even answered.
        let given_up = timeout(std::time::Duration::from_millis(1), async {
            host.send(get("/")).await.unwrap().into_body().collect().await
        });
        assert!(given_up.await.is_err());
        until(|| is_closed.get() == 2).await;
        assert_eq!(client.counts().opened(), 2);
    });
}

#[test]
fn a_response_read_late_does_not_hold_its_connection() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http1(Client::builder().max_connections(1), addr(&running));
        let first = host.send(get("/n/1")).await;
        let second = host.send(get("/n/2")).await;
        assert_eq!(text(second).await, "2");
        assert_eq!(text(first).await, "1");
        assert_eq!(client.counts().opened(), 1);
    });
}

#[test]
fn what_was_idle_for_too_long_is_closed() {
    on_a_loop(async {
        let (closed, is_closed) = counter();
        let addr = scripted(move |_, mut stream| {
            let closed = closed.clone();
            async move {
                read_request(&mut stream).await;
                answer(&mut stream, "").await;
                until_closed(&mut stream).await;
                closed.set(closed.get() + 1);
            }
        })
        .await;
        let timeout = std::time::Duration::from_millis(5);
        let (_client, host) = http1(Client::builder().idle_timeout(timeout), addr);
        text(host.send(get("/")).await).await;
        until(|| is_closed.get() == 1 && host.connections() == 0).await;
    });
}

#[test]
fn idle_connections_close_with_the_client_and_its_hosts() {
    on_a_loop(async {
        let (closed, is_closed) = counter();
        let addr = scripted(move |_, mut stream| {
            let closed = closed.clone();
            async move {
                read_request(&mut stream).await;
                answer(&mut stream, "late").await;
                until_closed(&mut stream).await;
                closed.set(closed.get() + 1);
            }
        })
        .await;
        let (client, host) = http1(Client::builder(), addr);
        let response = host.send(get("/")).await;
        drop((client, host));
        assert_eq!(text(response).await, "late");
        until(|| is_closed.get() == 1).await;
    });
}

#[test]
fn no_more_than_max_idle_are_kept() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http1(Client::builder().max_idle(1), addr(&running));
        let both = [host.send(get("/slow")), host.send(get("/slow"))];
        for response in futures_util::future::join_all(both).await {
            assert_eq!(text(response).await, "slow");
        }
        assert_eq!(client.counts().opened(), 2);
        until(|| host.connections() == 1).await;
    });
}

#[test]
fn what_is_no_http_is_an_error_that_names_the_server() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| {
            read_request(&mut stream).await;
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").await.unwrap();
            until_closed(&mut stream).await;
        })
        .await;
        let (client, host) = http1(Client::builder(), addr);
        let error = host.send(get("/")).await.unwrap_err();
        assert!(matches!(error, ClientError::Exchange { .. }), "{error}");
        assert!(error.to_string().contains(&addr.to_string()), "{error}");
        assert_eq!(client.counts().opened(), 1);
    });
}

#[test]
fn a_header_beyond_the_limits_is_an_error_that_names_them() {
    on_a_loop(async {
        for (fields, bytes) in [(101, 1), (2, 10_000)] {
            let addr = scripted(move |_, mut stream| async move {
                read_request(&mut stream).await;
                let value = "x".repeat(bytes);
                // `content-length` is one of the fields.
                let more: String = (1..fields).map(|at| format!("x-{at}: {value}\r\n")).collect();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{more}\r\n");
                let _ = stream.write_all(head.as_bytes()).await;
                until_closed(&mut stream).await;
            })
            .await;
            let (_client, host) = http1(Client::builder().max_header_size(9_000), addr);
            let error = host.send(get("/")).await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, ClientError::HeaderTooLarge { .. }), "{text}");
            for part in
                [&addr.to_string(), "100 fields (max_headers)", "9000 bytes (max_header_size)"]
            {
                assert!(text.contains(part), "{text}");
            }
            // As many as are asked for.
            let settings = Client::builder().max_header_size(1 << 20).max_headers(fields);
            let (_client, host) = http1(settings, addr);
            assert_eq!(host.send(get("/")).await.unwrap().headers().len(), fields);
        }
    });
}

#[test]
fn a_unix_socket_that_is_not_there_is_an_error_of_the_connection() {
    on_a_loop(async {
        let client = Client::new();
        let host = client.host(&"unix:/nowhere/at/all.sock".parse().unwrap());
        let error = host.send(get("/")).await.unwrap_err();
        assert!(
            error.is_connect() && error.to_string().contains("/nowhere/at/all.sock"),
            "{error}"
        );
        assert_eq!((client.counts().failed(), host.connections()), (1, 0));
    });
}

#[test]
fn a_builder_needs_no_type() {
    on_a_loop(async {
        let settings = wakeful_http::client::Client::builder().retries(0);
        let _: wakeful_http::client::Client<http_body_util::Empty<Bytes>> = settings.build();
    });
}

/// The server answers, and does not read on.
#[test]
fn a_response_that_ends_before_its_request_s_body_closes_the_connection_and_frees_its_place() {
    on_a_loop(async {
        for (answer, is_read) in [
            ("content-length: 0\r\n\r\n", true),
            ("content-length: 5\r\n\r\nearly", true),
            ("content-length: 5\r\n\r\nearly", false),
            ("transfer-encoding: chunked\r\n\r\n5\r\nearly\r\n0\r\n\r\n", true),
            ("transfer-encoding: chunked\r\n\r\n5\r\nearly\r\n", false),
        ] {
            let (closed, is_closed) = counter();
            let addr = scripted(move |_, mut stream| {
                let closed = closed.clone();
                async move {
                    read_request(&mut stream).await;
                    let text = format!("HTTP/1.1 200 OK\r\n{answer}");
                    stream.write_all(text.as_bytes()).await.unwrap();
                    until_closed(&mut stream).await;
                    closed.set(closed.get() + 1);
                }
            })
            .await;
            let client = Client::builder().max_connections(1).build::<Pieces>();
            let host = client.host(&Target::from(addr));
            for round in 1..=3 {
                let (_endless, body) = pieces();
                let request = Request::post("/").body(body).unwrap();
                let response = host.send(request).await.unwrap();
                if is_read {
                    response.into_body().collect().await.unwrap();
                } else {
                    drop(response);
                }
                until(|| is_closed.get() == round).await;
            }
            until(|| host.connections() == 0).await;
            assert_eq!(client.counts().opened(), 3);
        }
    });
}

#[test]
fn a_response_whose_request_nobody_reads_on_keeps_its_connection_for_a_bounded_time() {
    on_a_loop(async {
        for is_gone in [false, true] {
            let addr = answers_and_reads_no_more().await;
            let settings = Client::builder().max_connections(1);
            let (client, host) = http1(settings.idle_timeout(Duration::from_millis(20)), addr);
            let (post, is_dropped) = unread();
            assert_eq!(text(host.send(post).await).await, "early");
            if is_gone {
                client.retire(host.target());
                drop((client, host));
            } else {
                // There is one place.
                assert_eq!(text(host.send(unread().0).await).await, "early");
                until(|| host.connections() == 0).await;
                assert_eq!(client.counts().opened(), 2);
            }
            until(is_dropped).await;
        }
    });
}

/// A server that answers at a word, and closes without reading the rest of the request: the kernel
/// resets the connection. And a body whose second piece comes when that has happened; it may be the
/// last one.
fn resets_behind(response: String) -> (std::net::SocketAddr, impl Fn(bool) -> Pieces) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (go, may_go) = mpsc::channel();
    let (closed, is_closed) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.read_exact(&mut [0]).unwrap();
            if may_go.recv().is_err() {
                return;
            }
            stream.write_all(response.as_bytes()).unwrap();
            drop(stream);
            closed.send(()).unwrap();
        }
    });
    let shared = Rc::new((go, is_closed));
    let body = move |ends: bool| {
        let shared = shared.clone();
        let mut polls = 0;
        let pieces = stream::poll_fn(move |cx| {
            polls += 1;
            match polls {
                1 => return Poll::Ready(Some(Ok(Frame::data(Bytes::from("first"))))),
                // The first one is written.
                2 => cx.waker().wake_by_ref(),
                // hyper has just looked for a response.
                3 => {
                    shared.0.send(()).unwrap();
                    shared.1.recv().unwrap();
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from("second")))));
                }
                _ if ends => return Poll::Ready(None),
                _ => {}
            }
            Poll::Pending
        });
        StreamBody::new(pieces.boxed_local())
    };
    (addr, body)
}

#[test]
fn a_response_that_came_before_a_reset_is_read() {
    on_a_loop(async {
        for (connection, length) in [("close", 0), ("close", 5), ("keep-alive", 20_000)] {
            let (addr, body) = resets_behind(format!(
                "HTTP/1.1 413 Too Large\r\nconnection: {connection}\r\n\
                 content-length: {length}\r\n\r\n{}",
                "x".repeat(length)
            ));
            let client = Client::builder().max_connections(1).build::<Pieces>();
            let host = client.host(&Target::from(addr));
            for ends in [false, true] {
                let request = || Request::post("/").body(body(ends)).unwrap();
                let response = host.send(request()).await.unwrap();
                assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
                let read = response.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(read.len(), length);
                until(|| host.connections() == 0).await;
                // And one that nobody reads.
                drop(host.send(request()).await.unwrap());
                until(|| host.connections() == 0).await;
            }
        }
    });
}

#[test]
fn a_response_without_a_length_that_a_reset_ends_is_broken_off() {
    on_a_loop(async {
        let (addr, body) = resets_behind("HTTP/1.1 200 OK\r\n\r\nhalf".to_owned());
        let client = Client::builder().max_connections(1).build::<Pieces>();
        let host = client.host(&Target::from(addr));
        for ends in [false, true] {
            let request = Request::post("/").body(body(ends)).unwrap();
            let mut body = host.send(request).await.unwrap().into_body();
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
            let error = body.frame().await.unwrap().unwrap_err();
            assert!(matches!(error, ClientError::Body { .. }), "{error}");
            until(|| host.connections() == 0).await;
        }
    });
}

#[test]
fn a_reset_without_a_response_is_an_error() {
    on_a_loop(async {
        for part in ["", "HTTP/1.1 200 OK\r\n"] {
            let (addr, body) = resets_behind(part.to_owned());
            let client = Client::builder().max_connections(1).build::<Pieces>();
            let host = client.host(&Target::from(addr));
            for ends in [false, true] {
                let request = Request::post("/").body(body(ends)).unwrap();
                let error = host.send(request).await.unwrap_err();
                assert!(matches!(error, ClientError::Exchange { .. }), "{error}");
                until(|| host.connections() == 0).await;
            }
        }
    });
}

/// Their connection has its next request by then.
#[test]
fn a_whole_response_that_nobody_has_read_cuts_off_no_later_request() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let client = Client::builder().max_connections(1).build::<Pieces>();
        let host = client.host(&Target::from(addr(&running)));
        let (sender, body) = pieces();
        drop(sender);
        let first = host.send(Request::get("/n/1").body(body).unwrap()).await.unwrap();
        let (sender, body) = pieces();
        let second = host.send(Request::post("/echo").body(body).unwrap()).await.unwrap();
        let mut second = second.into_body();
        sender.send(Bytes::from("second")).await.unwrap();
        assert_eq!(second.frame().await.unwrap().unwrap().into_data().unwrap(), "second");
        drop(first);
        drop(sender);
        assert!(second.frame().await.is_none());
        assert_eq!(client.counts().opened(), 1);
    });
}

/// What comes after it may be a part of it.
#[test]
fn a_response_that_can_be_read_in_two_ways_ends_its_connection() {
    on_a_loop(async {
        for ambiguous in [
            "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "content-length: 5, 5\r\n\r\nhello",
            "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ] {
            let (closed, is_closed) = counter();
            let addr = scripted(move |number, mut stream| {
                let closed = closed.clone();
                async move {
                    read_request(&mut stream).await;
                    if number > 0 {
                        return answer(&mut stream, "unambiguous").await;
                    }
                    let text = format!("HTTP/1.1 200 OK\r\n{ambiguous}");
                    stream.write_all(text.as_bytes()).await.unwrap();
                    assert_eq!(read_request(&mut stream).await, "", "no other request");
                    closed.set(closed.get() + 1);
                }
            })
            .await;
            let (client, host) = http1(Client::builder().max_connections(1), addr);
            let (first, second) = futures_util::join!(host.send(get("/")), host.send(get("/")));
            assert_eq!(text(second).await, "unambiguous");
            first.unwrap();
            until(|| is_closed.get() == 1).await;
            assert_eq!((client.counts().opened(), client.counts().reused()), (2, 0));
        }
    });
}

#[test]
fn a_length_that_is_not_the_body_s_is_not_sent_and_the_server_waits_for_nothing() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http1(Client::builder(), addr(&running));
        for (body, length) in [("", "5"), ("a body", "3"), ("a body", "7"), ("a body", "abc")] {
            let mut request = request("POST", "/echo", body);
            request.headers_mut().insert("content-length", length.parse().unwrap());
            assert_eq!(text(host.send(request).await).await, body, "{length}");
        }
        assert_eq!(client.counts().opened(), 1);
    });
}

#[test]
fn a_request_after_a_response_of_http_1_0_is_sent_with_its_body() {
    on_a_loop(async {
        let addr = scripted(async |number, mut stream| {
            let mut request = read_request(&mut stream).await;
            if number == 0 {
                let old =
                    "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nold";
                stream.write_all(old.as_bytes()).await.unwrap();
                request = read_request(&mut stream).await;
                if request.is_empty() {
                    return;
                }
            }
            let is_whole = request.contains("HTTP/1.1\r\n") && request.contains("chunked");
            answer(&mut stream, if is_whole { "whole" } else { "cut" }).await;
        })
        .await;
        let client = Client::builder().max_connections(1).build::<Pieces>();
        let host = client.host(&Target::from(addr));
        // The body of a GET is not sent.
        for (method, expected) in [("GET", "old"), ("POST", "whole")] {
            let (sender, pieces) = pieces();
            sender.send(Bytes::from("a body")).await.unwrap();
            drop(sender);
            let request = Request::builder().method(method).uri("/").body(pieces).unwrap();
            assert_eq!(text(host.send(request).await).await, expected);
        }
        assert_eq!(client.counts().opened(), 2);
    });
}
