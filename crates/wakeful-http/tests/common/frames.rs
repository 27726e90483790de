//! An HTTP/2 client that writes its frames itself, so that it can do what no good client does.

#![allow(dead_code, unreachable_pub)] // Each test file is a program of its own and uses a part.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use wakeful_http::Running;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const NO_ERROR: u32 = 0;
pub const PROTOCOL_ERROR: u32 = 1;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// Of a RST_STREAM, or a GOAWAY without the last stream.
    pub fn error(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    /// Of a response's HEADERS, whose first field h2 writes as an entry of the static table, or a
    /// literal one.
    pub fn status(&self) -> String {
        match self.payload[0] {
            0x88 => "200".to_owned(),
            0x89 => "204".to_owned(),
            0x8b => "304".to_owned(),
            0x8c => "400".to_owned(),
            0x8d => "404".to_owned(),
            0x8e => "500".to_owned(),
            // :status, its value in Huffman's code: digits of 5 bits (0, 1, 2) and of 6 (from 3
            // on).
            0x48 | 0x08 | 0x18 => {
                assert_eq!(self.payload[1] & 0x80, 0x80, "{self:?}");
                let length = usize::from(self.payload[1] & 0x7f);
                let mut bits = self.payload[2..2 + length]
                    .iter()
                    .flat_map(|byte| (0..8).rev().map(move |bit| u32::from(byte >> bit & 1)));
                let mut digit = || {
                    let mut code = 0;
                    for _ in 0..5 {
                        code = code << 1 | bits.next().unwrap();
                    }
                    if code > 2 {
                        code = (code << 1 | bits.next().unwrap()) - 0x19 + 3;
                    }
                    char::from_digit(code, 10).unwrap()
                };
                (0..3).map(|_| digit()).collect()
            }
            other => panic!("no status begins with {other:#x}: {self:?}"),
        }
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A literal field that nobody remembers.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        // A prefix of 7 bits.
        match text.len() {
            length @ 0..127 => bytes.push(u8::try_from(length).unwrap()),
            length => {
                bytes.push(127);
                let mut rest = length - 127;
                while rest >= 128 {
                    bytes.push(u8::try_from(rest % 128 + 128).unwrap());
                    rest /= 128;
                }
                bytes.push(u8::try_from(rest).unwrap());
            }
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

pub fn head(method: &str, path: &str) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "x")];
    fields.into_iter().flat_map(|(name, value)| field(name, value)).collect()
}

pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    /// Has sent its preface and its settings, and has the server's.
    pub fn new(running: &Running) -> Self {
        Self::with_settings(running, &[])
    }

    pub fn with_settings(running: &Running, settings: &[(u16, u32)]) -> Self {
        let mut this = Self { stream: super::raw(running) };
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        this.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        this.send(SETTINGS, 0, 0, &settings);
        this
    }

    /// The server may have gone.
    pub fn try_write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.write(&frame(kind, flags, stream, payload));
    }

    pub fn get(&mut self, stream: u32, path: &str) {
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &head("GET", path));
    }

    /// `None` when the server has closed.
    pub fn next(&mut self) -> Option<Frame> {
        let mut header = [0; 9];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ) =>
            {
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let stream = u32::from_be_bytes(header[5..].try_into().unwrap());
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).unwrap();
        Some(Frame { kind: header[3], flags: header[4], stream, payload })
    }

    /// The next one of a kind; answers what has to be answered.
    pub fn wait_for(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().unwrap_or_else(|| panic!("closed without a frame {kind}"));
            if frame.kind == kind && (kind != SETTINGS || frame.flags & ACK == 0) {
                return frame;
            }
            self.acknowledge(&frame);
        }
    }

    /// The next one; answers what has to be answered.
    pub fn wait_for_any(&mut self) -> Frame {
        let frame = self.next().expect("it has closed");
        self.acknowledge(&frame);
        frame
    }

    fn acknowledge(&mut self, frame: &Frame) {
        if matches!(frame.kind, SETTINGS | PING) && frame.flags & ACK == 0 {
            let payload: &[u8] = if frame.kind == PING { &frame.payload } else { &[] };
            let _ = self.try_write(&super::frames::frame(frame.kind, ACK, 0, payload));
        }
    }

    /// All until the server closes.
    pub fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next() {
            self.acknowledge(&frame);
            frames.push(frame);
        }
        frames
    }

    /// The last GOAWAY before the server closes.
    pub fn goaway(&mut self) -> u32 {
        let frames = self.rest();
        let last = frames.iter().rev().find(|frame| frame.kind == GOAWAY);
        last.unwrap_or_else(|| panic!("no GOAWAY in {frames:?}")).error()
    }
}
