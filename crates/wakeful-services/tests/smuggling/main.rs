//! Requests that two readers may understand in two ways, each a file of `corpus`: the proxy refuses
//! it, or the backend gets exactly one request that can be understood in one way only.
//!
//! A file says why it is there, what is expected, and, after an empty line, what is sent. Line
//! ends count only where they are written as `\r`, `\n`; `\t`, `\0`, `\\` and `\xNN` are understood
//! as well. A file `.h2` has the fields of a request of HTTP/2, sent as they are, and `body:`.
//!
//! * `refused 400`: that status, no request, and nothing after it is taken for one;
//! * `reset`: the stream is, or the whole connection, and no request;
//! * `one`: one request with the answer 200. `has` and `lacks` are what it has to have, in small
//!   letters, `^` at its start and `$` at its end.

#[path = "../proxy/common.rs"]
mod common;
mod frames;
mod lengths;

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::path::Path;

use common::{Backend, addr, connect, proxy, read_all, until};
use frames::Answer;

struct Case {
    name: String,
    expected: Expected,
    has: Vec<String>,
    lacks: Vec<String>,
    lines: Vec<Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Refused(u16),
    Reset,
    One,
}

fn corpus(extension: &str) -> Vec<Case> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smuggling/corpus");
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|is| is == extension)).collect();
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> Case {
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(file).unwrap();
    let (head, sent) = text.split_once("\n\n").expect("an empty line before what is sent");
    let all = |key: &str| {
        head.lines().filter_map(|line| Some(line.strip_prefix(key)?.to_owned())).collect()
    };
    let expected: Vec<String> = all("expect: ");
    let expected = match expected[0].split_once(' ') {
        Some(("refused", status)) => Expected::Refused(status.parse().unwrap()),
        None if expected[0] == "reset" => Expected::Reset,
        None if expected[0] == "one" => Expected::One,
        _ => panic!("{name}: {expected:?}"),
    };
    assert!(head.starts_with("# "), "{name} does not say why");
    let lines = sent.lines().map(unescape).collect();
    Case { name, expected, has: all("has: "), lacks: all("lacks: "), lines }
}

fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next().unwrap() {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'0' => 0,
                b'\\' => b'\\',
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => panic!("no escape: {:?}", char::from(other)),
            },
            byte => byte,
        });
    }
    bytes
}

/// What the backend got, once nobody can send it anything more.
fn arrived(proxy: wakeful_services::proxy::RunningProxy, backend: &Backend) -> Vec<String> {
    proxy.drain(wakeful_services::DrainPlan::new().grace(common::GUARD)).unwrap();
    until("the backend is alone", || backend.is_alone());
    backend.requests()
}

/// What is wrong about what arrived.
fn complaint(case: &Case, arrived: &[String]) -> Option<String> {
    match (&case.expected, arrived) {
        (Expected::One, [one]) => {
            let one = one.to_lowercase();
            let has = |text: &String| {
                let text = text.to_lowercase();
                match (text.strip_prefix('^'), text.strip_suffix('$')) {
                    (Some(text), _) => one.starts_with(text),
                    (_, Some(text)) => one.ends_with(text),
                    _ => one.contains(&text),
                }
            };
            let missing = case.has.iter().find(|text| !has(text));
            let present = case.lacks.iter().find(|text| has(text));
            missing
                .map(|text| format!("lacks {text:?}: {one:?}"))
                .or(present.map(|text| format!("has {text:?}: {one:?}")))
        }
        (Expected::Refused(_) | Expected::Reset, []) => None,
        _ => Some(format!("{} arrived: {arrived:?}", arrived.len())),
    }
}

fn report(complaints: &[String], cases: usize) {
    assert!(cases > 40, "only {cases} cases were found");
    assert!(complaints.is_empty(), "{} of {cases}:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn no_request_of_http1_is_understood_in_two_ways() {
    let cases = corpus("h1");
    let mut complaints = Vec::new();
    for case in &cases {
        let backend = Backend::mirror();
        let proxy = proxy(&[backend.addr], |settings| settings);
        let mut stream = connect(addr(&proxy));
        let mut sent = case.lines.concat();
        if case.expected != Expected::One {
            sent.extend_from_slice(b"GET /behind HTTP/1.1\r\nHost: x\r\n\r\n");
        }
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answers = read_all(&mut stream);
        let answers = answers.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&answers);
        let status = match case.expected {
            Expected::Refused(status) => status,
            Expected::One => 200,
            Expected::Reset => panic!("{}: HTTP/1 has no streams", case.name),
        };
        // The mirror's answer has the request in its body, but with another version at another
        // place.
        let is_so = answers.starts_with(&format!("HTTP/1.1 {status} "));
        let is_one = answers.matches("\r\nHTTP/1.1 ").count() == 0;
        if let Some(complaint) = complaint(case, &arrived(proxy, &backend)) {
            complaints.push(format!("{}: {complaint}", case.name));
        } else if !is_so || !is_one {
            complaints.push(format!("{}: {answers:?}", case.name));
        }
    }
    report(&complaints, cases.len());
}

#[test]
fn no_request_of_http2_becomes_two_of_http1() {
    let cases = corpus("h2");
    let mut complaints = Vec::new();
    for case in &cases {
        let backend = Backend::mirror();
        let proxy = proxy(&[backend.addr], |settings| settings);
        let body = case.lines.iter().find_map(|line| line.strip_prefix(b"body: "));
        let fields = case.lines.iter().filter(|line| !line.starts_with(b"body: "));
        // A name may begin with a colon.
        let fields: Vec<_> = fields
            .map(|line| {
                let at = 1 + line[1..].windows(2).position(|two| two == b": ").unwrap_or(0);
                if line.starts_with(b": ") {
                    (&b""[..], &line[2..])
                } else {
                    (&line[..at], &line[at + 2..])
                }
            })
            .collect();
        let answer = frames::ask(&mut connect(addr(&proxy)), &fields, body);
        let expected = match case.expected {
            Expected::Refused(status) => Answer::Status(status),
            Expected::Reset => Answer::Reset,
            Expected::One => Answer::Status(200),
        };
        if let Some(complaint) = complaint(case, &arrived(proxy, &backend)) {
            complaints.push(format!("{}: {complaint}; {answer:?}", case.name));
        } else if answer != expected {
            complaints.push(format!("{}: {answer:?}", case.name));
        }
    }
    report(&complaints, cases.len());
}
