//! What is sent again, and what is not. The first connection of each server answers one request,
//! and does with the second one what the test says.

use std::io::{Read, Write};

use wakeful_http::client::Awaited;

use super::*;

async fn stale(second: &'static [u8]) -> (SocketAddr, Rc<Cell<usize>>) {
    let (seen, requests) = counter();
    let addr = scripted(move |number, mut stream| {
        let seen = seen.clone();
        async move {
            for request in 0.. {
                if read_request(&mut stream).await.is_empty() {
                    return;
                }
                seen.set(seen.get() + 1);
                if (number, request) == (0, 1) {
                    return stream.write_all(second).await.unwrap();
                }
                answer(&mut stream, &format!("connection {number}")).await;
            }
        }
    })
    .await;
    (addr, requests)
}

#[test]
fn an_idempotent_request_is_repeated_if_a_kept_connection_closes_without_a_word() {
    on_a_loop(async {
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"] {
            let (addr, requests) = stale(b"").await;
            let (client, host) = http1(Client::builder(), addr);
            assert_eq!(text(host.send(get("/")).await).await, "connection 0");
            assert!(host.send(request(method, "/", "")).await.unwrap().status().is_success());
            assert_eq!((client.counts().retried(), client.counts().opened()), (1, 2), "{method}");
            assert_eq!(requests.get(), 3);
        }
    });
}

/// The first connection of HTTP/2 answers one request, and is gone when the second comes.
#[test]
fn an_idempotent_request_is_repeated_if_a_connection_of_http2_breaks_off() {
    on_a_loop(async {
        for method in ["GET", "POST"] {
            let addr = scripted(async |number, stream| {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                for request in 0.. {
                    let Some(Ok((_, mut respond))) = connection.accept().await else { return };
                    if (number, request) == (0, 1) {
                        return;
                    }
                    respond.send_response(Response::new(()), true).unwrap();
                }
            })
            .await;
            let (client, host) = http2(Client::builder(), addr);
            assert!(host.send(get("/")).await.unwrap().status().is_success());
            let second = host.send(request(method, "/", "")).await;
            assert_eq!(second.is_ok(), method == "GET", "{second:?}");
            assert_eq!(client.counts().retried(), u64::from(method == "GET"));
        }
    });
}

/// A caller that limits the time of the server must not count that of a connection.
#[test]
fn a_caller_learns_what_its_request_waits_for_also_when_it_is_sent_again() {
    use Awaited::{Connection, Response};
    on_a_loop(async {
        let (addr, _) = stale(b"").await;
        let (client, host) = http1(Client::builder(), addr);
        for expected in [&[Connection, Response][..], &[Connection, Response, Connection, Response]]
        {
            let mut awaited = Vec::new();
            let watch = |what| {
                // One that waits for its connection has none yet.
                assert!(what == Connection || host.connections() > 0);
                awaited.push(what);
            };
            let sent = host.send_watched(get("/"), |_| None, watch).await;
            text(sent.map_err(|failed| failed.error)).await;
            assert_eq!(awaited, expected);
        }
        assert_eq!(client.counts().retried(), 1);
    });
}

/// A server does this if it limits the age or the requests of its connections.
#[test]
fn kept_connections_that_close_one_after_the_other_cost_an_idempotent_request_one_retry() {
    on_a_loop(async {
        let (arrived, arrivals) = counter();
        let addr = scripted(move |number, mut stream| {
            let arrived = arrived.clone();
            async move {
                read_request(&mut stream).await;
                arrived.set(arrived.get() + 1);
                // So that each of the first requests has a connection of its own.
                until(|| arrived.get() >= 3).await;
                answer(&mut stream, &format!("connection {number}")).await;
                read_request(&mut stream).await;
            }
        })
        .await;
        let (client, host) = http1(Client::builder().retries(1), addr);
        let first = futures_util::future::join_all((0..3).map(|_| host.send(get("/"))));
        for response in first.await {
            text(response).await;
        }
        until(|| format!("{host:?}").contains("idle: 3")).await;
        assert_eq!(text(host.send(get("/")).await).await, "connection 3");
        assert_eq!((client.counts().retried(), client.counts().opened()), (1, 4));
        assert_eq!(arrivals.get(), 4);
    });
}

#[test]
fn one_that_is_not_idempotent_is_not_repeated_once_it_was_written() {
    on_a_loop(async {
        let (addr, requests) = stale(b"").await;
        let (client, host) = http1(Client::builder(), addr);
        text(host.send(get("/")).await).await;
        let error = host.send(request("POST", "/", "")).await.unwrap_err();
        assert!(matches!(error, ClientError::Exchange { .. }), "{error}");
        assert_eq!((client.counts().retried(), requests.get()), (0, 2));
    });
}

#[test]
fn nothing_is_repeated_once_the_answer_has_begun() {
    on_a_loop(async {
        for begun in
            [&b"H"[..], b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"?\r\n\r\n"]
        {
            let (addr, requests) = stale(begun).await;
            let (client, host) = http1(Client::builder(), addr);
            text(host.send(get("/")).await).await;
            let error = host.send(get("/")).await.unwrap_err();
            assert!(matches!(error, ClientError::Exchange { .. }), "{error}");
            assert_eq!((client.counts().retried(), requests.get()), (0, 2));
        }
    });
}

#[test]
fn a_body_is_repeated_only_if_it_can_be_cloned() {
    on_a_loop(async {
        let (addr, _) = stale(b"").await;
        let (client, host) = http1(Client::builder(), addr);
        text(host.send(get("/")).await).await;
        assert!(host.send(request("PUT", "/", "a body")).await.is_err());
        assert_eq!(client.counts().retried(), 0);

        let (addr, _) = stale(b"").await;
        let (client, host) = http1(Client::builder(), addr);
        text(host.send(get("/")).await).await;
        let response = host.send_replayable(request("PUT", "/", "a body")).await;
        assert_eq!(text(response).await, "connection 1");
        assert_eq!(client.counts().retried(), 1);
    });
}

#[test]
fn retries_can_be_switched_off() {
    on_a_loop(async {
        let (addr, _) = stale(b"").await;
        let (client, host) = http1(Client::builder().retries(0), addr);
        text(host.send(get("/")).await).await;
        assert!(host.send(get("/")).await.is_err());
        assert_eq!(client.counts().retried(), 0);
    });
}

/// A server whose first connections close when they have a request.
async fn closes_first(connections: usize) -> (SocketAddr, Rc<Cell<usize>>) {
    let (seen, requests) = counter();
    let addr = scripted(move |number, mut stream| {
        let seen = seen.clone();
        async move {
            read_request(&mut stream).await;
            seen.set(seen.get() + 1);
            if number >= connections {
                answer(&mut stream, &format!("connection {number}")).await;
            }
        }
    })
    .await;
    (addr, requests)
}

#[test]
fn an_idempotent_request_is_repeated_once_if_a_new_connection_closes_without_a_word() {
    on_a_loop(async {
        for (method, is_repeated) in [("GET", true), ("PUT", true), ("POST", false)] {
            for deadly in [1, 2] {
                let (addr, requests) = closes_first(deadly).await;
                let (client, host) = http1(Client::builder().retries(5), addr);
                let sent = host.send_replayable(request(method, "/", "a body")).await;
                if is_repeated && deadly == 1 {
                    assert_eq!(text(sent).await, "connection 1");
                } else {
                    let error = sent.unwrap_err();
                    assert!(matches!(error, ClientError::Exchange { .. }), "{error}");
                }
                let retries = usize::from(is_repeated);
                assert_eq!(client.counts().retried(), retries as u64, "{method}");
                assert_eq!(requests.get(), 1 + retries, "{method}");
            }
        }
    });
}

/// The caller, who could ask another server, does not get it back.
#[test]
fn a_request_without_a_body_and_without_a_copy_is_repeated_at_its_own_host() {
    on_a_loop(async {
        let (addr, requests) = closes_first(1).await;
        let (_client, host) = http1(Client::builder(), addr);
        let sent = host.send_with(get("/"), |_| None).await;
        assert_eq!(text(sent.map_err(|failure| failure.error)).await, "connection 1");
        assert_eq!(requests.get(), 2);
    });
}

/// Its pooled connection may close for a reason of its own, and then a new one does.
#[test]
fn a_request_that_was_repeated_is_not_repeated_because_of_a_new_connection() {
    on_a_loop(async {
        let (seen, requests) = counter();
        let addr = scripted(move |number, mut stream| {
            let seen = seen.clone();
            async move {
                for request in 0.. {
                    if read_request(&mut stream).await.is_empty() {
                        return;
                    }
                    seen.set(seen.get() + 1);
                    if (number, request) != (0, 0) {
                        return;
                    }
                    answer(&mut stream, "the first").await;
                }
            }
        })
        .await;
        let (client, host) = http1(Client::builder().retries(5), addr);
        assert_eq!(text(host.send(get("/")).await).await, "the first");
        host.send(get("/")).await.unwrap_err();
        assert_eq!((client.counts().retried(), requests.get()), (1, 3));
    });
}

/// A caller that can ask another server gets it back at once.
#[test]
fn a_request_whose_new_connection_closed_goes_to_one_other_server_at_most() {
    on_a_loop(async {
        let copy = |body: &Full<Bytes>| Some(body.clone());
        let (first, first_requests) = closes_first(usize::MAX).await;
        let (second, second_requests) = closes_first(usize::MAX).await;
        let (client, first) = http1(Client::builder(), first);
        let second = client.host(&wakeful_http::client::Target::from(second));
        let failure = first.send_with(request("PUT", "/", "a body"), copy).await.unwrap_err();
        assert!(matches!(failure.error, ClientError::Exchange { .. }), "{}", failure.error);
        let again = failure.request.expect("its method is idempotent");
        let body = again.body().clone().collect().await.unwrap().to_bytes();
        assert_eq!((again.method().as_str(), &body[..]), ("PUT", &b"a body"[..]));
        let failure = second.send_with(*again, copy).await.unwrap_err();
        assert!(failure.request.is_none(), "it may be deadly");
        assert_eq!((first_requests.get(), second_requests.get()), (1, 1));
        assert_eq!(client.counts().retried(), 0);
        let failure = first.send_with(request("POST", "/", "a body"), copy).await.unwrap_err();
        assert!(failure.request.is_none(), "its method is not idempotent");
    });
}

#[test]
fn an_idempotent_request_is_repeated_once_if_a_new_connection_of_http2_breaks_off() {
    on_a_loop(async {
        for (method, deadly, connections) in [("GET", 1, 2), ("GET", 2, 2), ("POST", 1, 1)] {
            let addr = scripted(move |number, stream| async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    if number < deadly {
                        return;
                    }
                    respond.send_response(Response::new(()), true).unwrap();
                }
            })
            .await;
            let (client, host) = http2(Client::builder(), addr);
            let sent = host.send(request(method, "/", "")).await;
            assert_eq!(sent.is_ok(), (method, deadly) == ("GET", 1), "{sent:?}");
            assert_eq!(client.counts().opened(), connections, "{method}");
        }
    });
}

/// Closed while nobody asks: the request finds it out before a byte is written, or never meets the
/// connection.
#[test]
fn a_connection_that_was_closed_while_it_was_idle_costs_no_request() {
    on_a_loop(async {
        let addr = scripted(async |_, mut stream| {
            read_request(&mut stream).await;
            answer(&mut stream, "once").await;
        })
        .await;
        let (client, host) = http1(Client::builder(), addr);
        for number in 1..=20 {
            let response = host.send(request("POST", "/", "a body")).await;
            assert_eq!(text(response).await, "once");
            until(|| host.connections() == 0).await;
            assert_eq!(client.counts().opened(), number);
        }
    });
}

/// The server closes while the client's loop is busy with something else, and the loop has not seen
/// the end when the request is sent.
#[test]
fn a_request_that_may_go_once_only_meets_no_connection_that_was_closed_during_its_turn() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (close, closes) = std::sync::mpsc::channel();
    let (closed, has_closed) = std::sync::mpsc::channel();
    let has_closed = Rc::new(has_closed);
    let server = std::thread::spawn(move || {
        let answer_one = || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                assert_eq!(stream.read(&mut byte).unwrap(), 1, "no request");
                head.push(byte[0]);
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).unwrap();
            stream
        };
        for _ in 0..2 {
            let kept = answer_one();
            closes.recv().unwrap();
            drop(kept);
            closed.send(()).unwrap();
        }
        drop(answer_one());
    });
    on_a_loop(async move {
        let (client, host) = http1(Client::builder(), addr);
        host.send(get("/")).await.unwrap();
        for connections in 2..=3 {
            until(|| format!("{host:?}").contains("idle: 1")).await;
            // Another task's long poll, in the turn that sends the request: the loop has looked for
            // events before it.
            let (close, has_closed) = (close.clone(), has_closed.clone());
            wakeful::spawn(async move {
                close.send(()).unwrap();
                has_closed.recv().unwrap();
            })
            .detach();
            let response = host.send(request("POST", "/", "")).await.unwrap();
            assert!(response.status().is_success());
            assert_eq!(client.counts().opened(), connections);
        }
    });
    server.join().unwrap();
}

/// Answers one request, and is gone when it has read another one.
async fn goes_at_its_second_request() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    wakeful::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        answer(&mut stream, "the first").await;
        assert!(!read_request(&mut stream).await.is_empty());
        drop((listener, stream));
    })
    .detach();
    addr
}

/// The server that is gone may have acted on it. So the method decides whether the caller may ask
/// another server.
#[test]
fn a_request_whose_server_goes_is_given_back_only_if_its_method_is_idempotent() {
    on_a_loop(async {
        for (method, is_given_back) in [("PUT", true), ("GET", true), ("POST", false)] {
            let addr = goes_at_its_second_request().await;
            let (client, host) = http1(Client::builder(), addr);
            assert_eq!(text(host.send(get("/")).await).await, "the first");
            let copy = |body: &Full<Bytes>| Some(body.clone());
            let failure = host.send_with(request(method, "/", "a body"), copy).await.unwrap_err();
            let is_unconnected = matches!(failure.error, ClientError::Connect { .. });
            assert_eq!(is_unconnected, is_given_back, "{method}: {}", failure.error);
            assert_eq!(client.counts().retried() > 0, is_given_back, "{method}");
            assert_eq!(failure.request.is_some(), is_given_back, "{method}");
            if let Some(request) = failure.request {
                assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), "a body");
            }
        }
    });
}

/// It had its turn, and another request has the room that it left.
#[test]
fn a_request_that_is_sent_again_waits_although_the_queue_is_full() {
    on_a_loop(async {
        let (addr, _) = stale(b"").await;
        let settings = Client::builder().max_connections(1).max_waiting(1);
        let (client, host) = http1(settings, addr);
        assert_eq!(text(host.send(get("/")).await).await, "connection 0");
        let mut again = Box::pin(host.send(get("/")));
        let mut next = Box::pin(host.send(get("/")));
        for sent in [&mut again, &mut next] {
            assert!(futures_lite::future::poll_once(sent).await.is_none());
        }
        // The connection has closed, and the next request may make one.
        until(|| format!("{host:?}").contains("waiting: 0")).await;
        let mut last = Box::pin(host.send(get("/")));
        for sent in [&mut last, &mut again] {
            assert!(futures_lite::future::poll_once(sent).await.is_none());
        }
        assert!(matches!(host.send(get("/")).await, Err(ClientError::QueueFull { .. })));
        for sent in [next, last, again] {
            assert_eq!(text(sent.await).await, "connection 1");
        }
        assert_eq!((client.counts().retried(), client.counts().opened()), (1, 2));
    });
}
