use super::*;
use crate::protocol::tests::{outcomes, take};

mod answers;
mod bodies;
mod cuts;
mod requests;

/// The SETTINGS frame of a server, from pairs of name and value.
fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let pairs = values.iter();
    let payload: Vec<_> = pairs
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    frame(4, 0, 0, &payload)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(8, 0, stream, &bytes.to_be_bytes())
}

/// Returns a conversation that has sent only its opening, with a server that has announced these
/// settings.
fn opened(template: &Template, values: &[(u16, u32)]) -> Http2 {
    let mut http = Http2::new(template).unwrap();
    assert!(!http.may_request(), "nothing is known of the server yet");
    assert_eq!(told(&mut http, &settings(values)), [frame(4, 1, 0, &[])]);
    http
}

fn get() -> Template {
    Template::http("GET", "localhost", "/")
}

fn post(size: usize) -> Template {
    let body = Template::of_size(size).body;
    Template { body, ..Template::http("POST", "localhost", "/") }
}

/// Passes bytes that answer no request to the conversation. Returns the frames of its reply.
fn told(http: &mut Http2, bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut out, mut answers) = (Vec::new(), Vec::new());
    assert_eq!(http.receive(bytes, &mut out, &mut answers), Ok(bytes.len()));
    assert_eq!(answers, []);
    frames(&out)
}

/// Cuts bytes into frames.
fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(header) = Header::read(bytes) {
        let (frame, rest) = bytes.split_at(HEADER + header.length);
        frames.push(frame.to_vec());
        bytes = rest;
    }
    assert_eq!(bytes, []);
    frames
}
