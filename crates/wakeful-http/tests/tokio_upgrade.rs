//! hyper's own upgrades, where there is Tokio: for handlers that were written for them.

mod common;

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use common::{GUARD, Gate, addr, http2_client, raw, read_all, request, router, server, until};
use http::{Response, StatusCode, header};
use hyper::rt::{Read as _, ReadBuf, Write as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use tokio::runtime::{Builder, Runtime};
use wakeful::LoopGroup;
use wakeful_http::{Running, Server};

const UPGRADE: &str =
    "GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";

async fn read(io: &mut Upgraded, buf: &mut [u8]) -> std::io::Result<usize> {
    poll_fn(|cx| {
        let mut buf = ReadBuf::new(buf);
        ready!(Pin::new(&mut *io).poll_read(cx, buf.unfilled()))?;
        Poll::Ready(Ok(buf.filled().len()))
    })
    .await
}

async fn write_all(io: &mut Upgraded, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let written = poll_fn(|cx| Pin::new(&mut *io).poll_write(cx, bytes)).await?;
        bytes = &bytes[written..];
    }
    poll_fn(|cx| Pin::new(&mut *io).poll_flush(cx)).await
}

async fn echo(mut io: Upgraded) -> std::io::Result<()> {
    let mut buf = [0; 1024];
    loop {
        match read(&mut io, &mut buf).await? {
            0 => return poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)).await,
            count => write_all(&mut io, &buf[..count]).await?,
        }
    }
}

fn switching() -> Response<Body> {
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let response = response.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "echo");
    response.body(Body::empty()).unwrap()
}

/// As the example of hyper's documentation: the request goes into the task.
async fn in_the_task(mut request: Request) -> Response<Body> {
    tokio::spawn(async move { echo(hyper::upgrade::on(&mut request).await.unwrap()).await });
    switching()
}

/// As axum's `WebSocketUpgrade`: hyper's extension goes into the task, and nothing else.
async fn of_the_extension(mut request: Request) -> Response<Body> {
    let Some(upgrading) = request.extensions_mut().remove::<OnUpgrade>() else {
        let response = Response::builder().status(StatusCode::UPGRADE_REQUIRED);
        return response.body(Body::empty()).unwrap();
    };
    tokio::spawn(async move {
        let mut io = upgrading.await.unwrap();
        // It speaks first.
        write_all(&mut io, b"hello ").await?;
        echo(io).await
    });
    switching()
}

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

/// A connection that was upgraded after an ordinary request. `early` comes with the request.
fn upgraded(running: &Running, path: &str, early: &str) -> TcpStream {
    let mut stream = raw(running);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!(read_header(&mut stream).starts_with("HTTP/1.1 200"));
    stream.read_exact(&mut [0; 5]).unwrap();
    let request = UPGRADE.replace("/upgrade", path) + early;
    stream.write_all(request.as_bytes()).unwrap();
    let header = read_header(&mut stream);
    assert!(header.starts_with("HTTP/1.1 101") && header.contains("upgrade: echo"), "{header}");
    stream
}

fn expect(stream: &mut TcpStream, bytes: &[u8]) {
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == bytes);
}

fn side_runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn app() -> Router {
    router().route("/task", any(in_the_task)).route("/extension", any(of_the_extension))
}

fn handlers_upgrade_by_hyper(server: Server) {
    let running = server.start(app()).unwrap();
    for (path, greeting) in [("/task", ""), ("/extension", "hello ")] {
        let mut stream = upgraded(&running, path, "too early");
        expect(&mut stream, format!("{greeting}too early").as_bytes());
        for size in [1, 1000, 300_000] {
            let bytes = vec![b'x'; size];
            let mut writer = stream.try_clone().unwrap();
            let written = thread::spawn({
                let bytes = bytes.clone();
                move || writer.write_all(&bytes).unwrap()
            });
            expect(&mut stream, &bytes);
            written.join().unwrap();
        }
        // It counts as open until it is dropped.
        assert_eq!(running.counts().open(), 1);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(stream), "");
        until("the connection is closed", || running.counts().open() == 0);
    }
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn handlers_that_upgrade_by_hyper_work_where_tokio_is_a_guest() {
    handlers_upgrade_by_hyper(server().tokio());
}

/// What they spawn runs on its threads.
#[test]
fn handlers_that_upgrade_by_hyper_work_beside_a_runtime_with_threads() {
    let runtime = side_runtime();
    handlers_upgrade_by_hyper(server().tokio_handle(runtime.handle().clone()));
}

#[test]
fn an_upgrade_by_hyper_that_is_not_wanted_is_told_so_and_one_that_nobody_has_is_no_101() {
    let (tell, told) = mpsc::channel();
    let decline = async move |request: Request| {
        let (tell, upgrading) = (tell.clone(), hyper::upgrade::on(request));
        tokio::spawn(async move { tell.send(upgrading.await.unwrap_err()) });
        "no"
    };
    let drop_it = async |mut request: Request| {
        drop(request.extensions_mut().remove::<OnUpgrade>().unwrap());
        switching()
    };
    let app = app().route("/decline", any(decline)).route("/drop", any(drop_it));
    let running = server().tokio().start(app).unwrap();
    let mut stream = raw(&running);
    stream.write_all(UPGRADE.replace("/upgrade", "/decline").as_bytes()).unwrap();
    assert!(read_header(&mut stream).starts_with("HTTP/1.1 200"));
    stream.read_exact(&mut [0; 2]).unwrap();
    assert!(told.recv_timeout(GUARD).unwrap().is_canceled());
    // The connection continues.
    stream.write_all(UPGRADE.replace("/upgrade", "/drop").as_bytes()).unwrap();
    assert!(read_header(&mut stream).starts_with("HTTP/1.1 500"));
    stream.write_all(UPGRADE.replace("/upgrade", "/task").as_bytes()).unwrap();
    assert!(read_header(&mut stream).starts_with("HTTP/1.1 101"));
}

#[test]
fn a_connection_upgraded_by_hyper_does_not_hold_up_a_drain() {
    let running = server().tokio().start(app()).unwrap();
    let mut stream = upgraded(&running, "/extension", "x");
    expect(&mut stream, b"hello x");
    // Nothing was aborted.
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    assert_eq!(read_all(stream), "");
}

/// A handler that only sends may have nothing to send for a long time. The drain must not wait for
/// its first use of the stream.
#[test]
fn a_connection_upgraded_by_hyper_that_was_not_used_yet_does_not_hold_up_a_drain() {
    let runtime = side_runtime();
    let (tell, told) = mpsc::channel();
    let keeps = async move |request: Request| {
        let (tell, upgrading) = (tell.clone(), hyper::upgrade::on(request));
        tokio::spawn(async move {
            let _io = upgrading.await.unwrap();
            tell.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        switching()
    };
    for is_beside in [false, true] {
        let server = match is_beside {
            false => server().tokio(),
            true => server().tokio_handle(runtime.handle().clone()),
        };
        let running = server.start(router().route("/keeps", any(keeps.clone()))).unwrap();
        let stream = upgraded(&running, "/keeps", "");
        told.recv_timeout(GUARD).unwrap();
        // Nothing was aborted.
        assert_eq!(running.shutdown(GUARD).unwrap(), 0, "{is_beside}");
        assert_eq!(read_all(stream), "");
    }
}

/// A request in flight holds up the drain meanwhile.
#[test]
fn a_connection_upgraded_by_hyper_may_be_used_for_the_first_time_in_a_drain() {
    let (begin, begun) = async_channel::bounded::<()>(1);
    let late = async move |request: Request| {
        let (begun, upgrading) = (begun.clone(), hyper::upgrade::on(request));
        tokio::spawn(async move {
            let io = upgrading.await.unwrap();
            let _ = begun.recv().await;
            echo(io).await
        });
        switching()
    };
    let (gate, app) = Gate::on(router().route("/late", any(late)));
    let group = LoopGroup::builder().loops(1);
    let running = server().group(group).tokio().start(app).unwrap();
    let mut stream = upgraded(&running, "/late", "");
    let mut gated = raw(&running);
    gated.write_all(b"GET /gated HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    gate.wait_for_one();
    let counts = running.counts();
    let drain = thread::spawn(move || running.shutdown(GUARD).unwrap());
    until("the drain has left the stream to its user", || counts.open() == 1);
    begin.close();
    stream.write_all(b"ping").unwrap();
    expect(&mut stream, b"ping");
    gate.open();
    // Nothing was aborted.
    assert_eq!(drain.join().unwrap(), 0);
    assert!(read_all(gated).ends_with("released"));
    assert_eq!(read_all(stream), "");
}

#[test]
fn over_http2_handlers_upgrade_by_hyper_as_well() {
    let connect = async |mut request: Request| {
        tokio::spawn(async move { echo(hyper::upgrade::on(&mut request).await.unwrap()).await });
        Response::new(Body::empty())
    };
    let running = server().tokio().start(app().route("/connect", any(connect))).unwrap();
    wakeful::block_on(async {
        let mut sender = http2_client(addr(&running)).await;
        // The server's SETTINGS have to come first: they allow it.
        sender.send_request(request("GET", "/", "")).await.unwrap();
        let mut request = request("CONNECT", "/connect", "");
        request.extensions_mut().insert(hyper::ext::Protocol::from_static("echo"));
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut io = hyper::upgrade::on(response).await.unwrap();
        let mut answer = [0; 1000];
        for n in 0..100 {
            write_all(&mut io, &[n; 1000]).await.unwrap();
            let mut count = 0;
            while count < answer.len() {
                count += read(&mut io, &mut answer[count..]).await.unwrap();
            }
            assert_eq!(answer, [n; 1000]);
        }
    });
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn an_upgrade_by_hyper_may_be_used_on_another_thread_than_its_loops() {
    let elsewhere = async |request: Request| {
        let upgrading = hyper::upgrade::on(request);
        tokio::task::spawn_blocking(move || {
            futures_lite::future::block_on(async {
                let mut io = upgrading.await.unwrap();
                write_all(&mut io, &[b'x'; 300_000]).await.unwrap();
                // What it has written is sent all the same.
                drop(io);
            });
        });
        switching()
    };
    let running = server().tokio().start(router().route("/elsewhere", any(elsewhere))).unwrap();
    let mut stream = upgraded(&running, "/elsewhere", "");
    expect(&mut stream, &[b'x'; 300_000]);
    assert_eq!(read_all(stream), "");
    until("the connection is closed", || running.counts().open() == 0);
}

#[test]
fn an_upgrade_by_hyper_that_was_used_on_its_loop_goes_on_on_another_thread() {
    let moves = async |request: Request| {
        let upgrading = hyper::upgrade::on(request);
        tokio::spawn(async move {
            let mut io = upgrading.await.unwrap();
            let mut byte = [0];
            assert_eq!(read(&mut io, &mut byte).await.unwrap(), 1);
            write_all(&mut io, &byte).await.unwrap();
            tokio::task::spawn_blocking(move || {
                futures_lite::future::block_on(async {
                    assert_eq!(read(&mut io, &mut byte).await.unwrap(), 1);
                    write_all(&mut io, &[byte[0]; 300_000]).await.unwrap();
                    poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)).await.unwrap();
                });
            });
        });
        switching()
    };
    let running = server().tokio().start(router().route("/moves", any(moves))).unwrap();
    let mut stream = upgraded(&running, "/moves", "ab");
    expect(&mut stream, b"a");
    expect(&mut stream, &[b'b'; 300_000]);
    assert_eq!(read_all(stream), "");
    until("the connection is closed", || running.counts().open() == 0);
}

/// The user of such a connection cannot close it any more.
#[test]
fn a_connection_that_was_used_on_its_loop_and_then_moved_away_ends_with_the_server() {
    let (tell, told) = mpsc::channel();
    let moves = async move |request: Request| {
        let (tell, upgrading) = (tell.clone(), hyper::upgrade::on(request));
        tokio::spawn(async move {
            let mut io = upgrading.await.unwrap();
            assert_eq!(read(&mut io, &mut [0]).await.unwrap(), 1);
            tell.send(io).unwrap();
        });
        switching()
    };
    for drops_it_before in [true, false] {
        let app = router().route("/moves", any(moves.clone()));
        let running = server().tokio().start(app).unwrap();
        let stream = upgraded(&running, "/moves", "x");
        let io = told.recv_timeout(GUARD).unwrap();
        assert_eq!(running.shutdown(GUARD).unwrap(), 0);
        let io = (!drops_it_before).then_some(io);
        assert_eq!(read_all(stream), "");
        drop(io);
    }
}

/// The other thread may drop it before the connection's loop has even answered.
#[test]
fn an_upgrade_by_hyper_that_is_dropped_on_another_thread_at_once_is_a_101_all_the_same() {
    let dropped = async |request: Request| {
        let mut upgrading = hyper::upgrade::on(request);
        let (begin, begun) = async_channel::bounded::<()>(1);
        thread::spawn(move || {
            let mut cx = Context::from_waker(Waker::noop());
            begin.close();
            while Pin::new(&mut upgrading).poll(&mut cx).is_pending() {}
        });
        let _ = begun.recv().await;
        switching()
    };
    let running = server().tokio().start(router().route("/dropped", any(dropped))).unwrap();
    for _ in 0..200 {
        assert_eq!(read_all(upgraded(&running, "/dropped", "")), "");
    }
    until("the connections are closed", || running.counts().open() == 0);
}

/// An executor that polls its future within each wake.
struct Inline {
    future: Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>,
    is_woken: AtomicBool,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let waker = self.clone().into();
        while let Ok(mut future) = self.future.try_lock() {
            if !self.is_woken.swap(false, Ordering::SeqCst) {
                break;
            }
            let _ = future.as_mut().poll(&mut Context::from_waker(&waker));
        }
    }
}

#[test]
fn who_polls_within_a_wake_may_use_an_upgrade_beside_its_loop() {
    let elsewhere = async |request: Request| {
        let upgrading = hyper::upgrade::on(request);
        thread::spawn(move || {
            let mut io = futures_lite::future::block_on(upgrading).unwrap();
            futures_lite::future::block_on(write_all(&mut io, b"hello ")).unwrap();
            let future: Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(async { echo(io).await.unwrap_or(()) });
            let is_woken = AtomicBool::new(false);
            Arc::new(Inline { future: Mutex::new(future), is_woken }).wake();
        });
        switching()
    };
    let running = server().tokio().start(router().route("/elsewhere", any(elsewhere))).unwrap();
    let mut stream = upgraded(&running, "/elsewhere", "");
    expect(&mut stream, b"hello ");
    for _ in 0..100 {
        stream.write_all(b"ping").unwrap();
        expect(&mut stream, b"ping");
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(stream), "");
    until("the connection is closed", || running.counts().open() == 0);
}

/// The user keeps what it has.
#[test]
fn a_connection_that_is_used_beside_the_loops_ends_with_its_client_and_with_the_server() {
    let runtime = side_runtime();
    let (tell, told) = mpsc::channel();
    let keep = async move |request: Request| {
        let (tell, upgrading) = (tell.clone(), hyper::upgrade::on(request));
        tokio::spawn(async move {
            let mut io = upgrading.await.unwrap();
            let read = read(&mut io, &mut [0; 16]).await;
            tell.send((read.unwrap_or(0), io)).unwrap();
        });
        switching()
    };
    let server = server().tokio_handle(runtime.handle().clone());
    let running = server.start(app().route("/keep", any(keep))).unwrap();
    drop(upgraded(&running, "/keep", ""));
    assert_eq!(told.recv_timeout(GUARD).unwrap().0, 0, "the client has gone");
    until("the connection is closed", || running.counts().open() == 0);
    let stream = upgraded(&running, "/keep", "x");
    let (read_before, mut io) = told.recv_timeout(GUARD).unwrap();
    assert_eq!(read_before, 1);
    // It does not hold up the drain.
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    assert_eq!(read_all(stream), "");
    let gone = futures_lite::future::block_on(async {
        (read(&mut io, &mut [0; 16]).await.unwrap_or(0), write_all(&mut io, b"x").await.is_err())
    });
    assert_eq!(gone, (0, true));
}

/// On its loop and beside it.
#[test]
fn a_connection_upgraded_by_hyper_that_breaks_off_does_not_end_like_a_whole_one() {
    let runtime = side_runtime();
    for is_beside in [false, true] {
        let (tell, told) = mpsc::channel();
        let reads = async move |request: Request| {
            let (tell, upgrading) = (tell.clone(), hyper::upgrade::on(request));
            tokio::spawn(async move {
                let mut io = upgrading.await.unwrap();
                loop {
                    let read = read(&mut io, &mut [0; 16]).await;
                    let has_ended = !matches!(read, Ok(1..));
                    tell.send(read.map_err(|error| error.kind())).unwrap();
                    if has_ended {
                        return;
                    }
                }
            });
            switching()
        };
        let server = match is_beside {
            false => server().tokio(),
            true => server().tokio_handle(runtime.handle().clone()),
        };
        let running = server.start(app().route("/reads", any(reads))).unwrap();
        let next = || told.recv_timeout(GUARD).unwrap();
        for resets in [false, true] {
            let stream = upgraded(&running, "/reads", "x");
            assert_eq!(next(), Ok(1));
            if resets {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
            drop(stream);
            let end = if resets { Err(ErrorKind::ConnectionReset) } else { Ok(0) };
            assert_eq!(next(), end);
        }
        let stream = upgraded(&running, "/reads", "x");
        assert_eq!(next(), Ok(1));
        assert_eq!(running.shutdown(GUARD).unwrap(), 0);
        // A guest's task may end with its loop.
        if is_beside {
            assert_eq!(next(), Err(ErrorKind::ConnectionAborted));
        }
        drop(stream);
    }
}
