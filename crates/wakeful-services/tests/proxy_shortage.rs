//! A proxy that has no descriptors left: that is its own trouble and no backend's. In a program of
//! its own, because the limit is the process's.

#[path = "proxy/common.rs"]
mod common;

use std::io::{Read, Write};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use common::*;

const ASK: &str = "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

#[test]
fn a_shortage_of_descriptors_has_no_backend_ejected() {
    let backends = [Backend::mirror(), Backend::mirror()];
    let proxy = proxy(&backends.clone().map(|backend| backend.addr), |settings| settings);
    let mut streams = [(); 6].map(|()| connect(addr(&proxy)));
    for stream in &mut streams {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        // It was accepted.
        stream.read_exact(&mut [0; 15]).unwrap();
    }
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
    let answers = streams.map(|mut stream| {
        stream.write_all(ASK.as_bytes()).unwrap();
        read_all(&mut stream)
    });
    setrlimit(Resource::Nofile, limit).unwrap();
    for answer in answers {
        assert!(answer.contains("HTTP/1.1 503 "), "{answer}");
    }
    for backend in 0..2 {
        let counts = proxy.counts();
        assert_eq!(
            (counts.backends()[backend].failures(), counts.backends()[backend].ejections()),
            (0, 0)
        );
    }
    assert!(proxy.counts().overloads() >= 6);
}
