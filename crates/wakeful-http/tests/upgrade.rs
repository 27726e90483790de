//! Connections that leave HTTP: both ways, with what came too early, and when there is none to
//! leave.

mod common;

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use http::{Method, Response, StatusCode, header};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use wakeful::io::{LoopExecutor, LoopTimer};
use wakeful::net::TcpStream;
use wakeful::time::timeout;
use wakeful_http::upgrade::{self, UpgradeError, Upgraded};
use wakeful_http::{Limits, MinRate, Refusal};

use common::frames::{
    CANCEL, Client, DATA, END_HEADERS, END_STREAM, HEADERS, NO_ERROR, RST_STREAM, WINDOW_UPDATE,
    field,
};
use common::*;

async fn echo(mut stream: Upgraded) {
    let mut buf = [0; 1024];
    while let Ok(read @ 1..) = stream.read(&mut buf).await {
        if stream.write_all(&buf[..read]).await.is_err() {
            return;
        }
    }
    let _ = stream.close().await;
}

async fn upgraded(mut request: Request) -> Response<Body> {
    let is_tunnel = request.method() == Method::CONNECT;
    let upgrading = upgrade::on(&mut request);
    wakeful::spawn(async move { echo(upgrading.await.unwrap()).await }).detach();
    if is_tunnel {
        return Response::new(Body::empty());
    }
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let response = response.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "echo");
    response.body(Body::empty()).unwrap()
}

/// Asks for the upgrade of a stream of HTTP/2.
fn extended_connect(client: &mut Client, stream: u32, path: &str) {
    let fields = [":method", ":protocol", ":scheme", ":path", ":authority"];
    let values = ["CONNECT", "echo", "http", path, "x"];
    let head: Vec<u8> =
        fields.into_iter().zip(values).flat_map(|(name, value)| field(name, value)).collect();
    client.send(HEADERS, END_HEADERS, stream, &head);
}

/// Answers with an ordinary response, and with what came of the upgrade in the next one.
fn declining() -> Router {
    let (tell, told) = async_channel::unbounded();
    let decline = async move |mut request: Request| {
        let upgrading = upgrade::on(&mut request);
        let tell = tell.clone();
        wakeful::spawn(async move { tell.send(upgrading.await.unwrap_err()).await }).detach();
        "no"
    };
    let what = async move || told.recv().await.unwrap().to_string();
    Router::new().route("/decline", any(decline)).route("/what", any(what))
}

fn app() -> Router {
    router().route("/upgrade", any(upgraded)).merge(declining()).fallback(any(upgraded))
}

const UPGRADE: &str =
    "GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";

/// Up to the empty line.
fn read_header(stream: &mut impl Read) -> String {
    let mut header = Vec::new();
    while !header.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        header.push(byte[0]);
    }
    String::from_utf8(header).unwrap()
}

#[test]
fn bytes_pass_both_ways_after_101_even_those_that_came_with_the_request() {
    let running = server().start(app()).unwrap();
    let mut stream = raw(&running);
    // An ordinary request before it.
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!(read_header(&mut stream).starts_with("HTTP/1.1 200"));
    stream.read_exact(&mut [0; 5]).unwrap();
    stream.write_all(format!("{UPGRADE}too early").as_bytes()).unwrap();
    let header = read_header(&mut stream);
    assert!(header.starts_with("HTTP/1.1 101") && header.contains("upgrade: echo"), "{header}");
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"too early");
    for size in [1, 1000, 100_000] {
        let bytes = vec![b'x'; size];
        let mut writer = stream.try_clone().unwrap();
        let written = std::thread::spawn({
            let bytes = bytes.clone();
            move || writer.write_all(&bytes).unwrap()
        });
        let mut answer = vec![0; size];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer == bytes);
        written.join().unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(stream), "");
    until("the connection is closed", || running.counts().open() == 0);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn connect_is_a_tunnel() {
    let running = server().start(app()).unwrap();
    let mut stream = raw(&running);
    stream.write_all(b"CONNECT there:80 HTTP/1.1\r\nhost: there:80\r\n\r\n").unwrap();
    assert!(read_header(&mut stream).starts_with("HTTP/1.1 200"));
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
}

#[test]
fn a_response_that_is_no_upgrade_refuses_it_and_the_connection_goes_on() {
    let running = server().start(app()).unwrap();
    let mut stream = raw(&running);
    for closes in ["", ", close"] {
        let request = format!(
            "GET /decline HTTP/1.1\r\nhost: x\r\nconnection: upgrade{closes}\r\nupgrade: h2c\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        assert!(read_header(&mut stream).starts_with("HTTP/1.1 200"));
        stream.read_exact(&mut [0; 2]).unwrap();
        if closes.is_empty() {
            let what = "GET /what HTTP/1.1\r\nhost: x\r\n\r\n";
            stream.write_all(what.as_bytes()).unwrap();
            read_header(&mut stream);
            let mut answer = vec![0; UpgradeError::Refused.to_string().len()];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(String::from_utf8(answer).unwrap(), UpgradeError::Refused.to_string());
        }
    }
    assert_eq!(read_all(stream), "");
    let mut stream = raw(&running);
    stream.write_all(b"GET /decline HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    read_header(&mut stream);
    stream.read_exact(&mut [0; 2]).unwrap();
    for error in [UpgradeError::Refused, UpgradeError::NotAsked] {
        stream.write_all(b"GET /what HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        read_header(&mut stream);
        let mut answer = vec![0; error.to_string().len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), error.to_string());
    }
}

#[test]
fn an_upgraded_connection_that_does_not_end_is_aborted_with_the_grace_period() {
    let running = server().start(app()).unwrap();
    let mut stream = raw(&running);
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    read_header(&mut stream);
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    assert_eq!(running.counts().open(), 1);
    assert_eq!(running.shutdown(Duration::from_millis(50)).unwrap(), 1);
    assert_eq!(read_all(stream), "");
}

/// A close with unread bytes is a reset, which would discard what the client has not read yet.
#[test]
fn a_client_that_still_sends_gets_all_that_was_sent_before_the_close() {
    let (tell, told) = std::sync::mpsc::channel();
    let sends = async move |mut request: Request| {
        let (tell, upgrading) = (tell.clone(), upgrade::on(&mut request));
        wakeful::spawn(async move {
            let mut stream = upgrading.await.unwrap();
            let mut sent = 0;
            // Until the sockets hold no more.
            let fill = async {
                loop {
                    sent += stream.write(&[b'x'; 64 << 10]).await.unwrap();
                }
            };
            let _: Result<(), _> = timeout(Duration::from_millis(200), fill).await;
            stream.close().await.unwrap();
            drop(stream);
            tell.send(sent).unwrap();
        })
        .detach();
        let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let response = response.header(header::CONNECTION, "upgrade");
        response.header(header::UPGRADE, "x").body(Body::empty()).unwrap()
    };
    let running = server().start(Router::new().route("/upgrade", any(sends))).unwrap();
    let mut stream = raw(&running);
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    read_header(&mut stream);
    let sent = told.recv_timeout(GUARD).unwrap();
    stream.write_all(b"still here").unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), sent);
    drop(stream);
    until("the connection is closed", || running.counts().open() == 0);
}

#[test]
fn an_upgrade_that_is_decided_while_the_server_drains_still_happens() {
    let (gate, app) = Gate::on(app());
    let app = app.route(
        "/gated-upgrade",
        any(async |request: Request| {
            // Told, and yet it may say goodbye in the other protocol.
            wakeful_http::drain_begins().await;
            upgraded(request).await
        }),
    );
    let running = server().start(app).unwrap();
    let mut stream = raw(&running);
    stream.write_all(UPGRADE.replace("/upgrade", "/gated-upgrade").as_bytes()).unwrap();
    // Its request has arrived, because another one that was sent later has, on the same loop or
    // not.
    let mut other = raw(&running);
    other.write_all(b"GET /gated HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    gate.wait_for_one();
    gate.open();
    until("both are accepted", || running.counts().accepted() == 2);
    let drained = std::thread::spawn(move || running.shutdown(GUARD).unwrap());
    assert!(read_header(&mut stream).starts_with("HTTP/1.1 101"));
    stream.write_all(b"bye").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(stream), "bye");
    assert_eq!(drained.join().unwrap(), 0);
}

#[test]
fn extended_connect_of_http2_is_upgraded_too() {
    let running = server().start(app()).unwrap();
    let addr = addr(&running);
    wakeful::block_on(async {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let builder = http2::Builder::new(LoopExecutor);
        let (mut sender, connection) =
            builder.clone().timer(LoopTimer).handshake(stream).await.unwrap();
        wakeful::spawn(connection).detach();
        // The server's SETTINGS have to come first: they allow it.
        let first = http::Request::get("http://x/").body(Empty::<Bytes>::new()).unwrap();
        sender.send_request(first).await.unwrap();
        let mut request = http::Request::builder()
            .method(Method::CONNECT)
            .uri("http://x/upgrade")
            .body(Empty::<Bytes>::new())
            .unwrap();
        request.extensions_mut().insert(hyper::ext::Protocol::from_static("echo"));
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut upgraded = hyper::upgrade::on(response).await.unwrap();
        let bytes = vec![7; 300_000];
        let mut answer = Vec::new();
        let mut written = 0;
        // Echoed piece by piece: windows pass both ways.
        while answer.len() < bytes.len() {
            std::future::poll_fn(|cx| {
                use hyper::rt::{Read as _, Write as _};
                use std::pin::Pin;
                use std::task::Poll;
                if written < bytes.len()
                    && let Poll::Ready(wrote) =
                        Pin::new(&mut upgraded).poll_write(cx, &bytes[written..])
                {
                    written += wrote.unwrap();
                    return Poll::Ready(());
                }
                let mut space = [0; 4096];
                let mut buf = hyper::rt::ReadBuf::new(&mut space);
                match Pin::new(&mut upgraded).poll_read(cx, buf.unfilled()) {
                    Poll::Ready(read) => {
                        read.unwrap();
                        answer.extend_from_slice(buf.filled());
                        Poll::Ready(())
                    }
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
        }
        assert!(answer == bytes);
    });
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

/// Moves the request to another thread, which uses and drops it; answers with what that thread saw.
async fn elsewhere(request: Request) -> String {
    let (tell, told) = async_channel::bounded(1);
    std::thread::spawn(move || {
        let mut request = request;
        let copy = request.extensions().clone();
        let upgrading = upgrade::on(&mut request);
        let _ = format!("{upgrading:?}");
        let outcome = futures_lite::future::block_on(upgrading).unwrap_err();
        drop((copy, request));
        tell.send_blocking(outcome.to_string()).unwrap();
    });
    told.recv().await.unwrap_or_else(|_| "the other thread panicked".to_owned())
}

/// `curl --http2` asks every server by HTTP/1.1 for an upgrade to h2c.
#[test]
fn a_request_for_an_upgrade_may_be_used_and_dropped_on_another_thread() {
    let running = server().start(Router::new().route("/", any(elsewhere))).unwrap();
    for _ in 0..3 {
        let mut stream = raw(&running);
        let request = "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade, http2-settings, close\r\nupgrade: h2c\r\n\
                       http2-settings: AAMAAABkAAQAoAAA\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let answer = read_all(stream);
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("another thread"),
            "{answer}"
        );
    }
    until("all are closed", || running.counts().open() == 0);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

/// What is offered is dropped on another thread once the loop that it belongs to is gone.
#[test]
fn an_upgrade_may_outlive_its_loop_on_another_thread() {
    let (keep, kept) = async_channel::unbounded();
    let handler = async move |request: Request| {
        let drains = wakeful_http::drain_begins();
        keep.send((request, drains)).await.unwrap();
        "kept"
    };
    let running = server().start(Router::new().route("/", any(handler))).unwrap();
    let request =
        UPGRADE.replace("/upgrade", "/").replace("upgrade\r\nupgrade", "upgrade, close\r\nupgrade");
    let mut stream = raw(&running);
    stream.write_all(request.as_bytes()).unwrap();
    assert!(read_all(stream).ends_with("kept"));
    running.shutdown(GUARD).unwrap();
    let (request, mut drains) = kept.recv_blocking().unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut drains).poll(&mut context).is_pending());
    drop((request, drains));
}

/// As axum's own `WebSocketUpgrade` does: it takes hyper's extension.
async fn of_hyper(mut request: Request) -> Response<Body> {
    let upgrading = request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>();
    let is_there = upgrading.is_some();
    drop(upgrading);
    let status = if is_there || request.uri().path() == "/101" { 101 } else { 426 };
    let response = Response::builder().status(status);
    let response = response.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "echo");
    response.body(Body::empty()).unwrap()
}

#[test]
fn an_upgrade_that_nobody_takes_up_is_no_101() {
    let running = server().start(Router::new().fallback(any(of_hyper))).unwrap();
    for (path, status) in [("/hyper", "426"), ("/101", "500")] {
        let mut stream = raw(&running);
        stream.write_all(UPGRADE.replace("/upgrade", path).as_bytes()).unwrap();
        let header = read_header(&mut stream);
        assert!(header.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {header}");
        // The connection continues.
        stream.write_all(b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        assert!(read_header(&mut stream).starts_with("HTTP/1.1 426"), "{path}");
    }
    assert_eq!(running.http_counts().responses(5), 1);
}

/// Whoever has a copy of a request's extensions, too.
#[test]
fn of_those_that_wait_for_one_upgrade_the_first_gets_it_and_the_others_are_refused() {
    let (tell, told) = async_channel::unbounded();
    let several = async move |mut request: Request| {
        let (waits, waiting) = async_channel::unbounded();
        for _ in 0..3 {
            let mut copy = Request::new(());
            copy.extensions_mut().clone_from(request.extensions());
            let (mut upgrading, tell) = (upgrade::on(&mut copy), tell.clone());
            let waits = waits.clone();
            wakeful::spawn(async move {
                let waiting = poll_fn(|cx| {
                    let polled = Pin::new(&mut upgrading).poll(cx);
                    let _ = waits.try_send(());
                    polled
                });
                match waiting.await {
                    Ok(stream) => echo(stream).await,
                    Err(error) => tell.send(error).await.unwrap(),
                }
            })
            .detach();
        }
        for _ in 0..3 {
            waiting.recv().await.unwrap();
        }
        let query = request.uri().query().map(str::to_owned);
        drop(upgrade::on(&mut request));
        let response = Response::builder();
        let response = match query.as_deref() {
            Some("stream") => response,
            None => response.status(StatusCode::SWITCHING_PROTOCOLS).header("upgrade", "echo"),
            Some(_) => response.status(StatusCode::NO_CONTENT),
        };
        response.body(Body::empty()).unwrap()
    };
    let refused = |count| {
        until("the others are refused", || told.len() >= count);
        for _ in 0..count {
            let error = told.try_recv().unwrap();
            assert!(matches!(error, UpgradeError::Refused), "{error}");
        }
        assert!(told.is_empty());
    };
    let running = server().start(Router::new().route("/upgrade", any(several))).unwrap();
    let mut stream = raw(&running);
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    assert!(read_header(&mut stream).starts_with("HTTP/1.1 101"));
    refused(2);
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
    drop(stream);
    // If there is none, all are.
    let mut stream = raw(&running);
    stream.write_all(UPGRADE.replace("/upgrade", "/upgrade?no").as_bytes()).unwrap();
    assert!(read_header(&mut stream).starts_with("HTTP/1.1 204"));
    refused(3);
    // A stream of HTTP/2.
    let mut client = Client::new(&running);
    extended_connect(&mut client, 1, "/upgrade?stream");
    assert_eq!(client.wait_for(HEADERS).status(), "200");
    refused(2);
    client.send(DATA, 0, 1, b"hello");
    assert_eq!(client.wait_for(DATA).payload, b"hello");
}

/// Upgrades each request, and has `user` use the stream.
fn used_by<F: Future<Output = ()> + 'static>(
    user: impl Fn(Upgraded, Option<String>) -> F + Clone + Send + Sync + 'static,
) -> Router {
    let upgrade = async move |mut request: Request| {
        let query = request.uri().query().map(str::to_owned);
        let upgrading = upgrade::on(&mut request);
        wakeful::spawn(async move { user(upgrading.await.unwrap(), query).await }).detach();
        Response::new(Body::empty())
    };
    router().route("/upgrade", any(upgrade))
}

#[test]
fn what_a_tunnel_of_http2_leaves_is_reset_if_its_client_gives_it_no_room() {
    const INITIAL_WINDOW: u16 = 4;
    /// The connection's window.
    const FIRST: usize = 65_535;
    const SECOND: usize = 1000;
    let writes = async |mut stream: Upgraded, _| {
        stream.write_all(&[7; FIRST]).await.unwrap();
        stream.write_all(&[7; SECOND]).await.unwrap();
    };
    let limits = Limits::new().min_rate(MinRate::new(240, Duration::from_millis(200)));
    let running = server().limits(limits).start(used_by(writes)).unwrap();
    // The window of the stream is used up, or that of the connection.
    for (number, window) in [(1, 0), (2, 1 << 20)] {
        let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, window)]);
        extended_connect(&mut client, 1, "/upgrade");
        assert_eq!(client.wait_for(HEADERS).status(), "200");
        let reset = client.wait_for(RST_STREAM);
        assert_eq!((reset.stream, reset.error()), (1, CANCEL));
        assert_eq!(running.http_counts().refused(Refusal::SlowResponse), number);
    }
    // Who gives room gets all.
    let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, 1 << 20)]);
    client.send(WINDOW_UPDATE, 0, 0, &u32::try_from(SECOND).unwrap().to_be_bytes());
    extended_connect(&mut client, 1, "/upgrade");
    assert_eq!(client.wait_for(HEADERS).status(), "200");
    let mut got = 0;
    loop {
        let frame = client.wait_for(DATA);
        got += frame.payload.len();
        if frame.flags & END_STREAM != 0 {
            break;
        }
    }
    assert_eq!(got, FIRST + SECOND);
    assert_eq!(running.http_counts().refused(Refusal::SlowResponse), 2);
    drop(client);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn a_tunnel_of_http2_that_is_aborted_is_reset() {
    let aborts = async |mut stream: Upgraded, _| {
        stream.write_all(b"a part").await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
        stream.abort();
        assert!(stream.read(&mut [0]).await.is_err());
    };
    let running = server().start(used_by(aborts)).unwrap();
    let mut client = Client::new(&running);
    extended_connect(&mut client, 1, "/upgrade");
    assert_eq!(client.wait_for(HEADERS).status(), "200");
    assert_eq!(client.wait_for(DATA).payload, b"a part");
    client.send(DATA, 0, 1, b"!");
    loop {
        let frame = client.wait_for_any();
        assert_ne!(frame.kind, DATA, "{frame:?}");
        if frame.kind == RST_STREAM {
            assert_eq!((frame.stream, frame.error()), (1, CANCEL));
            break;
        }
    }
    // Its connection stays open.
    client.get(3, "/");
    assert_eq!(client.wait_for(HEADERS).status(), "200");
}

/// Reads by hyper's trait.
async fn read_as_hyper(stream: &mut Upgraded, buf: &mut [u8]) -> std::io::Result<usize> {
    let mut buf = hyper::rt::ReadBuf::new(buf);
    poll_fn(|cx| hyper::rt::Read::poll_read(Pin::new(&mut *stream), cx, buf.unfilled())).await?;
    Ok(buf.filled().len())
}

#[test]
fn a_stream_of_http2_that_its_client_cancels_does_not_end_cleanly() {
    let (tell, told) = async_channel::unbounded();
    let (open, opened) = async_channel::unbounded::<()>();
    let reads = move |mut stream: Upgraded, query: Option<String>| {
        let (tell, opened) = (tell.clone(), opened.clone());
        let (query, mut buf) = (query.unwrap(), [0; 10]);
        async move {
            let mut all = 0;
            tell.send(Ok(all)).await.unwrap();
            if query.contains("late") {
                opened.recv().await.unwrap();
            }
            let end = loop {
                let read = match query.contains("hyper") {
                    true => read_as_hyper(&mut stream, &mut buf).await,
                    false => stream.read(&mut buf).await,
                };
                match read {
                    Ok(0) => break Ok(all),
                    Ok(read) => all += read,
                    Err(error) => break Err(error),
                }
            };
            tell.send(end).await.unwrap();
        }
    };
    let running = server().start(used_by(reads)).unwrap();
    let mut client = Client::new(&running);
    let mut stream = 1;
    for query in ["soon", "late", "soon-hyper", "late-hyper"] {
        for reset in [None, Some(CANCEL), Some(NO_ERROR)] {
            extended_connect(&mut client, stream, &format!("/upgrade?{query}"));
            assert_eq!(client.wait_for(HEADERS).status(), "200");
            assert_eq!(told.recv_blocking().unwrap().unwrap(), 0);
            client.send(DATA, if reset.is_none() { END_STREAM } else { 0 }, stream, b"hello");
            if let Some(code) = reset {
                client.send(RST_STREAM, 0, stream, &code.to_be_bytes());
            }
            if query.contains("late") {
                // All has come.
                client.get(stream + 2, "/");
                assert_eq!(client.wait_for(HEADERS).stream, stream + 2);
                open.send_blocking(()).unwrap();
            }
            let end = told.recv_blocking().unwrap();
            assert_eq!(end.as_ref().ok(), reset.is_none().then_some(&5), "{query}: {end:?}");
            stream += 4;
        }
    }
}
