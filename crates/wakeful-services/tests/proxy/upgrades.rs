//! Clients and backends that agree to leave HTTP, and those that only one of them would.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use rustix::net::{RecvFlags, recv};
use wakeful_services::DrainPlan;
use wakeful_services::proxy::headers::Upgrades;

use crate::common::*;

/// RFC 6455's own example.
pub(crate) const ASK: &str = "GET /chat?room=1 HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n";
pub(crate) const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                      sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// The head of an answer, byte by byte, and nothing after it.
pub(crate) fn head(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        let read = stream.read(&mut byte).unwrap();
        assert_eq!(read, 1, "{}", String::from_utf8_lossy(&text));
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

pub(crate) fn exactly(stream: &mut TcpStream, text: &str) {
    let mut got = vec![0; text.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), text);
}

/// Agrees, and says everything back until the other side ends.
pub(crate) fn echo() -> Backend {
    Backend::start(|this, stream| {
        if this.read(stream).is_none() {
            return;
        }
        stream.write_all(SWITCH.as_bytes()).unwrap();
        let mut buf = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buf) {
            if stream.write_all(&buf[..read]).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_websocket_goes_through_with_a_head_of_the_proxys_own() {
    let backend = echo();
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream.write_all(ASK.as_bytes()).unwrap();
    let answer = head(&mut stream).to_lowercase();
    assert_status(&answer.to_uppercase(), 101);
    for line in ["connection: upgrade", "upgrade: websocket", "via: 1.1 wakeful"] {
        assert_eq!(answer.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line}: {answer}");
    }
    assert!(answer.contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"));
    for word in ["hello", "again"] {
        stream.write_all(word.as_bytes()).unwrap();
        exactly(&mut stream, word);
    }
    let seen = backend.requests()[0].to_lowercase();
    assert!(seen.starts_with("get /chat?room=1 http/1.1\r\n"), "{seen}");
    for line in
        ["connection: upgrade", "upgrade: websocket", "host: x", "sec-websocket-version: 13"]
    {
        assert_eq!(seen.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line}: {seen}");
    }
    assert!(!seen.contains("keep-alive"), "{seen}");
    assert_eq!((proxy.counts().tunnels(), proxy.counts().backends()[0].in_flight()), (1, 1));
    drop(stream);
    until("it is over", || {
        proxy.counts().tunnels() == 0 && proxy.counts().backends()[0].in_flight() == 0
    });
    until("the backend knows", || backend.is_alone());
    assert_eq!(proxy.counts().backends()[0].failures(), 0);
}

#[test]
fn each_side_of_a_tunnel_ends_by_itself() {
    let backend = Backend::start(|this, stream| {
        this.read(stream);
        stream.write_all(SWITCH.as_bytes()).unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        stream.write_all(format!("behind your end: {all}").as_bytes()).unwrap();
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream.write_all(ASK.as_bytes()).unwrap();
    head(&mut stream);
    stream.write_all(b"a last word").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), "behind your end: a last word");
    until("it is over", || proxy.counts().tunnels() == 0);
}

#[test]
fn much_goes_both_ways_at_once_and_little_of_it_waits() {
    let backend = echo();
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream.write_all(ASK.as_bytes()).unwrap();
    head(&mut stream);
    let text: Vec<u8> = (0..8 << 20).map(|at: u32| u8::try_from(at % 251).unwrap()).collect();
    let mut writer = stream.try_clone().unwrap();
    let sent = text.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    assert!(got == text, "{} of {}", got.len(), text.len());
}

#[test]
fn what_one_side_says_comes_through_while_the_other_floods() {
    const BEFORE: usize = 32 << 20;
    /// What the kernel may have of it on the way, and as much again.
    const MOST: usize = BEFORE + (48 << 20);
    let backend = Backend::start(|this, stream| {
        this.read(stream);
        stream.write_all(SWITCH.as_bytes()).unwrap();
        let (mut buf, mut all) = (vec![0; 1 << 20], 0);
        while let Ok(read @ 1..) = stream.read(&mut buf) {
            if all < BEFORE && all + read >= BEFORE {
                stream.write_all(b"a word").unwrap();
            }
            all += read;
        }
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    for _ in 0..4 {
        let mut stream = connect(addr(&proxy));
        stream.write_all(ASK.as_bytes()).unwrap();
        head(&mut stream);
        let (piece, mut sent) = (vec![b'x'; 64 << 10], 0);
        while recv(&stream, &mut [0; 6], RecvFlags::DONTWAIT | RecvFlags::PEEK).is_err() {
            stream.write_all(&piece).unwrap();
            sent += piece.len();
            assert!(sent < MOST, "it waits for the flood's end");
        }
        exactly(&mut stream, "a word");
    }
}

/// What a client sends before it is answered is the other protocol's, or nobody's, but no request.
#[test]
fn bytes_behind_the_request_are_never_taken_for_another_one() {
    let early = "GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    let backend = echo();
    let first = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&first));
    stream.write_all(format!("{ASK}{early}").as_bytes()).unwrap();
    head(&mut stream);
    exactly(&mut stream, early);
    assert_eq!(backend.requests().len(), 1);
    for (refusal, connection) in [
        (
            "HTTP/1.1 426 Upgrade Required\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\ncontent-length: 2\r\n\r\nno",
            "upgrade, close",
        ),
        (
            "HTTP/1.1 200 OK\r\nconnection: upgrade\r\nupgrade: websocket\r\ncontent-length: 2\r\n\r\nno",
            "close",
        ),
    ] {
        let backend = Backend::saying(refusal);
        let proxy = proxy(&[backend.addr], |settings| settings);
        let answer = ask(addr(&proxy), &format!("{ASK}{early}"));
        let line = format!("\r\nconnection: {connection}\r\n");
        assert!(answer.to_lowercase().contains(&line), "{answer}");
        assert!(answer.ends_with("\r\n\r\nno") && !answer.contains("101"), "{answer}");
        until("the backend is alone", || backend.is_alone());
        assert_eq!(backend.requests().len(), 1, "{:?}", backend.requests());
        assert_eq!(proxy.counts().tunnels(), 0);
    }
}

#[test]
fn a_backend_that_changes_to_something_else_opens_nothing() {
    for (answer, asked) in [
        ("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", ASK),
        ("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\r\n", ASK),
        ("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n", ASK),
        (
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket, h2c\r\n\r\n",
            ASK,
        ),
        (SWITCH, "GET / HTTP/1.1\r\nhost: x\r\n\r\n"),
    ] {
        let backend = Backend::saying(answer);
        let proxy = proxy(&[backend.addr], |settings| settings);
        let mut stream = connect(addr(&proxy));
        stream.write_all(asked.as_bytes()).unwrap();
        assert_status(&head(&mut stream), 502);
        until("the backend is alone", || backend.is_alone());
        assert_eq!(
            (proxy.counts().tunnels(), proxy.counts().backends()[0].failures()),
            (0, 1),
            "{answer}"
        );
    }
}

#[test]
fn an_upgrade_that_is_not_to_be_is_an_ordinary_request() {
    let ask_for = |upgrade: &str| {
        format!(
            "GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade, http2-settings, close\r\nupgrade: {upgrade}\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n"
        )
    };
    let body = "POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\nupgrade: websocket\r\ncontent-length: 2\r\n\r\nhi";
    let unmeant = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nupgrade: websocket\r\n\r\n";
    let old = "GET / HTTP/1.0\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    for (upgrades, request) in [
        (Upgrades::WebSocket, ask_for("h2c")),
        (Upgrades::Any, ask_for("h2c")),
        (Upgrades::Any, ask_for("H2C, TLS/1.0, HTTP/2.0")),
        (Upgrades::Any, ask_for("h2c-14, h2-16, HTTP-draft-04/2.0")),
        (Upgrades::WebSocket, ask_for("spdy/3.1")),
        (Upgrades::Off, ask_for("websocket")),
        (Upgrades::WebSocket, body.to_owned()),
        (Upgrades::WebSocket, unmeant.to_owned()),
        (Upgrades::WebSocket, old.to_owned()),
    ] {
        let backend = Backend::mirror();
        let proxy = proxy(&[backend.addr], |settings| settings.upgrades(upgrades));
        let answer = ask(addr(&proxy), &request);
        assert!(answer.contains(" 200 OK\r\n"), "{request}: {answer}");
        let seen = backend.requests()[0].to_lowercase();
        assert!(!seen.contains("upgrade") && !seen.contains("http2-settings"), "{seen}");
    }
}

#[test]
fn other_protocols_go_through_where_that_is_wanted() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: spdy/3.1\r\n\r\nwelcome";
    let backend = Backend::start(move |this, stream| {
        this.read(stream);
        stream.write_all(switch.as_bytes()).unwrap();
    });
    let proxy = proxy(&[backend.addr], |settings| settings.upgrades(Upgrades::Any));
    let mut stream = connect(addr(&proxy));
    let request = "POST /exec HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c, SPDY/3.1\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    assert_status(&head(&mut stream), 101);
    exactly(&mut stream, "welcome");
    assert!(backend.requests()[0].to_lowercase().contains("\r\nupgrade: spdy/3.1\r\n"));
}

#[test]
fn another_backend_is_asked_where_there_is_none() {
    let backend = echo();
    let proxy = proxy(&[nowhere(), backend.addr], |settings| settings);
    for _ in 0..10 {
        let mut stream = connect(addr(&proxy));
        stream.write_all(ASK.as_bytes()).unwrap();
        assert_status(&head(&mut stream), 101);
    }
    let alone = self::proxy(&[nowhere()], |settings| settings);
    let answer = ask(addr(&alone), ASK);
    assert_status(&answer, 502);
    assert!(answer.to_lowercase().contains("\r\nconnection: close\r\n"), "{answer}");
}

#[test]
fn a_head_that_asks_for_more_learns_of_the_length() {
    let backend = Backend::saying("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n");
    let proxy = proxy(&[backend.addr], |settings| settings);
    let answer = ask(addr(&proxy), &ASK.replacen("GET", "HEAD", 1));
    assert_status(&answer, 200);
    assert!(answer.contains("\r\ncontent-length: 1234\r\n"), "{answer}");
}

#[test]
fn the_head_of_an_upgrade_is_no_longer_than_that_of_any_answer() {
    let long = format!("x-long: {}\r\n\r\n", "x".repeat(80 * 1024));
    let switch = format!("{}\r\n{long}", SWITCH.trim_end());
    let backend = Backend::start(move |this, stream| {
        this.read(stream);
        let _ = stream.write_all(switch.as_bytes());
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    assert_status(&ask(addr(&proxy), ASK), 502);
    assert_eq!(proxy.counts().tunnels(), 0);
}

/// A reset could overtake the answer.
#[test]
fn who_is_refused_reads_to_the_end_whatever_was_sent_early() {
    let backend = Backend::saying("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno");
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream.write_all(ASK.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; 300_000]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_status(&answer, 403);
    assert!(answer.ends_with("\r\n\r\nno"), "{answer}");
}

/// A backend that agrees to everything in one way is well, whatever clients ask for.
#[test]
fn no_client_has_a_backend_ejected_by_what_it_asks_for() {
    let backend = Backend::saying(SWITCH);
    let proxy = proxy(&[backend.addr, nowhere()], |settings| settings.upgrades(Upgrades::Any));
    let other = ASK.replace("upgrade: WebSocket", "upgrade: websocket/1");
    for _ in 0..10 {
        assert_status(&ask(addr(&proxy), &other), 502);
    }
    assert_eq!(
        (proxy.counts().backends()[0].failures(), proxy.counts().backends()[0].ejections()),
        (0, 0)
    );
}

/// RFC 9110, 15.5.22: without the header a client would not know which protocol it needs.
#[test]
fn a_426_names_the_protocols_that_the_backend_wants() {
    let backend = Backend::saying(
        "HTTP/1.1 426 Upgrade Required\r\nconnection: upgrade\r\nupgrade: websocket, x/1\r\ncontent-length: 2\r\n\r\nno",
    );
    let proxy = proxy(&[backend.addr], |settings| settings);
    let plain = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut stream = connect(addr(&proxy));
    for _ in 0..2 {
        stream.write_all(plain.as_bytes()).unwrap();
        let answer = head(&mut stream).to_lowercase();
        assert!(answer.contains("\r\nconnection: upgrade\r\n"), "{answer}");
        assert!(answer.contains("\r\nupgrade: websocket, x/1\r\n"), "{answer}");
        exactly(&mut stream, "no");
    }
    for request in [last, ASK] {
        let answer = ask(addr(&proxy), request).to_lowercase();
        assert!(answer.contains("\r\nupgrade: websocket, x/1\r\n"), "{request}: {answer}");
        assert!(answer.contains("\r\nconnection: upgrade, close\r\n"), "{request}: {answer}");
    }
    let old = ask(addr(&proxy), "GET / HTTP/1.0\r\nhost: x\r\n\r\n");
    assert!(old.contains(" 426 ") && !old.to_lowercase().contains("upgrade: "), "{old}");
}

#[test]
fn a_426_in_a_drain_names_the_protocols_and_closes() {
    let (drains, goes_on) = channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let backend = Backend::start(move |this, stream| {
        this.read(stream);
        goes_on.lock().unwrap().recv().unwrap();
        let answer = "HTTP/1.1 426 Upgrade Required\r\nupgrade: x/1\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    let (mut idle, mut stream) = (connect(addr(&proxy)), connect(addr(&proxy)));
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    until("the backend has it", || !backend.requests().is_empty());
    let draining = std::thread::spawn(move || proxy.drain(DrainPlan::new().grace(GUARD)).unwrap());
    assert_eq!(read_all(&mut idle), "");
    drains.send(()).unwrap();
    let answer = read_all(&mut stream).to_lowercase();
    assert!(answer.contains("\r\nupgrade: x/1\r\n"), "{answer}");
    assert!(answer.contains("\r\nconnection: upgrade, close\r\n"), "{answer}");
    assert_eq!(draining.join().unwrap(), 0);
}
