//! One request of HTTP/2, whose fields are sent as they are, as no library would.

use std::io::{Read, Write};
use std::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Status(u16),
    /// The stream, or the connection.
    Reset,
}

pub(crate) fn ask(
    stream: &mut TcpStream,
    fields: &[(&[u8], &[u8])],
    body: Option<&[u8]>,
) -> Answer {
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal without indexing, with a new name (RFC 7541, 6.2.2).
        block.push(0);
        string(&mut block, name);
        string(&mut block, value);
    }
    let end = if body.is_some() { 0 } else { END_STREAM };
    frame(&mut bytes, HEADERS, END_HEADERS | end, 1, &block);
    if let Some(body) = body {
        frame(&mut bytes, DATA, END_STREAM, 1, body);
    }
    stream.write_all(&bytes).unwrap();
    answer(stream)
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}

fn string(block: &mut Vec<u8>, text: &[u8]) {
    assert!(text.len() < 127, "a longer one needs more bytes for its length");
    block.push(u8::try_from(text.len()).unwrap());
    block.extend_from_slice(text);
}

fn answer(stream: &mut TcpStream) -> Answer {
    let mut status = None;
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).is_err() {
            return Answer::Reset;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).unwrap();
        let on_stream = head[8] == 1;
        match head[3] {
            HEADERS if on_stream => status = Some(status_of(payload[0])),
            // A server that has answered may well ask for no more of the body.
            RST_STREAM if on_stream => return status.map_or(Answer::Reset, Answer::Status),
            GOAWAY => return status.map_or(Answer::Reset, Answer::Status),
            _ => {}
        }
        if let Some(status) = status
            && on_stream
            && head[4] & END_STREAM != 0
        {
            return Answer::Status(status);
        }
    }
}

/// Of HPACK's static table, or one that is not there (RFC 7541, A).
fn status_of(first: u8) -> u16 {
    match first & 0x7f {
        8 => 200,
        9 => 204,
        12 => 400,
        13 => 404,
        14 => 500,
        // 501 and others come as literals.
        _ => 501,
    }
}
