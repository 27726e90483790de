//! A backend that closes connections before it has seen a request, as a server does that is
//! restarted.

use std::io::{Read, copy};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::{fs, process};

use wakeful::accept::SharedListener;
use wakeful_services::http::{self, HttpOptions};
use wakeful_services::proxy::{self, ProxyOptions, RunningProxy};
use wakeful_services::tls::{Alpn, ClientTls, ServerTls};

use crate::common::*;
use crate::upgrades::ASK;

fn any_port() -> Vec<SharedListener> {
    vec![SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap()]
}

/// A server that speaks TLS, and what its clients need for that.
fn tls_service() -> (wakeful_http::Running, SocketAddr, ClientTls) {
    let directory = std::env::temp_dir().join(format!("wakeful-closed-early-{}", process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = |name: &str| -> PathBuf { directory.join(name) };
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(file("cert.pem"), made.cert.pem()).unwrap();
    fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let tls = ServerTls::from_files(file("cert.pem"), file("key.pem")).unwrap();
    let client = ClientTls::builder().ca(file("cert.pem")).protocols(&[Alpn::Http1]).build();
    let client = client.unwrap();
    fs::remove_dir_all(&directory).unwrap();
    let settings = options(1).tls(tls);
    let running = http::start(&settings, HttpOptions::default(), any_port(), Vec::new()).unwrap();
    let running = running.into_server();
    let addr = tcp(&running.local_addrs()[0]);
    (running, addr, client)
}

/// Closes the first connections in the middle of their TLS handshake, and carries the bytes of the
/// others to a server.
fn closes_first(connections: usize, to: SocketAddr) -> Backend {
    Backend::start(move |this, stream| {
        if this.connections() <= connections {
            let _ = stream.read(&mut [0; 4096]);
            return;
        }
        let mut there = TcpStream::connect(to).unwrap();
        let (mut from, mut back) = (stream.try_clone().unwrap(), there.try_clone().unwrap());
        thread::spawn(move || {
            let _ = copy(&mut back, &mut from);
            let _ = from.shutdown(Shutdown::Write);
        });
        let _ = copy(stream, &mut there);
        let _ = there.shutdown(Shutdown::Write);
    })
}

fn proxy_to(backend: &Backend, tls: &ClientTls, attempts: usize) -> RunningProxy {
    let target = format!("https://localhost:{}", backend.addr.port()).parse().unwrap();
    let settings = ProxyOptions::new([target]).upstream_tls(tls.clone()).attempts(attempts);
    proxy::start(&options(1), settings, any_port(), Vec::new()).unwrap()
}

#[test]
fn a_backend_that_closes_a_handshake_is_tried_once_more() {
    let (_service, to, tls) = tls_service();
    // The method does not matter: no server has seen the request.
    let post = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
    let backend = closes_first(1, to);
    let proxy = proxy_to(&backend, &tls, 3);
    let answer = ask(addr(&proxy), post);
    assert_status(&answer, 200);
    assert!(answer.ends_with("hi"), "{answer}");
    assert_eq!((backend.connections(), proxy.counts().retried()), (2, 1));

    // Once for each request, and only within its attempts.
    for (attempts, connections) in [(3, 2), (1, 1)] {
        for request in [post, ASK] {
            let backend = closes_first(usize::MAX, to);
            let proxy = proxy_to(&backend, &tls, attempts);
            assert_status(&ask(addr(&proxy), request), 502);
            assert_eq!(backend.connections(), connections, "{attempts}: {request}");
        }
    }
}
