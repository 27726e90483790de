//! A bound of open files: who waits for one to close, and who does not.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use futures_lite::future::{block_on, poll_once};
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use tempfile::TempDir;
use tower_service::Service;
use wakeful_http::files::{FileBody, ResponseFuture, ServeDir, ServeFile};
use wakeful_http::{Limits, MinRate, Refusal};

use crate::common::{self, GUARD, http1_client, http2_client, raw, read_all, request, server};

/// One request at a time: it may open three.
const FEWEST: usize = 3;
/// More than one chunk.
const LONG: usize = 100 * 1024;

fn tree() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("long"), vec![b'x'; LONG]).unwrap();
    fs::write(tree.path().join("short"), "short").unwrap();
    tree
}

fn bounded(tree: &TempDir) -> ServeDir {
    ServeDir::new(tree.path()).unwrap().max_open_files(FEWEST)
}

fn ask(files: &ServeDir, line: &str) -> ResponseFuture {
    let (method, path) = line.split_once(' ').unwrap();
    files.clone().call(Request::builder().method(method).uri(path).body(()).unwrap())
}

fn answer(asked: ResponseFuture) -> Response<FileBody> {
    block_on(asked).unwrap()
}

/// Polls it once, and returns whether it waits for a file to close.
fn waits(asked: &mut ResponseFuture) -> bool {
    let _ = block_on(poll_once(&mut *asked));
    format!("{asked:?}").contains("waiting")
}

#[test]
fn requests_beyond_the_bound_wait_for_bodies_to_end_in_the_order_of_their_arrival() {
    let tree = tree();
    let files = bounded(&tree);
    let held = answer(ask(&files, "GET /long"));
    let (mut first, mut second) = (ask(&files, "GET /long"), ask(&files, "GET /long"));
    assert!(waits(&mut first) && waits(&mut second));
    // Its clones share the bound.
    assert!(waits(&mut ask(&files.clone(), "GET /short")));
    thread::spawn(move || drop(held)).join().unwrap();
    assert!(waits(&mut second), "the first one came before");
    let held = answer(first);
    assert!(waits(&mut second));
    let all = block_on(held.into_body().collect()).unwrap().to_bytes();
    assert_eq!(all.len(), LONG);
    let held = answer(second);
    // As in a panic of whoever sends it.
    let panicked = thread::spawn(move || {
        let _held = held;
        std::panic::resume_unwind(Box::new("what holds the body"));
    });
    assert!(panicked.join().is_err());
    assert_eq!(answer(ask(&files, "GET /long")).status(), StatusCode::OK);
}

#[test]
fn a_wait_that_is_given_up_holds_up_nobody_whether_it_was_over_or_not() {
    let tree = tree();
    let files = bounded(&tree);
    let held = answer(ask(&files, "GET /long"));
    let [mut first, mut second, mut third] = [(); 3].map(|()| ask(&files, "GET /long"));
    assert!([&mut first, &mut second, &mut third].into_iter().all(waits));
    drop(first);
    drop(held);
    // The second one has got the place, and does not know it.
    drop(second);
    assert_eq!(answer(third).status(), StatusCode::OK);
}

#[test]
fn a_file_counts_only_as_long_as_it_is_open() {
    let tree = tree();
    let files = bounded(&tree).not_found_service(ServeFile::new(tree.path().join("long")).unwrap());
    let held = answer(ask(&files, "GET /none"));
    assert_eq!(held.status(), StatusCode::NOT_FOUND);
    assert!(waits(&mut ask(&files, "GET /short")), "the other file is open, too");
    drop(held);
    let requests = ["GET /short", "HEAD /long", "HEAD /none", "POST /long"];
    // Their bodies, which have all bytes that they need, are kept.
    let answers: Vec<_> = requests.iter().map(|line| answer(ask(&files, line))).collect();
    let mut long = answer(ask(&files, "GET /long"));
    File::options().write(true).open(tree.path().join("long")).unwrap().set_len(10).unwrap();
    block_on(async { while let Some(Ok(_)) = long.body_mut().frame().await {} });
    // This body has failed, and is kept as well.
    assert_eq!(answer(ask(&files, "GET /short")).status(), StatusCode::OK);
    drop((answers, long));
}

#[test]
fn a_wait_has_an_end_where_a_loop_runs() {
    let tree = tree();
    let files = bounded(&tree);
    let _held = answer(ask(&files, "GET /long"));
    let late = wakeful::block_on(async {
        wakeful::time::pause();
        ask(&files, "GET /long").await.unwrap()
    });
    assert_eq!(late.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(late.headers()[header::RETRY_AFTER], "1");
}

#[test]
fn a_bound_that_grows_lets_in_who_waits() {
    let tree = tree();
    let most = Arc::new(AtomicUsize::new(FEWEST));
    let asked = most.clone();
    let files = ServeDir::new(tree.path()).unwrap();
    let files = files.max_open_files_by(move || asked.load(Ordering::Relaxed));
    let _held = answer(ask(&files, "GET /long"));
    let mut waiting = ask(&files, "GET /long");
    assert!(waits(&mut waiting));
    most.store(3 * FEWEST, Ordering::Relaxed);
    common::until("the number is asked for again", || !waits(&mut ask(&files, "HEAD /short")));
    assert_eq!(answer(waiting).status(), StatusCode::OK);
    // A number that falls closes nothing.
    most.store(0, Ordering::Relaxed);
    assert_eq!(answer(ask(&files, "HEAD /short")).status(), StatusCode::OK);
}

/// What the server does about a client that reads nothing ends the wait of others.
#[test]
fn a_client_that_reads_nothing_locks_others_out_only_until_it_is_too_slow() {
    let tree = tree();
    File::create(tree.path().join("endless")).unwrap().set_len(1 << 30).unwrap();
    let limits = Limits::new().min_rate(MinRate::new(1000, Duration::from_millis(100)));
    let running = server().limits(limits).start(bounded(&tree)).unwrap();
    let mut silent = raw(&running);
    silent.write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    // Its file is open.
    silent.read_exact(&mut [0; 12]).unwrap();
    let mut other = raw(&running);
    other.write_all(b"GET /short HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let answer = read_all(other);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("short"), "{answer}");
    assert_eq!(running.http_counts().refused(Refusal::SlowResponse), 1);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

/// Asks for `path` with `requests` requests at once. Returns what holds their responses, which
/// nobody reads.
async fn asks_without_reading(addr: SocketAddr, path: &str, requests: usize) -> impl Sized + use<> {
    let mut sender = http2_client(addr).await;
    let asked: Vec<_> = (0..requests)
        .map(|_| wakeful::spawn(sender.send_request(request("GET", path, ""))))
        .collect();
    // Requests are handled in their order, and this one opens no file.
    let last = sender.send_request(request("POST", path, "")).await.unwrap();
    assert_eq!(last.status(), StatusCode::METHOD_NOT_ALLOWED);
    (sender, asked)
}

#[test]
fn clients_with_many_requests_that_read_nothing_do_not_lock_others_out() {
    const MOST: usize = 20;
    let tree = tree();
    File::create(tree.path().join("endless")).unwrap().set_len(1 << 30).unwrap();
    let files = ServeDir::new(tree.path()).unwrap().max_open_files(MOST);
    let running = server().limits(Limits::new().min_rate(None)).start(files).unwrap();
    let addr = common::addr(&running);
    wakeful::block_on(async {
        let _one = asks_without_reading(addr, "/endless", MOST).await;
        let _two = asks_without_reading(addr, "/endless", MOST).await;
        let mut of_http2 = http2_client(addr).await;
        for _ in 0..3 {
            let response = of_http2.send_request(request("GET", "/short", "")).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, "short");
        }
        let mut of_http1 = http1_client(addr).await;
        let response = of_http1.send_request(request("GET", "/short", "")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    });
    running.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn without_a_bound_nobody_waits() {
    let tree = tree();
    let files = bounded(&tree).max_open_files(None);
    let mut asked: Vec<_> = (0..20).map(|_| ask(&files, "GET /long")).collect();
    assert!(!asked.iter_mut().any(waits));
}
