//! Deadlines, and requests that wait for a connection.

use std::time::Duration;

use axum::routing;
use futures_util::stream;

use super::common::{Gate, addr, router, server};
use super::*;

const SHORT: Duration = Duration::from_millis(20);

#[test]
fn requests_beyond_max_connections_wait_their_turn() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http1(Client::builder().max_connections(2), addr(&running));
        let requests: Vec<_> =
            (0..20).map(|n| host.send(get(&format!("/n/{n}"))).to_text()).collect();
        let texts = futures_util::future::join_all(requests).await;
        let expected: Vec<_> = (0..20).map(|n| n.to_string()).collect();
        assert_eq!(texts, expected);
        assert_eq!((client.counts().opened(), client.counts().waited()), (2, 18));
    });
    assert_eq!(running.counts().accepted(), 2);
}

/// The client is used by the thread's next loop.
#[test]
fn a_loop_that_ends_as_a_connection_is_made_takes_no_place_with_it() {
    let running = server().start(router()).unwrap();
    for version in [http1, http2] {
        let (client, host) = version(Client::builder().max_connections(1), addr(&running));
        on_a_loop(async {
            let mut sent = Box::pin(host.send(get("/n/1")));
            while client.counts().opened() == 0 {
                assert!(futures_lite::future::poll_once(&mut sent).await.is_none());
                if client.counts().opened() == 0 {
                    wakeful::time::sleep(Duration::from_millis(1)).await;
                }
            }
            // The loop ends before the connection's task is polled.
        });
        on_a_loop(async {
            assert_eq!(host.connections(), 0);
            assert_eq!(text(host.send(get("/n/2")).await).await, "2");
        });
    }
}

/// So that they can be joined.
trait ToText {
    async fn to_text(self) -> String;
}

impl<F: Future<Output = Result<Response<ResponseBody>, ClientError>>> ToText for F {
    async fn to_text(self) -> String {
        text(self.await).await
    }
}

#[test]
fn one_that_is_given_up_while_it_waits_leaves_its_turn_to_the_next() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    on_a_loop(async {
        let (client, host) = http1(Client::builder().max_connections(1), addr(&running));
        let first = wakeful::spawn({
            let host = host.clone();
            async move { text(host.send(get("/gated")).await).await }
        });
        until(|| host.connections() == 1).await;
        let mut waiting = Box::pin(host.send(get("/n/1")));
        assert!(futures_lite::future::poll_once(&mut waiting).await.is_none());
        let second = wakeful::spawn({
            let host = host.clone();
            async move { text(host.send(get("/n/2")).await).await }
        });
        until(|| client.counts().waited() == 2).await;
        drop(waiting);
        gate.open();
        assert_eq!(first.await.unwrap(), "released");
        assert_eq!(second.await.unwrap(), "2");
        assert_eq!(client.counts().opened(), 1);
    });
}

#[test]
fn one_that_is_given_up_with_the_connection_in_its_hands_hands_it_on() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    on_a_loop(async {
        let (client, host) = http1(Client::builder().max_connections(1), addr(&running));
        let first = host.send(get("/gated"));
        let mut first = Box::pin(first);
        assert!(futures_lite::future::poll_once(&mut first).await.is_none());
        let mut second = Box::pin(host.send(get("/n/1")));
        assert!(futures_lite::future::poll_once(&mut second).await.is_none());
        gate.open();
        assert_eq!(text(first.await).await, "released");
        // By now the second one was handed the connection, but was not polled since.
        until(|| client.counts().reused() == 0 && host_is_free(&host)).await;
        drop(second);
        assert_eq!(text(host.send(get("/n/2")).await).await, "2");
        assert_eq!((client.counts().opened(), client.counts().reused()), (1, 1));
    });
}

fn host_is_free(host: &Host<Full<Bytes>>) -> bool {
    format!("{host:?}").contains("waiting: 0")
}

#[test]
fn no_more_than_max_waiting_wait_and_none_for_ever() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let settings = Client::builder().max_connections(1).max_waiting(1).queue_timeout(SHORT);
        let (client, host) = http1(settings, addr(&running));
        let mut busy = Box::pin(host.send(get("/never")));
        assert!(futures_lite::future::poll_once(&mut busy).await.is_none());
        let mut waiting = Box::pin(host.send(get("/")));
        assert!(futures_lite::future::poll_once(&mut waiting).await.is_none());
        let error = host.send(get("/")).await.unwrap_err();
        assert!(matches!(error, ClientError::QueueFull { waiting: 1, .. }), "{error}");
        let error = waiting.await.unwrap_err();
        assert!(matches!(error, ClientError::QueueTimeout { .. }), "{error}");
        assert!(error.is_overload());
        assert_eq!((client.counts().waited(), client.counts().refused()), (1, 1));
        // A request that gave up no longer counts.
        drop(busy);
        assert_eq!(text(host.send(get("/")).await).await, "hello");
    });
}

#[test]
fn a_head_that_does_not_come_is_an_error_in_its_time() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        for version in [HttpVersion::Http1, HttpVersion::Http2] {
            let settings = Client::builder().head_timeout(Some(SHORT));
            let (_client, host) = host(settings, addr(&running), version);
            let error = host.send(get("/never")).await.unwrap_err();
            assert!(matches!(error, ClientError::HeadTimeout { after: SHORT, .. }), "{error}");
            assert!(error.is_timeout() && !error.is_connect());
        }
    });
}

#[test]
fn the_time_in_all_ends_a_body_that_does_not_end() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| {
            read_request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap();
            until_closed(&mut stream).await;
        })
        .await;
        let (_client, host) = http1(Client::builder().total_timeout(Some(SHORT)), addr);
        let mut body = host.send(get("/")).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(matches!(error, ClientError::TotalTimeout { after: SHORT, .. }), "{error}");
        drop(body);
        until(|| host.connections() == 0).await;
    });
}

/// It is on a thread of its own, so that there is always more to read.
fn floods_with(head: &'static str) -> SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        let heads = head.repeat(1000);
        while stream.write_all(heads.as_bytes()).is_ok() {}
    });
    addr
}

#[test]
fn a_server_that_never_ends_its_interim_responses_ends_its_request_and_no_other() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        for head in ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 199 X\r\na: b\r\nc: d\r\n\r\n"] {
            for upgrades in [false, true] {
                // No time ends it.
                let settings = || Client::builder().head_timeout(None);
                let (_client, hostile) = http1(settings(), floods_with(head));
                let flooded = wakeful::spawn(async move {
                    if upgrades {
                        hostile.upgrade(get("/")).await.map(drop).map_err(|failed| failed.error)
                    } else {
                        hostile.send(get("/")).await.map(drop)
                    }
                });
                let (_client, good) = http1(settings(), addr(&running));
                assert_eq!(text(good.send(get("/")).await).await, "hello");
                let error = flooded.await.unwrap().unwrap_err();
                assert!(error.to_string().contains("bytes of 1xx responses"), "{error}");
                assert_eq!(text(good.send(get("/")).await).await, "hello");
            }
        }
    });
}

/// Their bytes do not count together.
#[test]
fn interim_responses_within_the_limit_come_before_each_response() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| {
            while !read_request(&mut stream).await.is_empty() {
                for _ in 0..100 {
                    let heads = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(10);
                    stream.write_all(heads.as_bytes()).await.unwrap();
                }
                answer(&mut stream, &"x".repeat(1 << 20)).await;
            }
        })
        .await;
        let settings = Client::builder().max_header_size(16 * 1024);
        let (client, host) = http1(settings, addr);
        for _ in 0..3 {
            let mut sent = Box::pin(host.send(get("/")));
            assert!(futures_lite::future::poll_once(&mut sent).await.is_none());
            // The connection may have the response long before its caller has.
            for _ in 0..1000 {
                wakeful::task::yield_now().await;
            }
            assert_eq!(text(sent.await).await.len(), 1 << 20);
        }
        assert_eq!(client.counts().opened(), 1);
    });
}

/// A listener whose queue is full drops what would connect to it.
#[test]
fn a_connection_that_is_not_made_is_an_error_in_its_time() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    on_a_loop(async {
        let mut held = Vec::new();
        while let Ok(stream) = timeout(SHORT * 10, TcpStream::connect(addr)).await {
            held.push(stream.unwrap());
        }
        let (client, host) = http1(Client::builder().connect_timeout(SHORT), addr);
        let error = host.send(get("/")).await.unwrap_err();
        assert!(matches!(error, ClientError::ConnectTimeout { after: SHORT, .. }), "{error}");
        assert!(error.is_timeout() && error.is_connect());
        assert_eq!((client.counts().failed(), host.connections()), (1, 0));
    });
}

#[test]
fn times_that_no_clock_can_hold_are_never_over() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        for make in [http1, http2] {
            let settings = Client::builder()
                .connect_timeout(Duration::MAX)
                .head_timeout(Some(Duration::MAX))
                .total_timeout(Some(Duration::MAX))
                .queue_timeout(Duration::MAX)
                .idle_timeout(Duration::MAX)
                .retries(u32::MAX);
            let (client, host) = make(settings, addr(&running));
            for _ in 0..2 {
                assert_eq!(text(host.send(get("/n/1")).await).await, "1");
            }
            assert_eq!(client.counts().opened(), 1);
        }
    });
}

#[test]
fn a_connection_that_is_not_kept_at_all_serves_its_request_to_its_end() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        for make in [http1, http2] {
            let (_client, host) =
                make(Client::builder().idle_timeout(Duration::ZERO), addr(&running));
            assert_eq!(text(host.send(get("/slow")).await).await, "slow");
            until(|| host.connections() == 0).await;
        }
    });
}

/// The loop stands still while the client waits for the head. Then a part of the body is missing
/// yet.
#[test]
fn the_time_in_all_leaves_time_for_the_body_behind_a_pause() {
    const LIMIT: Duration = Duration::from_millis(400);
    on_a_loop(async {
        let (has_begun, begun) = async_channel::bounded::<()>(1);
        let addr = scripted(move |_, mut stream| {
            let begun = begun.clone();
            async move {
                read_request(&mut stream).await;
                std::thread::sleep(2 * LIMIT);
                let head = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe";
                stream.write_all(head).await.unwrap();
                begun.recv().await.unwrap();
                stream.write_all(b"llo").await.unwrap();
            }
        })
        .await;
        let (_client, host) = http1(Client::builder().total_timeout(LIMIT), addr);
        let mut body = host.send(get("/")).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "he");
        let mut rest = Box::pin(body.frame());
        if let Some(early) = futures_lite::future::poll_once(&mut rest).await {
            panic!("{early:?}");
        }
        has_begun.send(()).await.unwrap();
        assert_eq!(rest.await.unwrap().unwrap().into_data().unwrap(), "llo");
    });
}

#[test]
fn the_time_in_all_ends_a_body_that_comes_faster_than_it_is_read() {
    const LIMIT: Duration = Duration::from_secs(1);
    let endless = || async {
        let more = Bytes::from_static(&[0; 1 << 14]);
        axum::body::Body::from_stream(stream::repeat(Ok::<_, Infallible>(more)))
    };
    let running = server().start(router().route("/endless", routing::get(endless))).unwrap();
    on_a_loop(async {
        for version in [HttpVersion::Http1, HttpVersion::Http2] {
            let settings = Client::builder().total_timeout(LIMIT);
            let (_client, host) = host(settings, addr(&running), version);
            let mut body = host.send(get("/endless")).await.unwrap().into_body();
            let error = loop {
                match body.frame().await.unwrap() {
                    // The next one comes meanwhile.
                    Ok(_) => wakeful::time::sleep(LIMIT / 1000).await,
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, ClientError::TotalTimeout { after: LIMIT, .. }), "{error}");
            assert!(body.frame().await.is_none());
        }
    });
}
