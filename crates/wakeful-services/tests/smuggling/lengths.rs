//! A request with both Content-Length and Transfer-Encoding, in whatever pieces it comes and
//! whatever came before it; and honest bodies that look like such a request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use wakeful_http::Refusal;
use wakeful_services::proxy::RunningProxy;

use crate::arrived;
use crate::common::{Backend, addr, connect, proxy, read_all};

const BOTH: [&str; 3] = [
    "POST /both HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
    "POST /both HTTP/1.1\r\ntRANSFER-eNCODING:chunked\r\nhost:x\r\nCoNtEnT-lEnGtH:\t5 \r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "GET /both HTTP/1.1\nhost: x\ncontent-length: 0\ntransfer-encoding: chunked\n\n0\r\n\r\n",
];

/// Two requests with bodies that look like heads with both lengths, and a third request after them.
fn honest() -> String {
    let body = BOTH.concat();
    let size = body.len();
    format!(
        "POST /1 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\ncontent-length: 3\r\n\r\n\
         POST /2 HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n{body}\
         GET /3 HTTP/1.1\r\nhost: x\r\n\r\n"
    )
}

/// A client that is answered by the proxy alone, after everything that came to the proxy's loop
/// before.
struct Witness(TcpStream);

impl Witness {
    fn of(proxy: &RunningProxy) -> Self {
        Self(connect(addr(proxy)))
    }

    fn waits(&mut self) {
        let request = b"OPTIONS * HTTP/1.1\r\nhost: x\r\nmax-forwards: 0\r\n\r\n";
        self.0.write_all(request).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 204 "));
    }
}

/// What is answered to bytes in two pieces, the first of which the proxy has read before the second
/// comes.
fn ask_in_two(proxy: &RunningProxy, witness: &mut Witness, text: &str, at: usize) -> String {
    let mut stream = connect(addr(proxy));
    stream.write_all(&text.as_bytes()[..at]).unwrap();
    witness.waits();
    // It may have been refused by then.
    let _ = stream.write_all(&text.as_bytes()[at..]);
    let _ = stream.shutdown(Shutdown::Write);
    read_all(&mut stream)
}

fn assert_refused_last(answers: &str, honest: usize) {
    assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), honest, "{answers:?}");
    let (_, last) = answers.rsplit_once("HTTP/1.1 4").expect("a refusal");
    assert!(last.starts_with("00 ") && last.contains("connection: close\r\n"), "{answers:?}");
    assert!(last.ends_with("\r\n\r\n"), "{answers:?}");
}

#[test]
fn both_lengths_are_refused_wherever_the_bytes_are_split() {
    let backend = Backend::mirror();
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut witness = Witness::of(&proxy);
    let mut asked = 0;
    for both in BOTH {
        let text = format!("{both}GET /behind HTTP/1.1\r\nhost: x\r\n\r\n");
        for at in 0..both.len() {
            assert_refused_last(&ask_in_two(&proxy, &mut witness, &text, at), 0);
            asked += 1;
        }
    }
    assert_eq!(proxy.server().http_counts().refused(Refusal::AmbiguousLength), asked);
    drop(witness);
    assert_eq!(arrived(proxy, &backend), [""; 0]);
}

#[test]
fn both_lengths_are_refused_behind_honest_requests_of_the_same_connection() {
    // Its answers are not to look like others.
    let backend = Backend::saying("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut witness = Witness::of(&proxy);
    let honest = honest();
    let mut asked = 0;
    for both in BOTH {
        let text = format!("{honest}{both}GET /behind HTTP/1.1\r\nhost: x\r\n\r\n");
        // At once, and then within what is refused.
        for at in [0].into_iter().chain((honest.len()..honest.len() + both.len()).step_by(7)) {
            assert_refused_last(&ask_in_two(&proxy, &mut witness, &text, at), 3);
            asked += 1;
        }
    }
    assert_eq!(proxy.server().http_counts().refused(Refusal::AmbiguousLength), asked);
    drop(witness);
    let arrived = arrived(proxy, &backend);
    assert_eq!(arrived.len() as u64, 3 * asked);
    let lines = arrived.iter().filter_map(|request| request.lines().next());
    assert!(lines.enumerate().all(|(n, line)| {
        let path = n % 3 + 1;
        line.ends_with(&format!(" /{path} HTTP/1.1"))
    }));
}

#[test]
fn honest_bodies_that_look_like_requests_go_through_wherever_they_are_split() {
    let backend = Backend::saying("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut witness = Witness::of(&proxy);
    let honest = honest();
    let mut asked = 0;
    for at in 0..honest.len() {
        let answers = ask_in_two(&proxy, &mut witness, &honest, at);
        assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 3, "at {at}: {answers:?}");
        asked += 1;
    }
    drop(witness);
    let arrived = arrived(proxy, &backend);
    assert_eq!(arrived.len(), 3 * asked);
    let with_body = arrived.iter().filter(|request| request.contains(&BOTH.concat()));
    assert_eq!(with_body.count(), 2 * asked);
}
