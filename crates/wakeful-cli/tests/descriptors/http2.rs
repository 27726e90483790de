//! Clients of HTTP/2, which have many requests in flight on one connection.

use std::io::Read;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::{Request, StatusCode};
use wakeful::io::LoopExecutor;
use wakeful::net::TcpStream;
use wakeful::time::sleep;

use super::{CLOSE, SIZE, Server, ask};

type SendRequest = http2::SendRequest<Empty<&'static [u8]>>;

/// As many as a connection may have in flight.
const REQUESTS: usize = 200;

async fn client(addr: &str) -> SendRequest {
    let stream = TcpStream::connect(addr).await.unwrap();
    let mut builder = http2::Builder::new(LoopExecutor);
    builder.initial_stream_window_size(16 * 1024).initial_connection_window_size(1 << 20);
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    wakeful::spawn(connection).detach();
    sender
}

/// Asks for `path` with all requests at once, and reads the answers slowly, side by side. Returns
/// what is wrong with them.
fn asks_with_all(addr: &str, path: &'static str, size: usize) -> Vec<String> {
    wakeful::block_on(async {
        let sender = client(addr).await;
        let uri: Rc<str> = format!("http://x{path}").into();
        let asked: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let (mut sender, uri) = (sender.clone(), uri.clone());
                wakeful::spawn(async move {
                    let request = Request::get(&*uri).body(Empty::<&[u8]>::new()).unwrap();
                    let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
                    let (head, mut body) = response.into_parts();
                    let mut length = 0;
                    while let Some(frame) = body.frame().await {
                        let frame = frame.map_err(|error| format!("at {length}: {error}"))?;
                        length += frame.data_ref().map_or(0, Bytes::len);
                        sleep(Duration::from_millis(1)).await;
                    }
                    let is_whole = head.status == StatusCode::OK && length == size;
                    if is_whole { Ok(()) } else { Err(format!("{}, {length}", head.status)) }
                })
            })
            .collect();
        let mut wrong = Vec::new();
        for one in asked {
            wrong.extend(one.await.unwrap().err());
        }
        wrong
    })
}

/// One client asks with all its requests, and others come meanwhile.
fn nobody_is_refused(server: &Server, path: &'static str, size: usize) {
    let is_over = AtomicBool::new(false);
    let served = thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut served = 0;
            while !is_over.load(Ordering::Relaxed) {
                for path in ["/healthz", path] {
                    let mut stream = server.connect();
                    ask(&mut stream, path, CLOSE);
                    let mut answer = Vec::new();
                    let read = stream.read_to_end(&mut answer);
                    let head = String::from_utf8_lossy(&answer[..answer.len().min(200)]);
                    assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {read:?} {head}");
                    served += 1;
                }
            }
            served
        });
        let clients = [(); 3].map(|()| scope.spawn(|| asks_with_all(&server.addr, path, size)));
        let wrong = clients.map(|client| client.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        assert!(wrong.iter().all(Vec::is_empty), "{wrong:?}");
        others.join().unwrap()
    });
    assert!(served > 1, "others were served meanwhile");
}

#[test]
fn files_of_many_requests_are_whole_and_others_are_served_meanwhile() {
    const LARGE: usize = 10 * SIZE;
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("file"), vec![b'x'; LARGE]).unwrap();
    let root = root.path().to_str().unwrap();
    for options in [&[][..], &["--admin", "127.0.0.1:0"], &["--max-connections", "10"]] {
        let arguments = [&["http", "--root", root], options].concat();
        let server = Server::start("ulimit -n 64;", &arguments);
        nobody_is_refused(&server, "/file", LARGE);
        server.terminate();
        let said = server.said();
        assert!(!said.contains("descriptors") && !said.contains("cannot"), "{options:?}: {said}");
    }
}

#[test]
fn many_requests_get_their_backend_and_others_are_served_meanwhile() {
    let backend = Server::start("", &["http"]);
    let arguments = ["proxy", "--to", &backend.addr];
    let proxy = Server::start("ulimit -n 64;", &arguments);
    // More than is read ahead for a client.
    nobody_is_refused(&proxy, "/bytes/400000", 400_000);
    proxy.terminate();
    let said = proxy.said();
    assert!(!said.contains("descriptors") && !said.contains("cannot"), "{said}");
}

/// A client that reads nothing has all connections to the backend that there may be.
#[test]
fn a_request_that_waits_too_long_for_a_descriptor_is_told_to_come_again() {
    let backend = Server::start("", &["http"]);
    let arguments = ["proxy", "--to", &backend.addr, "--upstream-timeout", "1"];
    let proxy = Server::start("ulimit -n 64;", &arguments);
    let statuses = wakeful::block_on(async {
        let sender = client(&proxy.addr).await;
        let asked: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let mut sender = sender.clone();
                let request = Request::get("http://x/bytes/1000000000");
                let request = request.body(Empty::new()).unwrap();
                wakeful::spawn(async move { sender.send_request(request).await.unwrap() })
            })
            .collect();
        let mut answers = Vec::new();
        for one in asked {
            answers.push(one.await.unwrap());
        }
        for refused in answers.iter().filter(|answer| !answer.status().is_success()) {
            assert_eq!(refused.headers()["retry-after"], "1");
        }
        answers.iter().map(|answer| answer.status().as_u16()).collect::<Vec<_>>()
    });
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert!((10..64).contains(&served), "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    // That client has left.
    proxy.serves_all(1, &format!("/bytes/{SIZE}"));
    proxy.terminate();
    let said = proxy.said();
    assert!(said.contains("out of descriptors for connections to backends"), "{said}");
    assert!(!said.contains("accept failed"), "{said}");
}
