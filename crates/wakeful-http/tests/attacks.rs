//! Attacks, small enough for any machine: the server stays up for others, holds no more than it
//! may, and says what happened.

mod common;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use wakeful_http::{Limits, Refusal, Running};

use common::frames::{Client, *};
use common::*;

/// What a test may add to the process: far above what it needs, far below what an unbounded queue
/// would.
const MEMORY: u64 = 64 << 20;

/// In bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Runs `attack` against a server, beside an honest client whose requests must all be answered.
fn withstands(limits: Limits, attack: impl FnOnce(&Running)) -> Running {
    let running = server().limits(limits).start(router()).unwrap();
    is_served(&running);
    let before = resident();
    thread::scope(|scope| {
        let (tell, told) = async_channel::bounded::<()>(1);
        let honest = scope.spawn({
            let addr = addr(&running);
            move || {
                wakeful::block_on(async {
                    let (mut one, mut two) = (http1_client(addr).await, http2_client(addr).await);
                    let mut asked = 0;
                    while !told.is_closed() || asked < 20 {
                        for response in [
                            one.send_request(request("GET", "/", "")).await.unwrap(),
                            two.send_request(request("GET", "/", "")).await.unwrap(),
                        ] {
                            assert_eq!(response.status(), StatusCode::OK);
                            response.into_body().collect().await.unwrap();
                            asked += 1;
                        }
                        wakeful::time::sleep(Duration::from_millis(1)).await;
                    }
                });
            }
        });
        attack(&running);
        tell.close();
        honest.join().unwrap();
    });
    let grown = resident().saturating_sub(before);
    assert!(grown < MEMORY, "{} MiB more", grown >> 20);
    is_served(&running);
    until("the attackers are gone", || running.counts().open() == 0);
    running
}

fn refused(running: &Running, refusal: Refusal) -> u64 {
    running.http_counts().refused(refusal)
}

#[test]
fn slowloris() {
    let limits = Limits::new().header_timeout(Duration::from_millis(300));
    let running = withstands(limits, |running| {
        let mut clients: Vec<TcpStream> = (0..100)
            .map(|_| {
                let mut client = raw(running);
                client.write_all(b"GET / HTTP/1.1\r\nx: ").unwrap();
                client
            })
            .collect();
        while refused(running, Refusal::HeaderTimeout) < 100 {
            for client in &mut clients {
                let _ = client.write_all(b"y");
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(refused(&running, Refusal::HeaderTimeout), 100);
}

#[test]
fn header_bombs() {
    let limits = Limits::new().max_header_size(16 * 1024);
    let running = withstands(limits, |running| {
        for _ in 0..20 {
            let mut client = raw(running);
            // It may be told before it is through.
            let _ = client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nx: ");
            let _ = client.write_all(&[b'y'; 200_000]);
            let mut client = Client::new(running);
            let mut remembered = field("x", &"y".repeat(4000));
            remembered[0] = 0x40;
            let bomb = [head("GET", "/"), remembered, vec![0xbe; 10_000]].concat();
            client.send(HEADERS, END_STREAM | END_HEADERS, 1, &bomb);
            assert_eq!(client.goaway(), ENHANCE_YOUR_CALM);
        }
        until("each is counted", || refused(running, Refusal::HeaderTooLarge) >= 40);
    });
    assert_eq!(refused(&running, Refusal::HeaderTooLarge), 40);
}

#[test]
fn connect_and_reset() {
    let running = withstands(Limits::default(), |running| {
        for _ in 0..2000 {
            let client = raw(running);
            socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        }
    });
    // The server never sees a connection that is reset in the backlog. It sees those that come and
    // go beside the honest ones.
    let counts = running.counts();
    until("it is counted", || refused(&running, Refusal::NoRequest) > 0);
    assert!(refused(&running, Refusal::NoRequest) <= counts.accepted());
}

/// Sends `flood` again and again, until the server has had enough.
fn floods(running: &Running, refusal: Refusal, flood: impl Fn(u32) -> Vec<u8>) {
    let mut client = Client::new(running);
    for number in 0..200_000 {
        if !client.try_write(&flood(number)) {
            break;
        }
    }
    until("it is counted", || refused(running, refusal) > 0);
}

#[test]
fn http2_rapid_reset() {
    let running = withstands(Limits::default(), |running| {
        floods(running, Refusal::Http2ResetFlood, |number| {
            let stream = 1 + 2 * number;
            let get = frame(HEADERS, END_STREAM | END_HEADERS, stream, &head("GET", "/never"));
            [get, frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat()
        });
    });
    assert_eq!(running.http_counts().in_flight(), 0);
}

#[test]
fn http2_continuation_flood() {
    for length in [0, 10] {
        withstands(Limits::default(), |running| {
            let refusal = Refusal::Http2ContinuationFlood;
            floods(running, refusal, |number| match number {
                0 => frame(HEADERS, END_STREAM, 1, &head("GET", "/")),
                _ => frame(CONTINUATION, 0, 1, &field("x", "y").repeat(length)),
            });
        });
    }
}

#[test]
fn http2_settings_ping_and_other_floods() {
    let root = [0, 0, 0, 0, 16];
    for (refusal, flood) in [
        (Refusal::Http2SettingsFlood, frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        (Refusal::Http2PingFlood, frame(PING, 0, 0, b"whatever")),
        (Refusal::Http2PingFlood, frame(PING, ACK, 0, b"whatever")),
        (Refusal::Http2FrameFlood, frame(PRIORITY, 0, 1, &root)),
        (Refusal::Http2FrameFlood, frame(0x42, 0, 0, b"unknown")),
        (Refusal::Http2FrameFlood, frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
    ] {
        withstands(Limits::default(), |running| {
            floods(running, refusal, |_| flood.repeat(100));
        });
    }
}

#[test]
fn http2_empty_data_flood() {
    withstands(Limits::default(), |running| {
        floods(running, Refusal::Http2EmptyDataFlood, |number| match number {
            0 => frame(HEADERS, END_HEADERS, 1, &head("POST", "/never")),
            _ => frame(DATA, 0, 1, &[]).repeat(100),
        });
    });
}

#[test]
fn who_floods_is_told_to_calm_down() {
    let running = server().start(router()).unwrap();
    for _ in 0..10 {
        let mut client = Client::new(&running);
        let settings = client.wait_for(SETTINGS);
        assert_eq!(settings.stream, 0);
        // Not all of it is read before the last word, which a reset may not overtake.
        client.write(&frame(PING, 0, 0, b"whatever").repeat(5000));
        assert_eq!(client.goaway(), ENHANCE_YOUR_CALM);
    }
    assert_eq!(refused(&running, Refusal::Http2PingFlood), 10);
}
