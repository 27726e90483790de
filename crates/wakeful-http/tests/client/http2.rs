//! HTTP/2: shared connections, the server's limit of streams, GOAWAY and refused streams; and gRPC
//! by tonic's own client.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Pending, iter, pending, repeat_with};
use h2::server::{Connection, SendResponse};
use http::HeaderValue;
use http_body_util::{Either, StreamBody};
use hyper::body::Frame;
use socket2::SockRef;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use wakeful_http::client::{GrpcService, Target};

use super::common::{Gate, addr, router, server};
use super::*;

type Http2 = Connection<TcpStream, Bytes>;
type Asked = (Request<h2::RecvStream>, SendResponse<Bytes>);

async fn accept(stream: TcpStream, max_streams: u32) -> Http2 {
    h2::server::Builder::new().max_concurrent_streams(max_streams).handshake(stream).await.unwrap()
}

fn respond(mut asked: Asked, body: &str) {
    let mut stream = asked.1.send_response(Response::new(()), false).unwrap();
    stream.send_data(Bytes::from(body.to_owned()), true).unwrap();
}

#[test]
fn a_hundred_requests_at_once_share_a_connection() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http2(Client::builder(), addr(&running));
        let requests = (0..100).map(|n| {
            let host = host.clone();
            async move { text(host.send(get(&format!("/n/{n}"))).await).await }
        });
        let texts = futures_util::future::join_all(requests).await;
        assert_eq!(texts, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
        let response = host.send(request("POST", "/echo", "a body")).await;
        assert_eq!(text(response).await, "a body");
        assert_eq!(client.counts().opened(), 1);
    });
    assert_eq!(running.counts().accepted(), 1);
}

#[test]
fn a_request_of_http2_says_whom_it_is_for() {
    on_a_loop(async {
        let addr = scripted(async |_, stream| {
            let mut connection = accept(stream, 100).await;
            while let Some(Ok(asked)) = connection.accept().await {
                let host = asked.0.headers().get("host");
                let text = format!("{} {:?}", asked.0.uri(), host);
                respond(asked, &text);
            }
        })
        .await;
        let (_client, host) = http2(Client::builder(), addr);
        assert_eq!(text(host.send(get("/a?b")).await).await, format!("http://{addr}/a?b None"));
        let named = host.send(get("http://elsewhere.example/c")).await;
        assert_eq!(text(named).await, "http://elsewhere.example/c None");
        let mut named = get("http://elsewhere.example/c");
        named.headers_mut().insert("host", "named.example".parse().unwrap());
        assert_eq!(text(host.send(named).await).await, "http://named.example/c None");
    });
}

#[test]
fn the_servers_limit_of_streams_is_kept_and_the_rest_waits_here() {
    on_a_loop(async {
        let (most, at_most) = counter();
        let addr = scripted(move |_, stream| {
            let most = most.clone();
            async move {
                let mut connection = accept(stream, 2).await;
                let mut held = Vec::new();
                while let Some(Ok(asked)) = connection.accept().await {
                    held.push(asked);
                    most.set(most.get().max(held.len()));
                    if held.len() == 2 {
                        held.drain(..).for_each(|asked| respond(asked, "ok"));
                    }
                }
            }
        })
        .await;
        let (client, host) = http2(Client::builder().max_connections(1), addr);
        // So that the server's settings are known.
        let first = futures_util::future::join(host.send(get("/")), host.send(get("/"))).await;
        text(first.0).await;
        text(first.1).await;
        let waited = client.counts().waited();
        let requests = (0..10).map(|_| async { text(host.send(get("/")).await).await });
        for text in futures_util::future::join_all(requests).await {
            assert_eq!(text, "ok");
        }
        assert_eq!((client.counts().opened(), at_most.get()), (1, 2));
        assert_eq!(client.counts().waited() - waited, 8);
    });
}

#[test]
fn no_stream_is_opened_that_a_server_would_refuse_before_it_has_said_how_many_it_allows() {
    on_a_loop(async {
        let (most, at_most) = counter();
        let addr = scripted(move |_, stream| {
            let most = most.clone();
            async move {
                // Its settings come late.
                wakeful::time::sleep(Duration::from_millis(50)).await;
                let mut connection = accept(stream, 2).await;
                let mut held = Vec::new();
                while let Some(Ok(asked)) = connection.accept().await {
                    held.push(asked);
                    most.set(most.get().max(held.len()));
                    if held.len() == 2 {
                        held.drain(..).for_each(|asked| respond(asked, "ok"));
                    }
                }
            }
        })
        .await;
        let (client, host) = http2(Client::builder().max_connections(1), addr);
        // At once, and with bodies that cannot be had twice.
        let requests =
            (0..20).map(|_| async { text(host.send(request("POST", "/", "a body")).await).await });
        for text in futures_util::future::join_all(requests).await {
            assert_eq!(text, "ok");
        }
        let counts = client.counts();
        assert_eq!((counts.opened(), counts.retried(), at_most.get()), (1, 0, 2));
    });
}

/// As when the backend's host is gone, or a firewall has forgotten the flow.
#[test]
fn a_connection_that_is_silent_gets_no_more_requests_and_those_under_way_go_on() {
    on_a_loop(async {
        let (speak, spoken) = async_channel::bounded::<()>(1);
        let addr = scripted(move |number, stream| {
            let spoken = spoken.clone();
            async move {
                let mut connection = accept(stream, 100).await;
                let (mut held, mut told) = (Vec::new(), pin!(spoken.recv()));
                let mut next = async || {
                    poll_fn(|cx| match connection.poll_accept(cx) {
                        Poll::Pending => told.as_mut().poll(cx).map(|_| None),
                        accepted => accepted,
                    })
                    .await
                };
                while let Some(Ok(asked)) = next().await {
                    match number {
                        0 => held.push(asked),
                        _ => respond(asked, "new"),
                    }
                }
                held.retain(|asked| asked.0.uri().path() == "/first");
                held.drain(..).for_each(|asked| respond(asked, "old"));
                while connection.accept().await.is_some() {}
            }
        })
        .await;
        let (client, host) = http2(Client::builder().max_connections(1).head_timeout(None), addr);
        let first = wakeful::spawn({
            let host = host.clone();
            async move { text(host.send(get("/first")).await).await }
        });
        let patience = Duration::from_millis(1200);
        while timeout(patience, host.send(get("/other"))).await.is_err() {}
        assert_eq!((client.counts().opened(), host.connections()), (2, 1));
        assert_eq!(text(host.send(get("/other")).await).await, "new");
        drop(speak);
        assert_eq!(first.await.unwrap(), "old");
    });
}

/// As a server that has got stuck, and still accepts connections.
#[test]
fn a_server_that_is_silent_for_ever_collects_a_bounded_number_of_connections() {
    const MOST: usize = 16;
    on_a_loop(async {
        // Which connection has got which requests.
        let (asked, are_asked) = async_channel::unbounded();
        let addr = scripted(move |number, stream| {
            let asked = asked.clone();
            async move {
                let mut connection = accept(stream, 2).await;
                let mut held = Vec::new();
                while let Some(Ok(one)) = connection.accept().await {
                    let path = one.0.uri().path()[1..].parse::<usize>().unwrap();
                    asked.send((number, path)).await.unwrap();
                    held.push(one);
                }
            }
        })
        .await;
        let settings = Client::builder().max_connections(MOST).head_timeout(None);
        let (client, host) = http2(settings, addr);
        let mut held = Vec::new();
        for round in 0..2 {
            let sent: Vec<_> = (0..2 * MOST)
                .map(|number| {
                    let host = host.clone();
                    let asked = async move { host.send(get(&format!("/{number}"))).await };
                    wakeful::spawn(async move { asked.await.map(drop) })
                })
                .collect();
            let mut of_connections = vec![Vec::new(); 2 * MOST];
            for _ in 0..2 * MOST {
                let (connection, number) = are_asked.recv().await.unwrap();
                of_connections[connection].push(number);
            }
            wakeful::time::sleep(Duration::from_millis(1100)).await;
            // A request that is cancelled shows that its connection is silent, and another one
            // keeps the connection open.
            for numbers in of_connections.iter().filter(|numbers| !numbers.is_empty()) {
                sent[numbers[0]].abort();
            }
            held.extend(sent);
            until(|| host.connections() == round * MOST).await;
        }
        assert_eq!(client.counts().opened(), 2 * MOST as u64);
    });
}

#[test]
fn a_stream_that_was_heard_until_it_is_given_up_does_not_make_its_connection_a_silent_one() {
    on_a_loop(async {
        let addr = scripted(async |_, stream| {
            let mut connection = accept(stream, 100).await;
            while let Some(Ok(mut asked)) = connection.accept().await {
                if asked.0.uri().path() == "/" {
                    respond(asked, "ok");
                    continue;
                }
                let mut events = asked.1.send_response(Response::new(()), false).unwrap();
                wakeful::spawn(async move {
                    while events.send_data("an event".into(), false).is_ok() {
                        wakeful::time::sleep(Duration::from_millis(50)).await;
                    }
                })
                .detach();
            }
        })
        .await;
        let (client, host) = http2(Client::builder(), addr);
        let mut events = host.send(get("/events")).await.unwrap().into_body();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(1500) {
            events.frame().await.unwrap().unwrap();
        }
        drop(events);
        assert_eq!(text(host.send(get("/")).await).await, "ok");
        assert_eq!(client.counts().opened(), 1);
    });
}

/// As where `select!` has chosen another branch, which itself sends a request.
#[test]
fn a_request_that_is_not_polled_while_it_connects_holds_up_no_other_request() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http2(Client::builder(), addr(&running));
        let mut first = pin!(host.send(get("/n/1")));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert_eq!(text(host.send(get("/n/2")).await).await, "2");
        assert_eq!(text(first.await).await, "1");
        assert_eq!(client.counts().opened(), 1);
    });
}

/// It accepts a connection, and sends nothing: as a backend whose loop is blocked.
#[test]
fn a_server_without_a_word_holds_up_no_other_request_than_its_own() {
    on_a_loop(async {
        let addr = scripted(move |number, stream| async move {
            if number == 0 {
                std::future::pending::<()>().await;
            }
            let mut connection = accept(stream, 100).await;
            while let Some(Ok(asked)) = connection.accept().await {
                respond(asked, "second");
            }
        })
        .await;
        let (client, host) = http2(Client::builder().head_timeout(None), addr);
        let mut first = pin!(host.send(get("/")));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert_eq!(text(host.send(get("/")).await).await, "second");
        assert!(futures_util::poll!(&mut first).is_pending());
        assert_eq!(client.counts().opened(), 2);
    });
}

#[test]
fn a_request_that_is_given_up_before_it_is_sent_does_not_make_its_connection_a_silent_one() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http2(Client::builder(), addr(&running));
        let mut first = Box::pin(host.send(get("/n/1")));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert_eq!(text(host.send(get("/n/2")).await).await, "2");
        // Nothing comes meanwhile, because nothing was asked.
        wakeful::time::sleep(Duration::from_millis(1200)).await;
        drop(first);
        assert_eq!(text(host.send(get("/n/3")).await).await, "3");
        assert_eq!(client.counts().opened(), 1);
    });
}

#[test]
fn a_request_that_is_not_polled_when_its_turn_to_connect_comes_holds_up_no_other_request() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http2(Client::builder(), addr(&running));
        let mut first = Box::pin(host.send(get("/n/1")));
        let mut second = pin!(host.send(get("/n/2")));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(text(host.send(get("/n/3")).await).await, "3");
        assert_eq!(text(second.await).await, "2");
        assert_eq!(client.counts().opened(), 1);
    });
}

#[test]
fn more_streams_than_one_connection_allows_get_another_connection() {
    on_a_loop(async {
        let addr = scripted(async |_, stream| {
            let mut connection = accept(stream, 1).await;
            let mut held = Vec::new();
            while let Some(Ok(asked)) = connection.accept().await {
                let ends = asked.0.uri().path() == "/end";
                held.push(asked);
                if ends {
                    held.drain(..).for_each(|asked| respond(asked, "ok"));
                }
            }
        })
        .await;
        let (client, host) = http2(Client::builder().max_connections(2), addr);
        text(host.send(get("/end")).await).await;
        let mut held = Box::pin(host.send(get("/held")));
        assert!(futures_lite::future::poll_once(&mut held).await.is_none());
        assert_eq!(text(host.send(get("/end")).await).await, "ok");
        assert_eq!((client.counts().opened(), host.connections()), (2, 2));
    });
}

#[test]
fn a_refused_stream_is_sent_again_whatever_its_method() {
    on_a_loop(async {
        let (seen, streams) = counter();
        let addr = scripted(move |_, stream| {
            let seen = seen.clone();
            async move {
                let mut connection = accept(stream, 100).await;
                while let Some(Ok(mut asked)) = connection.accept().await {
                    seen.set(seen.get() + 1);
                    match seen.get() {
                        1 => asked.1.send_reset(h2::Reason::REFUSED_STREAM),
                        2 => respond(asked, "processed"),
                        _ => asked.1.send_reset(h2::Reason::INTERNAL_ERROR),
                    }
                }
            }
        })
        .await;
        let (client, host) = http2(Client::builder(), addr);
        let response = host.send_replayable(request("POST", "/", "a body")).await;
        assert_eq!(text(response).await, "processed");
        assert_eq!(client.counts().retried(), 1);
        let error = host.send(get("/")).await.unwrap_err();
        assert!(matches!(error, ClientError::Exchange { .. }), "{error}");
        assert_eq!((client.counts().retried(), streams.get()), (1, 3));
    });
}

#[test]
fn a_response_that_ends_without_its_end_and_without_an_error_is_broken_off() {
    on_a_loop(async {
        let addr = scripted(async |_, stream| {
            let mut connection = accept(stream, 100).await;
            let mut held = None;
            while let Some(Ok(mut asked)) = connection.accept().await {
                if asked.0.uri().path() == "/half" {
                    let mut stream = asked.1.send_response(Response::new(()), false).unwrap();
                    stream.send_data(Bytes::from_static(b"half"), false).unwrap();
                    held = Some(stream);
                } else {
                    // By then the client has read the half.
                    held.take().unwrap().send_reset(h2::Reason::NO_ERROR);
                    respond(asked, "whole");
                }
            }
        })
        .await;
        let (_client, host) = http2(Client::builder(), addr);
        let mut body = host.send(get("/half")).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        assert_eq!(text(host.send(get("/reset")).await).await, "whole");
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(matches!(error, ClientError::CutShort { .. }), "{error}");
        assert!(body.frame().await.is_none());
    });
}

#[test]
fn a_response_whose_connection_ends_by_a_goaway_without_an_error_is_broken_off() {
    on_a_loop(async {
        let addr = scripted(async |_, stream| {
            let mut connection = accept(stream, 100).await;
            while let Some(Ok((asked, mut answer))) = connection.accept().await {
                if asked.uri().path() == "/half" {
                    let mut stream = answer.send_response(Response::new(()), false).unwrap();
                    stream.send_data(Bytes::from_static(b"half"), false).unwrap();
                    std::mem::forget(stream); // Its drop would reset it.
                } else {
                    connection.abrupt_shutdown(h2::Reason::NO_ERROR);
                }
            }
        })
        .await;
        let (_client, host) = http2(Client::builder().max_connections(1), addr);
        let mut body = host.send(get("/half")).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        host.send(get("/end")).await.unwrap_err();
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(matches!(error, ClientError::Body { .. }), "{error}");
        assert!(body.frame().await.is_none());
    });
}

#[test]
fn after_a_goaway_what_is_under_way_ends_and_the_rest_gets_a_new_connection() {
    on_a_loop(async {
        let addr = scripted(async |number, stream| {
            let mut connection = accept(stream, 100).await;
            let mut held = None;
            while let Some(Ok(asked)) = connection.accept().await {
                if (number, asked.0.uri().path()) == (0, "/last") {
                    connection.graceful_shutdown();
                    held = Some(asked);
                    // Until the client has another connection.
                    while let Some(Ok(late)) = connection.accept().await {
                        respond(late, "late");
                    }
                } else {
                    respond(asked, &format!("connection {number}"));
                }
            }
            drop(held);
        })
        .await;
        let (client, host) = http2(Client::builder().max_connections(1), addr);
        assert_eq!(text(host.send(get("/")).await).await, "connection 0");
        let mut last = Box::pin(host.send(get("/last")));
        assert!(futures_lite::future::poll_once(&mut last).await.is_none());
        // What meets the old connection before the client has read the GOAWAY is still answered
        // there.
        loop {
            match text(host.send(get("/")).await).await.as_str() {
                "late" => {}
                other => break assert_eq!(other, "connection 1"),
            }
        }
        assert_eq!(client.counts().opened(), 2);
        assert!(futures_lite::future::poll_once(&mut last).await.is_none(), "still under way");
    });
}

/// Above the last stream that the server says it has seen. Each is still open, for the sake of a
/// stream, when the next request comes. hyper notices as it is asked.
#[test]
fn connections_that_ended_together_by_a_goaway_cost_a_request_nothing() {
    const CONNECTIONS: usize = 5;
    on_a_loop(async {
        for retries in [2, 0] {
            let (leave, told) = async_channel::bounded::<()>(1);
            let addr = scripted(move |number, stream| {
                let told = told.clone();
                async move {
                    let mut connection = accept(stream, 2).await;
                    let (mut told, mut held) = (pin!(told.recv()), Vec::new());
                    let mut stays = number < CONNECTIONS;
                    while let Some(Ok((request, mut answer))) = poll_fn(|cx| {
                        if stays && told.as_mut().poll(cx).is_ready() {
                            stays = false;
                            connection.graceful_shutdown();
                        }
                        connection.poll_accept(cx)
                    })
                    .await
                    {
                        match request.uri().path() {
                            "/held" => {
                                held.push(answer.send_response(Response::new(()), false).unwrap());
                            }
                            _ => respond((request, answer), "answered"),
                        }
                    }
                }
            })
            .await;
            let (client, host) = http2(Client::builder().retries(retries), addr);
            let mut held = Vec::new();
            for _ in 0..2 * CONNECTIONS {
                held.push(host.send(get("/held")).await.unwrap());
            }
            assert_eq!(host.connections(), CONNECTIONS);
            // Each has room for one.
            let mut number = 0;
            held.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            drop(leave);
            for _ in 0..100 {
                wakeful::task::yield_now().await;
            }
            assert_eq!(text(host.send(get("/")).await).await, "answered");
            assert_eq!(client.counts().opened(), CONNECTIONS as u64 + 1);
        }
    });
}

#[test]
fn a_stream_that_a_goaway_leaves_out_is_sent_again() {
    on_a_loop(async {
        let addr = scripted(async |number, stream| {
            if number == 0 {
                return leaves_out(stream).await;
            }
            let mut connection = accept(stream, 100).await;
            while let Some(Ok(asked)) = connection.accept().await {
                respond(asked, "the second one");
            }
        })
        .await;
        let (client, host) = http2(Client::builder(), addr);
        let response = host.send(request("POST", "/", "")).await;
        assert_eq!(text(response).await, "the second one");
        assert_eq!((client.counts().retried(), client.counts().opened()), (1, 2));
    });
}

/// Ends the connection by GOAWAY when a request has come, and takes none: as nginx does after
/// `keepalive_requests`. The frames are written by hand: empty settings, then GOAWAY with stream 0.
async fn leaves_out(mut stream: TcpStream) {
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let mut buf = [0; 4096];
    let mut read = 0;
    while !has_headers(&buf[..read]) {
        read += stream.read(&mut buf[read..]).await.unwrap();
    }
    stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
    until_closed(&mut stream).await;
}

#[test]
fn a_stream_that_one_goaway_after_another_leaves_out_is_sent_again_beyond_the_retries() {
    on_a_loop(async {
        let addr = scripted(async |number, stream| {
            if number < 5 {
                return leaves_out(stream).await;
            }
            let mut connection = accept(stream, 100).await;
            while let Some(Ok(asked)) = connection.accept().await {
                respond(asked, "the last one");
            }
        })
        .await;
        let (client, host) = http2(Client::builder().retries(1), addr);
        let response = host.send(request("POST", "/", "")).await;
        assert_eq!(text(response).await, "the last one");
        assert_eq!((client.counts().retried(), client.counts().opened()), (5, 6));
    });
}

/// The stream is not above the last one that the server has seen.
#[test]
fn a_stream_that_a_goaway_does_not_leave_out_is_not_sent_again_as_the_connection_ends() {
    on_a_loop(async {
        for reason in [0, 2] {
            let addr = scripted(move |_, mut stream| async move {
                stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
                let mut buf = [0; 4096];
                let mut read = 0;
                while !has_headers(&buf[..read]) {
                    read += stream.read(&mut buf[read..]).await.unwrap();
                }
                let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, reason];
                stream.write_all(&goaway).await.unwrap();
            })
            .await;
            let (client, host) = http2(Client::builder(), addr);
            let failed = host.send(request("POST", "/", "")).await;
            assert_eq!(client.counts().retried(), 0, "{reason}: {failed:?}");
            assert!(failed.is_err());
        }
    });
}

#[test]
fn a_server_that_leaves_out_every_stream_is_not_asked_for_ever() {
    on_a_loop(async {
        let addr = scripted(async |_, stream| leaves_out(stream).await).await;
        for (retries, sent) in [(0, 1), (1, 10)] {
            let (client, host) = http2(Client::builder().retries(retries), addr);
            assert!(host.send(request("POST", "/", "")).await.is_err());
            assert_eq!(client.counts().opened(), sent);
        }
    });
}

/// The server still counts a stream that has had its response, and so does the pool: hyper would
/// queue the next request, for as long as the connection is there.
#[test]
fn a_request_that_waits_for_its_stream_as_the_connection_ends_is_sent_again_or_told_so() {
    type Body = Either<Full<Bytes>, StreamBody<Pending<Result<Frame<Bytes>, Infallible>>>>;
    on_a_loop(async {
        let (end, is_to_end) = async_channel::unbounded();
        let addr = scripted(move |number, stream| {
            let is_to_end = is_to_end.clone();
            async move {
                let mut connection = accept(stream, 1).await;
                let mut held = None;
                while let Some(Ok(asked)) = or_end(&mut connection, &is_to_end).await {
                    if asked.0.method() == "POST" {
                        let (request, mut answer) = asked;
                        answer.send_response(Response::new(()), true).unwrap();
                        held = Some(request);
                    } else {
                        respond(asked, &format!("connection {number}"));
                    }
                }
                drop(held);
            }
        })
        .await;
        let client = Client::builder().max_connections(1).build::<Body>();
        let host = client.host(&Target::from(addr).version(HttpVersion::Http2));
        let none = |method| {
            let request = Request::builder().method(method).uri("/");
            request.body(Either::Left(Full::default())).unwrap()
        };
        for (number, method) in ["GET", "PATCH"].into_iter().enumerate() {
            // So that the server's limit is known.
            let known = host.send(none("GET")).await;
            assert_eq!(text(known).await, format!("connection {number}"));
            // Its body never ends, and its response has ended.
            let endless = Either::Right(StreamBody::new(pending()));
            let endless = Request::builder().method("POST").uri("/").body(endless).unwrap();
            text(host.send(endless).await).await;
            let mut waits = Box::pin(host.send(none(method)));
            assert!(futures_lite::future::poll_once(&mut waits).await.is_none());
            // The connection's task takes it.
            wakeful::task::yield_now().await;
            end.send(()).await.unwrap();
            assert_eq!(text(waits.await).await, format!("connection {}", number + 1));
        }
    });
}

/// A server may answer in whole and read on.
#[test]
fn a_request_body_that_goes_on_behind_its_response_holds_up_no_other_request() {
    type Body = Either<Full<Bytes>, StreamBody<Pending<Result<Frame<Bytes>, Infallible>>>>;
    on_a_loop(async {
        let addr = scripted(async |number, stream| {
            let mut connection = accept(stream, 1).await;
            let mut held = Vec::new();
            while let Some(Ok(mut asked)) = connection.accept().await {
                if asked.0.method() == "POST" {
                    asked.1.send_response(Response::new(()), true).unwrap();
                    held.push(asked);
                } else {
                    respond(asked, &format!("connection {number}"));
                }
            }
        })
        .await;
        let client = Client::builder().head_timeout(None).build::<Body>();
        let host = client.host(&Target::from(addr).version(HttpVersion::Http2));
        let empty = || Request::get("/").body(Either::Left(Full::default())).unwrap();
        // So that the server's limit is known.
        assert_eq!(text(host.send(empty()).await).await, "connection 0");
        let endless = Either::Right(StreamBody::new(pending()));
        assert_eq!(text(host.send(Request::post("/").body(endless).unwrap()).await).await, "");
        assert_eq!(text(host.send(empty()).await).await, "connection 1");
        assert_eq!((client.counts().opened(), host.connections()), (2, 2));
    });
}

/// hyper hands a piece to HTTP/2's layer at once, whatever window there is for it.
#[test]
fn a_stream_counts_until_the_last_piece_of_its_request_s_body_is_written() {
    type Pieces = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;
    type Body = Either<Full<Bytes>, StreamBody<Pieces>>;
    const LENGTH: usize = 1_000_000;
    let piece = || Bytes::from(vec![1; LENGTH]);
    let known = || Either::Left(Full::from(piece()));
    let unknown = || Either::Right(StreamBody::new(iter([Ok(Frame::data(piece()))]).boxed()));
    let empty = || Request::get("/").body(Either::Left(Full::default())).unwrap();
    // Of these, hyper hands over the second one when there is a window for it.
    let half = || Ok(Frame::data(Bytes::from(vec![1; LENGTH / 2])));
    let several = || Either::Right(StreamBody::new(iter([half(), half()]).boxed()));
    let bodies: [&dyn Fn() -> Body; 3] = [&known, &unknown, &several];
    for body in bodies {
        on_a_loop(async {
            let (read, is_to_read) = async_channel::unbounded::<()>();
            let (closed, are_closed) = counter();
            let addr = scripted(move |number, stream| {
                let (is_to_read, closed) = (is_to_read.clone(), closed.clone());
                async move {
                    let mut connection = accept(stream, 1).await;
                    while let Some(Ok(mut asked)) = connection.accept().await {
                        eprintln!("{number} {}", asked.0.uri());
                        if asked.0.method() == "GET" {
                            respond(asked, &format!("connection {number}"));
                            continue;
                        }
                        asked.1.send_response(Response::new(()), true).unwrap();
                        if asked.0.uri().path() == "/last" {
                            connection.graceful_shutdown();
                        }
                        let is_to_read = is_to_read.clone();
                        wakeful::spawn(async move {
                            let _told = is_to_read.recv().await;
                            let (mut body, mut length) = (asked.0.into_body(), 0);
                            while let Some(Ok(data)) = body.data().await {
                                length += data.len();
                                body.flow_control().release_capacity(data.len()).unwrap();
                            }
                            assert!(length == LENGTH || is_to_read.is_closed());
                        })
                        .detach();
                    }
                    closed.set(closed.get() | 1 << number);
                }
            })
            .await;
            let target = Target::from(addr).version(HttpVersion::Http2);
            let sent = || Request::post("/").body(body()).unwrap();
            let last = || Request::post("/last").body(body()).unwrap();

            // Another connection, if there may be one.
            let client = Client::builder().build::<Body>();
            let host = client.host(&target);
            assert_eq!(text(host.send(empty()).await).await, "connection 0");
            assert_eq!(text(host.send(sent()).await).await, "");
            assert_eq!(text(host.send(empty()).await).await, "connection 1");
            assert_eq!((client.counts().opened(), host.connections()), (2, 2));
            read.send(()).await.unwrap();

            // Else it waits, until the server has read.
            let client = Client::builder().max_connections(1).build::<Body>();
            let host = client.host(&target);
            assert_eq!(text(host.send(empty()).await).await, "connection 2");
            assert_eq!(text(host.send(sent()).await).await, "");
            let mut waits = Box::pin(host.send(empty()));
            assert!(futures_lite::future::poll_once(&mut waits).await.is_none());
            assert_eq!(client.counts().waited(), 1);
            read.send(()).await.unwrap();
            assert_eq!(text(waits.await).await, "connection 2");

            // Or, if it never does, until the connection has been idle for too long.
            let idle = Duration::from_millis(20);
            let client = Client::builder().max_connections(1).idle_timeout(idle).build::<Body>();
            let host = client.host(&target);
            assert_eq!(text(host.send(sent()).await).await, "");
            assert_eq!(text(host.send(empty()).await).await, "connection 4");
            until(|| are_closed.get() & 1 << 3 != 0).await;

            // Also if the pool is gone by then.
            let client = Client::builder().idle_timeout(idle).build::<Body>();
            let host = client.host(&target);
            assert_eq!(text(host.send(sent()).await).await, "");
            drop((host, client));
            until(|| are_closed.get() & 1 << 5 != 0).await;

            // Also if the server has said that it takes no more requests.
            let client = Client::builder().idle_timeout(idle).build::<Body>();
            let host = client.host(&target);
            assert_eq!(text(host.send(last()).await).await, "");
            until(|| are_closed.get() & 1 << 6 != 0).await;
            assert_eq!(host.connections(), 0);
        });
    }
}

/// For longer than the idle timeout, which begins again with each piece.
#[test]
fn a_request_body_that_goes_on_behind_its_response_is_sent_to_its_end() {
    const PIECES: usize = 60;
    type Pieces = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;
    on_a_loop(async {
        let (lengths, all_lengths) = async_channel::unbounded();
        let addr = scripted(move |_, stream| {
            let lengths = lengths.clone();
            async move {
                let mut connection = accept(stream, 1).await;
                while let Some(Ok((request, mut answer))) = connection.accept().await {
                    answer.send_response(Response::new(()), true).unwrap();
                    let lengths = lengths.clone();
                    wakeful::spawn(async move {
                        let (mut body, mut length) = (request.into_body(), 0);
                        while let Some(Ok(data)) = body.data().await {
                            length += data.len();
                        }
                        lengths.send(length).await.unwrap();
                    })
                    .detach();
                }
            }
        })
        .await;
        let settings = Client::builder().idle_timeout(Duration::from_millis(400));
        let client = settings.build::<StreamBody<Pieces>>();
        let host = client.host(&Target::from(addr).version(HttpVersion::Http2));
        let (give, given) = async_channel::bounded(1);
        let body = StreamBody::new(given.map(|piece| Ok(Frame::data(piece))).boxed());
        let sent = host.send(Request::post("/").body(body).unwrap()).await;
        assert_eq!(text(sent).await, "");
        for _ in 0..PIECES {
            wakeful::time::sleep(Duration::from_millis(20)).await;
            give.send(Bytes::from_static(b"x")).await.unwrap();
        }
        drop(give);
        assert_eq!(all_lengths.recv().await.unwrap(), PIECES);
        assert_eq!(client.counts().opened(), 1);
    });
}

/// What h2 cannot write is not a part of a request's body: it is the beginning of requests, which
/// have been given up, and the connection's own goodbye.
#[test]
fn a_connection_whose_server_does_not_read_is_closed_in_its_time() {
    on_a_loop(async {
        let clients = Clients::default();
        let accepted = clients.clone();
        let addr = scripted(move |_, mut stream| {
            accepted.borrow_mut().push(stream.peer_addr().unwrap());
            async move {
                SockRef::from(&stream).set_recv_buffer_size(4096).unwrap();
                // Settings, without any.
                stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
                std::future::pending::<()>().await;
            }
        })
        .await;
        let target = Target::from(addr).version(HttpVersion::Http2);
        are_closed_in_their_time(&clients, Client::builder(), &target).await;
    });
}

/// The addresses of the client's sockets.
pub(super) type Clients = Rc<RefCell<Vec<SocketAddr>>>;

/// Fills connections to a server that does not read, and waits until they are closed.
pub(super) async fn are_closed_in_their_time(
    clients: &Clients,
    settings: ClientBuilder,
    target: &Target,
) {
    const REQUESTS: usize = 200;
    // In all, more than the kernel keeps (`tcp_wmem`).
    const LENGTH: usize = 60_000;
    let settings = settings
        .head_timeout(Duration::from_millis(200))
        .idle_timeout(Duration::from_millis(20))
        .retries(0);
    let client: Client = settings.build();
    let host = client.host(target);
    let value = HeaderValue::from_str(&"~".repeat(LENGTH)).unwrap();
    let requests = (0..REQUESTS).map(|_| {
        let mut request = get("/");
        request.headers_mut().insert("x", value.clone());
        host.send(request)
    });
    for response in futures_util::future::join_all(requests).await {
        assert!(matches!(response, Err(ClientError::HeadTimeout { .. })), "{response:?}");
    }
    assert!(client.counts().opened() > 0);
    until(|| host.connections() == 0).await;
    until(|| !clients.borrow().iter().any(|client| is_connected(*client))).await;
}

/// Is there still a socket of this address that is connected, and that nobody has closed?
fn is_connected(client: SocketAddr) -> bool {
    const ESTABLISHED: &str = "01";
    let port = format!(":{:04X}", client.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().skip(1).any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields[1].ends_with(&port) && fields[3] == ESTABLISHED
    })
}

#[test]
fn a_response_given_up_ends_its_request_s_body_and_holds_up_no_other_request() {
    type Pieces = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;
    type Body = Either<Full<Bytes>, StreamBody<Pieces>>;
    // A body that sends nothing more, and a body that has more than the window takes.
    let endless = || repeat_with(|| Ok(Frame::data(Bytes::from(vec![1; 16_384])))).boxed();
    let bodies: [fn() -> Pieces; 2] = [|| pending().boxed(), endless];
    for body in bodies {
        on_a_loop(async {
            let (reset, is_reset) = counter();
            let addr = scripted(move |_, stream| {
                let reset = reset.clone();
                async move {
                    let mut connection = accept(stream, 10).await;
                    while let Some(Ok(mut asked)) = connection.accept().await {
                        if asked.0.method() == "POST" {
                            let mut stream =
                                asked.1.send_response(Response::new(()), false).unwrap();
                            stream.send_data(Bytes::from_static(b"half"), false).unwrap();
                            let reset = reset.clone();
                            wakeful::spawn(async move {
                                // Its request is held, and not read.
                                let reason = poll_fn(|cx| stream.poll_reset(cx)).await.unwrap();
                                assert_eq!(reason, h2::Reason::CANCEL);
                                drop(asked);
                                reset.set(reset.get() + 1);
                            })
                            .detach();
                        } else {
                            wakeful::spawn(async move {
                                let mut length = 0;
                                while let Some(data) = asked.0.body_mut().data().await {
                                    let data = data.unwrap();
                                    length += data.len();
                                    asked
                                        .0
                                        .body_mut()
                                        .flow_control()
                                        .release_capacity(data.len())
                                        .unwrap();
                                }
                                respond(asked, &length.to_string());
                            })
                            .detach();
                        }
                    }
                }
            })
            .await;
            let client = Client::builder().max_connections(1).build::<Body>();
            let host = client.host(&Target::from(addr).version(HttpVersion::Http2));
            for given_up in 1..=3 {
                let request =
                    Request::post("/").body(Either::Right(StreamBody::new(body()))).unwrap();
                let mut half = host.send(request).await.unwrap();
                let data = half.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(data, "half");
                drop(half);
                until(|| is_reset.get() == given_up).await;
            }
            let whole = Either::Left(Full::from(vec![1; 100_000]));
            let response = host.send(Request::put("/").body(whole).unwrap()).await;
            assert_eq!(text(response).await, "100000");
            assert_eq!(client.counts().opened(), 1);
        });
    }
}

/// The next request, or that the connection is to end.
async fn or_end(
    connection: &mut Http2,
    is_to_end: &async_channel::Receiver<()>,
) -> Option<Result<Asked, h2::Error>> {
    futures_lite::future::or(
        async {
            is_to_end.recv().await.unwrap();
            None
        },
        poll_fn(|cx| connection.poll_accept(cx)),
    )
    .await
}

/// Is there a frame of HEADERS after the preface?
fn has_headers(mut bytes: &[u8]) -> bool {
    bytes = bytes.get(24..).unwrap_or_default();
    while let [a, b, c, kind, rest @ ..] = bytes {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        if rest.len() < 5 + length {
            return false;
        }
        if *kind == 1 {
            return true;
        }
        bytes = &rest[5 + length..];
    }
    false
}

#[test]
fn a_response_given_up_in_the_middle_resets_its_stream_only() {
    on_a_loop(async {
        let (reset, is_reset) = counter();
        let addr = scripted(move |_, stream| {
            let reset = reset.clone();
            async move {
                let mut connection = accept(stream, 1).await;
                while let Some(Ok(mut asked)) = connection.accept().await {
                    let mut stream = asked.1.send_response(Response::new(()), false).unwrap();
                    if asked.0.uri().path() == "/half" {
                        stream.send_data(Bytes::from_static(b"half"), false).unwrap();
                        let reset = reset.clone();
                        wakeful::spawn(async move {
                            let reason = poll_fn(|cx| stream.poll_reset(cx)).await.unwrap();
                            assert_eq!(reason, h2::Reason::CANCEL);
                            reset.set(reset.get() + 1);
                        })
                        .detach();
                    } else {
                        stream.send_data(Bytes::from_static(b"whole"), true).unwrap();
                    }
                }
            }
        })
        .await;
        let (client, host) = http2(Client::builder().max_connections(1), addr);
        let mut half = host.send(get("/half")).await.unwrap();
        assert_eq!(half.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        drop(half);
        until(|| is_reset.get() == 1).await;
        // The place of the request is free again.
        assert_eq!(text(host.send(get("/")).await).await, "whole");
        assert_eq!(client.counts().opened(), 1);
    });
}

#[test]
fn a_connection_without_streams_is_closed_in_its_time() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let timeout = std::time::Duration::from_millis(5);
        let (_client, host) = http2(Client::builder().idle_timeout(timeout), addr(&running));
        assert_eq!(text(host.send(get("/slow")).await).await, "slow");
        until(|| host.connections() == 0).await;
        until(|| running.counts().open() == 0).await;
    });
}

#[test]
fn tonic_s_generated_client_runs_over_a_host() {
    let (reporter, service) = tonic_health::server::health_reporter();
    let running = server().start(service).unwrap();
    let target = Target::from(addr(&running)).version(HttpVersion::Http2);
    on_a_loop(async {
        reporter.set_service_status("known", tonic_health::ServingStatus::Serving).await;
        let client = wakeful_http::client::Client::<tonic::body::Body>::new();
        let mut health = HealthClient::new(GrpcService::new(client.host(&target)));
        let asked = HealthCheckRequest { service: "known".to_owned() };
        let status = health.check(asked.clone()).await.unwrap().into_inner();
        assert_eq!(status.status(), ServingStatus::Serving);
        let unknown = HealthCheckRequest { service: "unknown".to_owned() };
        assert_eq!(health.check(unknown).await.unwrap_err().code(), Code::NotFound);
        let mut watch = health.watch(asked).await.unwrap().into_inner();
        let first = watch.message().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
        reporter.set_service_status("known", tonic_health::ServingStatus::NotServing).await;
        let second = watch.message().await.unwrap().unwrap();
        assert_eq!(second.status(), ServingStatus::NotServing);
        assert_eq!(client.counts().opened(), 1);
    });
}

/// A server that answers /part with `parts` of a body, each as soon as its client has room for it,
/// and then with nothing, and all else at once. How many of those parts are sent?
async fn answers_in_part(parts: usize, part: &'static [u8]) -> (SocketAddr, Rc<Cell<usize>>) {
    let sent = Rc::<Cell<usize>>::default();
    let counted = sent.clone();
    let addr = scripted(move |_, stream| {
        let counted = counted.clone();
        async move {
            let mut connection = accept(stream, 100).await;
            while let Some(Ok(mut asked)) = connection.accept().await {
                if asked.0.uri().path() != "/part" {
                    respond(asked, "other");
                    continue;
                }
                let mut stream = asked.1.send_response(Response::new(()), false).unwrap();
                let counted = counted.clone();
                wakeful::spawn(async move {
                    for _ in 0..parts {
                        stream.reserve_capacity(part.len());
                        while stream.capacity() < part.len() {
                            poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
                        }
                        stream.send_data(Bytes::from_static(part), false).unwrap();
                        counted.set(counted.get() + 1);
                    }
                    std::future::pending::<()>().await;
                })
                .detach();
            }
        }
    })
    .await;
    (addr, sent)
}

#[test]
fn responses_that_nobody_reads_delay_no_other_one_of_their_connection() {
    // A stream's whole window.
    const PARTS: usize = 64;
    on_a_loop(async {
        let (addr, sent) = answers_in_part(PARTS, &[0; 1 << 14]).await;
        let (_client, host) = http2(Client::builder(), addr);
        let mut unread = Vec::new();
        for number in 1..=20 {
            unread.push(host.send(get("/part")).await.unwrap());
            while sent.get() < number * PARTS {
                wakeful::task::yield_now().await;
            }
        }
        assert_eq!(text(host.send(get("/")).await).await, "other");
        assert_eq!(host.connections(), 1);
    });
}

#[test]
fn small_messages_that_nobody_reads_cost_no_other_request_of_their_connection() {
    const MESSAGES: usize = 20_000;
    on_a_loop(async {
        let (addr, sent) = answers_in_part(MESSAGES, &[0; 20]).await;
        let (_client, host) = http2(Client::builder(), addr);
        let unread = host.send(get("/part")).await.unwrap();
        while sent.get() < MESSAGES {
            wakeful::task::yield_now().await;
        }
        assert_eq!(text(host.send(get("/")).await).await, "other");
        assert_eq!(host.connections(), 1);
        drop(unread);
    });
}

/// A server that uses h2 counts how many bytes each unread frame is short of 256.
#[test]
fn small_pieces_of_a_request_that_nobody_reads_cost_no_other_request_of_their_connection() {
    const PIECES: usize = 20_000;
    on_a_loop(async {
        let (read, is_to_read) = async_channel::unbounded::<()>();
        let (lengths, all_lengths) = async_channel::unbounded();
        let addr = scripted(move |_, stream| {
            let (is_to_read, lengths) = (is_to_read.clone(), lengths.clone());
            async move {
                let mut connection = accept(stream, 100).await;
                while let Some(Ok(mut asked)) = connection.accept().await {
                    if asked.0.method() == "GET" {
                        respond(asked, "other");
                        continue;
                    }
                    let (is_to_read, lengths) = (is_to_read.clone(), lengths.clone());
                    wakeful::spawn(async move {
                        is_to_read.recv().await.unwrap();
                        let body = asked.0.body_mut();
                        let mut length = 0;
                        while let Some(data) = body.data().await {
                            length += data.unwrap().len();
                        }
                        lengths.send(length).await.unwrap();
                        asked.1.send_response(Response::new(()), true).unwrap();
                    })
                    .detach();
                }
            }
        })
        .await;
        type Pieces = LocalBoxStream<'static, Result<Frame<Bytes>, Infallible>>;
        let client = Client::builder().build::<Either<Full<Bytes>, StreamBody<Pieces>>>();
        let host = client.host(&Target::from(addr).version(HttpVersion::Http2));
        let get = || Request::get("/").body(Either::Left(Full::default())).unwrap();
        // So that the server's limit is known.
        assert_eq!(text(host.send(get()).await).await, "other");
        let (taken, are_taken) = counter();
        let pieces = repeat_with(move || {
            taken.set(taken.get() + 1);
            Ok(Frame::data(Bytes::from_static(b"x")))
        });
        let body = Either::Right(StreamBody::new(pieces.take(PIECES).boxed_local()));
        let posted = wakeful::spawn({
            let (host, request) = (host.clone(), Request::post("/").body(body).unwrap());
            async move { host.send(request).await.map(drop) }
        });
        until(|| are_taken.get() == PIECES).await;
        assert_eq!(text(host.send(get()).await).await, "other");
        read.send(()).await.unwrap();
        posted.await.unwrap().unwrap();
        assert_eq!(all_lengths.recv().await.unwrap(), PIECES);
        assert_eq!(client.counts().opened(), 1);
    });
}

/// What the server has sent by then still comes.
#[test]
fn responses_that_are_given_up_cost_no_other_request_of_their_connection() {
    // After 500 of them at once the connection gets no more requests.
    const GIVEN_UP: usize = 480;
    let endless = || async {
        let piece = || Ok::<_, Infallible>(Bytes::from_static(&[7; 1 << 14]));
        axum::body::Body::from_stream(repeat_with(piece))
    };
    let app = router().route("/endless", axum::routing::get(endless));
    let (gate, app) = Gate::on(app);
    let running = server().start(app).unwrap();
    on_a_loop(async {
        let (client, host) = http2(Client::builder().max_connections(1), addr(&running));
        let other = wakeful::spawn({
            let host = host.clone();
            async move { text(host.send(get("/gated")).await).await }
        });
        gate.one_entered().await;
        for _ in 0..GIVEN_UP {
            let mut body = host.send(get("/endless")).await.unwrap().into_body();
            body.frame().await.unwrap().unwrap();
        }
        gate.open();
        assert_eq!(other.await.unwrap(), "released");
        assert_eq!(client.counts().opened(), 1);
    });
}

/// They are not read, and the client sends on until it learns that.
#[test]
fn uploads_that_are_refused_cost_no_other_request_of_their_connection() {
    const REFUSED: usize = 1500;
    type Pieces = LocalBoxStream<'static, Result<Frame<Bytes>, Infallible>>;
    let refuse = || async { axum::http::StatusCode::FORBIDDEN };
    let app = router().route("/refuse", axum::routing::post(refuse));
    let (gate, app) = Gate::on(app);
    let running = server().start(app).unwrap();
    on_a_loop(async {
        let settings = Client::builder().max_connections(1);
        let client = settings.build::<Either<Full<Bytes>, StreamBody<Pieces>>>();
        let host = client.host(&Target::from(addr(&running)).version(HttpVersion::Http2));
        let other = wakeful::spawn({
            let request = Request::get("/gated").body(Either::Left(Full::default())).unwrap();
            let host = host.clone();
            async move { text(host.send(request).await).await }
        });
        gate.one_entered().await;
        for _ in 0..REFUSED {
            let piece = || Ok(Frame::data(Bytes::from_static(&[7; 1 << 14])));
            let body = StreamBody::new(repeat_with(piece).take(64).boxed_local());
            let request = Request::post("/refuse").body(Either::Right(body)).unwrap();
            assert_eq!(host.send(request).await.unwrap().status(), 403);
        }
        gate.open();
        assert_eq!(other.await.unwrap(), "released");
        assert_eq!(client.counts().opened(), 1);
    });
}

/// On one connection, a server would take this number of resets for an attack.
#[test]
fn requests_that_are_cancelled_cost_no_other_request_of_their_connection() {
    const CANCELLED: usize = 3000;
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    on_a_loop(async {
        let (client, host) = http2(Client::builder(), addr(&running));
        let other = wakeful::spawn({
            let host = host.clone();
            async move { text(host.send(get("/gated")).await).await }
        });
        gate.one_entered().await;
        for _ in 0..CANCELLED {
            let come = until(|| running.http_counts().in_flight() == 2);
            let cancelled = host.send(get("/never"));
            futures_lite::future::or(come, async move { drop(cancelled.await.unwrap()) }).await;
            until(|| running.http_counts().in_flight() == 1).await;
        }
        gate.open();
        assert_eq!(other.await.unwrap(), "released");
        assert_eq!(running.http_counts().refused(wakeful_http::Refusal::Http2ResetFlood), 0);
        assert!(client.counts().opened() > 1);
    });
}
