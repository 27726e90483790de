use super::*;
use crate::protocol::tests::{outcomes, take};

fn asked(method: &str) -> Http1 {
    let mut http = Http1::new(&Template::http(method, "localhost", "/")).unwrap();
    for _ in 0..9 {
        http.request(&mut Vec::new());
    }
    http
}

/// The answers. A `!` follows if the connection is closing, and a `|` is followed by the answers
/// that the end of the connection completes.
fn answered(method: &str, bytes: &[u8]) -> Result<String, String> {
    let ways = [1, 2, 5, bytes.len()].map(|step| {
        let mut http = asked(method);
        let (mut answers, _) = take(&mut http, bytes, step).map_err(|error| error.what)?;
        let mut signs = outcomes(&answers);
        if http.is_closing() {
            signs.push('!');
        }
        answers.clear();
        http.close(&mut answers);
        Ok(format!("{signs}|{}", outcomes(&answers)))
    });
    assert!(ways.iter().all(|way| *way == ways[0]), "{ways:?}");
    ways[0].clone()
}

#[test]
fn requests_are_written_once_and_well() {
    let mut template = Template::http("POST", "a:1", "/x?y");
    template.headers.push(("X-A".into(), "b".into()));
    template.headers.push(("Host".into(), "c".into()));
    template.body = b"body".to_vec();
    let mut out = Vec::new();
    let mut http = Http1::new(&template).unwrap();
    assert_eq!((http.request(&mut out), http.request(&mut out)), (0, 1));
    let one = b"POST /x?y HTTP/1.1\r\nhost: c\r\nX-A: b\r\ncontent-length: 4\r\n\r\nbody";
    assert_eq!(out, one.repeat(2));
    let mut out = Vec::new();
    asked("GET").request(&mut out);
    assert_eq!(out, b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
}

#[test]
fn answers_of_every_framing() {
    let good = |bytes: &[u8], expected: &str| {
        assert_eq!(answered("GET", bytes).as_deref(), Ok(expected), "{}", bytes.escape_ascii());
    };
    good(
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1 404 \r\ncontent-length:0\r\n\r\n",
        "+-|",
    );
    good(b"HTTP/1.1 204 \r\n\r\nHTTP/1.1 304 \r\ncontent-length: 7\r\n\r\n", "++|");
    good(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\na: b\r\n\r\nHTTP/1.1 503 \r\ncontent-length: 1\r\n\r\nx", "-|");
    good(b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, Chunked\r\n\r\n3;a=b\r\nabc\r\n00\r\n\r\nHTTP/1.1 204 \r\n\r\n", "++|");
    good(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n0\r\nx: y\r\nz: a\r\n\r\n", "+|");
    good(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 204 \r\n\r\n", "!|+--------");
    good(b"HTTP/1.1 500 OK\r\n\r\n", "!|---------");
    good(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", "|");
    good(
        b"HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 1\r\n\r\na rest",
        "+--------!|",
    );
    good(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", "+--------!|");
    good(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n", "+|");
    good(b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na", "+|");
}

#[test]
fn head_has_no_bodies() {
    let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n".repeat(2);
    assert_eq!(answered("HEAD", &bytes).as_deref(), Ok("++|"));
    let bytes = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".repeat(2);
    assert_eq!(answered("HEAD", &bytes).as_deref(), Ok("++|"));
}

#[test]
fn closing_is_known_from_the_head_on() {
    let mut http = asked("GET");
    let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\n";
    assert!(take(&mut http, head, 8).unwrap().0.is_empty());
    assert!(http.is_closing() && !http.may_request());
}

#[test]
fn faults_are_named() {
    let bad = |bytes: &[u8], part: &str| {
        let what = answered("GET", bytes).unwrap_err();
        assert!(what.contains(part), "{what}");
    };
    bad(b"PONG\r\n\r\n", "head");
    bad(b"HTTP/1.1 101 \r\n\r\n", "another protocol");
    bad(b"HTTP/1.1 200 \r\ncontent-length: x\r\n\r\n", "invalid content-length");
    bad(b"HTTP/1.1 200 \r\ncontent-length: +1\r\n\r\n", "invalid content-length");
    bad(b"HTTP/1.1 200 \r\ncontent-length: 1, 2\r\n\r\n", "different");
    bad(b"HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\nx\r\n", "chunk");
    bad(b"HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc", "does not end");
    bad(&b"HTTP/1.1 204 \r\n\r\n".repeat(10), "nobody asked");
    bad(&[&b"HTTP/1.1 200 \r\n"[..], &b"a: b\r\n".repeat(129)[..], b"\r\n"].concat(), "head");
    let long = [&b"HTTP/1.1 200 \r\na: "[..], &[b'x'; MAX_HEAD]].concat();
    let mut http = asked("GET");
    assert!(take(&mut http, &long, 4096).unwrap_err().what.contains("more than"));
}

#[test]
fn headers_of_the_connection_are_allowed_here() {
    let mut template = Template::http("GET", "a", "/");
    template.headers.push(("connection".into(), "close".into()));
    assert!(Http1::new(&template).is_ok());
    template.headers.push(("a".into(), "b\nc".into()));
    let refused = Http1::new(&template).unwrap_err().to_string();
    assert!(refused.contains("\"a\"") && refused.contains("line break"), "{refused}");
}

#[test]
fn a_408_without_a_request_says_that_an_idle_connection_is_closed() {
    let http = Http1::new(&Template::http("GET", "localhost", "/")).unwrap();
    let bytes = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 1\r\n\r\nx";
    for step in [1, 5, bytes.len()] {
        let mut idle = http.clone();
        assert_eq!(take(&mut idle, bytes, step), Ok((Vec::new(), 0)));
        assert!(idle.is_closing() && !idle.may_request());
    }
    let other = take(&mut http.clone(), b"HTTP/1.1 400 \r\n", 1).unwrap_err();
    assert!(other.what.contains("nobody asked"), "{other}");
}
