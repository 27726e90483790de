//! What each limit answers over HTTP/2, and that it is counted.

mod common;

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::routing::{get, post};
use futures_lite::{StreamExt, stream};
use http_body_util::BodyExt;
use wakeful_http::{GrpcCalls, Http2Limits, Limits, MaxAge, MinRate, PeerRate, Refusal, Running};

use common::frames::{Client, *};
use common::*;

const SHORT: Duration = Duration::from_millis(100);
const MAX_STREAMS: u16 = 3;
const INITIAL_WINDOW: u16 = 4;

fn start(limits: Limits) -> Running {
    server().limits(limits).start(app()).unwrap()
}

fn app() -> Router {
    let begun = || stream::once(Ok::<_, std::io::Error>(Bytes::from_static(b"begun")));
    router()
        .route("/read", post(|body: Bytes| async move { body.len().to_string() }))
        // Answers whatever comes of its body.
        .route("/swallow", post(|_: Result<Bytes, BytesRejection>| async { "fine" }))
        .route(
            "/begin",
            get(move || async move { Body::from_stream(begun().chain(stream::pending())) }),
        )
        .route("/large", get(|| async { vec![b'w'; 8 << 20] }))
        .route("/endless", get(|| async { until_told(Arc::default()) }))
}

/// A body that ends when it is told to.
fn until_told(ends: Arc<AtomicBool>) -> Body {
    let piece = || Ok::<_, std::io::Error>(Bytes::from_static(&[b'e'; 4096]));
    let pieces = stream::repeat_with(piece);
    Body::from_stream(pieces.take_while(move |_| !ends.load(Ordering::Relaxed)))
}

fn counted(running: &Running, refusal: Refusal, times: u64) {
    let counts = running.http_counts();
    until("it is counted", || counts.refused(refusal) >= times);
    assert_eq!(counts.refused(refusal), times, "{refusal:?}");
}

/// The connection continues.
fn serves(client: &mut Client, stream: u32) {
    client.get(stream, "/");
    assert_eq!(client.wait_for(HEADERS).status(), "200");
    assert_eq!(client.wait_for(DATA).payload, b"hello");
}

#[test]
fn a_request_that_takes_too_long_is_503_and_what_it_has_begun_is_reset() {
    let running = start(Limits::new().request_timeout(SHORT));
    let mut client = Client::new(&running);
    client.get(1, "/never");
    assert_eq!(client.wait_for(HEADERS).status(), "503");
    client.get(3, "/begin");
    assert_eq!(client.wait_for(HEADERS).status(), "200");
    let reset = client.wait_for(RST_STREAM);
    assert_eq!((reset.stream, reset.error()), (3, CANCEL));
    counted(&running, Refusal::RequestTimeout, 2);
    serves(&mut client, 5);
}

#[test]
fn a_header_that_has_not_ended_spares_no_other_request_its_limits() {
    let running = start(Limits::new().request_timeout(SHORT));
    let mut client = Client::new(&running);
    serves(&mut client, 1);
    client.get(3, "/never");
    let header = frame(HEADERS, END_STREAM | END_HEADERS, 5, &head("GET", "/"));
    let (most, last) = header.split_at(header.len() - 1);
    client.write(most);
    let refused = client.wait_for(HEADERS);
    assert_eq!((refused.stream, refused.status()), (3, "503".to_owned()));
    counted(&running, Refusal::RequestTimeout, 1);
    client.write(last);
    assert_eq!(client.wait_for(HEADERS).stream, 5);
}

#[test]
fn a_response_for_which_the_client_gives_no_room_is_reset_too() {
    let running = start(Limits::new().request_timeout(SHORT));
    let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, 0)]);
    client.get(1, "/large");
    assert_eq!(client.wait_for(HEADERS).status(), "200");
    let reset = client.wait_for(RST_STREAM);
    assert_eq!((reset.stream, reset.error()), (1, CANCEL));
    counted(&running, Refusal::RequestTimeout, 1);
    until("nothing is in flight", || running.http_counts().in_flight() == 0);
}

#[test]
fn a_body_that_its_client_cuts_short_without_an_error_is_not_whole() {
    let (tell, told) = std::sync::mpsc::channel();
    let read = post(move |body: Body| async move {
        let _ = tell.send(body.collect().await.map(http_body_util::Collected::to_bytes));
        "read"
    });
    // The body that is cut off is once shorter than `max_body`, and once exactly as long.
    let limits = Limits::new().max_body(5);
    let running = server().limits(limits).start(Router::new().route("/read", read)).unwrap();
    let mut client = Client::new(&running);
    for (stream, part) in [(1, "half"), (3, "whole")] {
        client.send(HEADERS, END_HEADERS, stream, &head("POST", "/read"));
        client.send(DATA, 0, stream, part.as_bytes());
        client.send(RST_STREAM, 0, stream, &0_u32.to_be_bytes());
        told.recv_timeout(Duration::from_secs(10)).expect("it is called").expect_err("not whole");
    }
    client.send(HEADERS, END_HEADERS, 5, &head("POST", "/read"));
    client.send(DATA, END_STREAM, 5, b"whole");
    assert_eq!(told.recv_timeout(Duration::from_secs(10)).unwrap().unwrap(), "whole");
}

#[test]
fn a_body_of_which_nothing_more_comes_is_408() {
    let running = start(Limits::new().body_timeout(SHORT));
    let mut client = Client::new(&running);
    client.send(HEADERS, END_HEADERS, 1, &head("POST", "/read"));
    client.send(DATA, 0, 1, b"half");
    assert_eq!(client.wait_for(HEADERS).status(), "408");
    counted(&running, Refusal::BodyTimeout, 1);
    serves(&mut client, 3);
}

#[test]
fn a_connection_that_takes_nothing_is_aborted() {
    let rate = MinRate::new(1_000_000, SHORT);
    let running = start(Limits::new().min_rate(rate));
    let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, (1 << 31) - 1)]);
    client.send(WINDOW_UPDATE, 0, 0, &((1_u32 << 31) - 1 - 65_535).to_be_bytes());
    for stream in 0..4 {
        client.get(1 + 2 * stream, "/large");
    }
    counted(&running, Refusal::SlowResponse, 1);
    until("it is closed", || running.counts().open() == 0);
    is_served(&running);
}

fn give_room(client: &mut Client, stream: u32, bytes: u32) {
    client.send(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

/// Takes a response in pieces, many in each second, until the server has reset all `others`. One of
/// these gets a single byte with each piece.
fn take_until_reset(client: &mut Client, stream: u32, mut others: BTreeSet<u32>, slow: u32) {
    const PIECE: u32 = 4096;
    let (begun, mut left) = (Instant::now(), 0_usize);
    while !others.is_empty() {
        assert!(begun.elapsed() < GUARD, "never reset: {others:?}");
        if left == 0 {
            thread::sleep(Duration::from_millis(10));
            give_room(client, stream, PIECE);
            left = PIECE as usize;
            if others.contains(&slow) {
                give_room(client, slow, 1);
            }
        }
        let frame = client.wait_for_any();
        if frame.kind == DATA && frame.stream == stream {
            left = left.saturating_sub(frame.payload.len());
        } else if frame.kind == RST_STREAM {
            assert!(others.remove(&frame.stream), "{frame:?}");
        }
    }
}

/// Its connection has all the room there is, and its streams have none.
fn client_without_room(running: &Running) -> Client {
    let mut client = Client::with_settings(running, &[(INITIAL_WINDOW, 0)]);
    give_room(&mut client, 0, (1 << 31) - 1 - 65_535);
    client
}

#[test]
fn a_response_with_no_room_of_its_own_is_reset_though_others_of_its_connection_move() {
    let rate = MinRate::new(1000, Duration::from_secs(1));
    let ends = Arc::new(AtomicBool::new(false));
    let read = get({
        let ends = ends.clone();
        || async move { until_told(ends) }
    });
    let app = app().route("/until", read);
    let running = server().limits(Limits::new().min_rate(rate)).start(app).unwrap();
    let mut client = client_without_room(&running);
    for (stream, path) in [(1, "/until"), (3, "/large"), (5, "/endless"), (7, "/endless")] {
        client.get(stream, path);
    }
    // This one has some room in the beginning, and 7 always gets a little.
    give_room(&mut client, 5, 10);
    take_until_reset(&mut client, 1, BTreeSet::from([3, 5, 7]), 7);
    counted(&running, Refusal::SlowResponse, 3);
    // The first one comes whole.
    ends.store(true, Ordering::Relaxed);
    give_room(&mut client, 1, 1 << 20);
    let mut frames = std::iter::from_fn(|| Some(client.wait_for(DATA)));
    assert_eq!(frames.find(|frame| frame.flags & END_STREAM != 0).unwrap().stream, 1);
    assert_eq!(running.http_counts().refused(Refusal::SlowResponse), 3);
}

/// The server does not learn from hyper which request is which stream.
#[test]
fn it_is_the_right_stream_that_is_reset_whatever_else_comes_with_it() {
    const GET: u8 = END_STREAM | END_HEADERS;
    let rate = MinRate::new(1000, Duration::from_secs(1));
    let http2 = Http2Limits::new().max_streams(4);
    let limits = Limits::new().min_rate(rate).max_header_size(8 * 1024).http2(http2);
    let running = start(limits);
    let mut client = client_without_room(&running);
    let endless = head("GET", "/endless");
    let large = [&endless[..], &field("x", &"y".repeat(10_000))].concat();
    let malformed = [&endless[..], &field("connection", "close")].concat();
    let post = [head("POST", "/read"), field("content-length", "1")].concat();
    let cancel = CANCEL.to_be_bytes();
    client.write(
        &[
            frame(HEADERS, GET, 1, &malformed),
            // This one is over before the server looks at it.
            frame(HEADERS, GET, 3, &endless),
            frame(RST_STREAM, 0, 3, &cancel),
            frame(HEADERS, GET, 5, &endless),
            frame(HEADERS, GET, 7, &malformed),
            frame(HEADERS, GET, 9, &endless),
            frame(WINDOW_UPDATE, 0, 9, &1_u32.to_be_bytes()),
        ]
        .concat(),
    );
    take_until_reset(&mut client, 9, BTreeSet::from([1, 5, 7]), 0);
    client.write(&[frame(HEADERS, GET, 11, &large), frame(HEADERS, GET, 13, &endless)].concat());
    take_until_reset(&mut client, 9, BTreeSet::from([13]), 0);
    // This request comes to the service, and its body is too long for its length.
    client.write(
        &[
            frame(HEADERS, END_HEADERS, 15, &post),
            frame(DATA, 0, 15, b"more"),
            frame(HEADERS, GET, 17, &endless),
        ]
        .concat(),
    );
    take_until_reset(&mut client, 9, BTreeSet::from([15, 17]), 0);
    // The last two are too many.
    let gets = [19, 21, 23, 25, 27].map(|stream| frame(HEADERS, GET, stream, &endless));
    client.write(&gets.concat());
    take_until_reset(&mut client, 9, BTreeSet::from([19, 21, 23, 25, 27]), 0);
    counted(&running, Refusal::SlowResponse, 6);
    assert_eq!(running.http_counts().in_flight(), 1);
}

/// A request whose trailers have begun is known, too.
#[test]
fn a_header_of_trailers_that_has_not_ended_spares_no_response_its_limit() {
    let rate = MinRate::new(1000, Duration::from_secs(1));
    let running = start(Limits::new().min_rate(rate));
    let mut client = client_without_room(&running);
    client.get(1, "/endless");
    let trailers = field("a", "b");
    let (begin, rest) = trailers.split_at(1);
    let head = frame(HEADERS, END_HEADERS, 3, &head("GET", "/endless"));
    client.write(&[head, frame(HEADERS, END_STREAM, 3, begin)].concat());
    until("both have come", || running.http_counts().in_flight() == 2);
    client.send(CONTINUATION, END_HEADERS, 3, rest);
    take_until_reset(&mut client, 1, BTreeSet::from([3]), 0);
    counted(&running, Refusal::SlowResponse, 1);
}

/// More than there may be requests at a time, and all in one read.
#[test]
fn many_streams_that_are_refused_do_not_hide_those_behind_them() {
    const GET: u8 = END_STREAM | END_HEADERS;
    let rate = MinRate::new(1000, Duration::from_secs(1));
    let http2 = Http2Limits::new().max_streams(4);
    let running = start(Limits::new().min_rate(rate).http2(http2));
    let mut client = client_without_room(&running);
    client.get(1, "/endless");
    until("it has come", || running.http_counts().in_flight() == 1);
    let malformed = [head("GET", "/endless"), field("connection", "close")].concat();
    let streams: Vec<u32> = (1..=13).map(|number| 1 + 2 * number).collect();
    let (last, refused) = streams.split_last().unwrap();
    let refused = refused.iter().map(|stream| frame(HEADERS, GET, *stream, &malformed));
    let last = frame(HEADERS, GET, *last, &head("GET", "/endless"));
    client.write(&[refused.collect::<Vec<_>>().concat(), last].concat());
    take_until_reset(&mut client, 1, BTreeSet::from_iter(streams), 0);
    counted(&running, Refusal::SlowResponse, 1);
}

/// What the server refuses is not written then, before it hands over the next request.
#[test]
fn it_is_the_right_stream_also_where_the_socket_was_full() {
    // More than the socket's buffers hold.
    const MUCH: u32 = 24 << 20;
    let rate = MinRate::new(1000, Duration::from_secs(2));
    let running = start(Limits::new().min_rate(rate));
    let mut client = client_without_room(&running);
    client.get(1, "/endless");
    give_room(&mut client, 1, MUCH);
    // The test is also passed if the socket is not full by then.
    thread::sleep(Duration::from_millis(300));
    let malformed = [head("GET", "/endless"), field("connection", "close")].concat();
    let get = frame(HEADERS, END_STREAM | END_HEADERS, 5, &head("GET", "/endless"));
    let refused = frame(HEADERS, END_STREAM | END_HEADERS, 3, &malformed);
    client.write(&[refused, get].concat());
    // They are read before there is room again.
    until("it has come", || running.http_counts().in_flight() == 2);
    let (mut left, mut others) = (MUCH as usize, BTreeSet::from([3, 5]));
    while left > 0 {
        let frame = client.wait_for_any();
        match frame.kind {
            DATA => left -= frame.payload.len(),
            RST_STREAM => assert!(others.remove(&frame.stream), "{frame:?}"),
            _ => {}
        }
    }
    take_until_reset(&mut client, 1, others, 0);
    counted(&running, Refusal::SlowResponse, 1);
    assert_eq!(running.http_counts().in_flight(), 1);
}

#[test]
fn what_is_exempt_or_has_nothing_to_send_needs_no_room() {
    let rate = MinRate::new(1000, SHORT);
    let limits = Limits::new().min_rate(rate).grpc_calls(GrpcCalls::Unlimited);
    let running = start(limits);
    let begun = u32::try_from("begun".len()).unwrap();
    let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, begun)]);
    let of_grpc = [head("GET", "/endless"), field("content-type", "application/grpc")].concat();
    client.send(HEADERS, END_STREAM | END_HEADERS, 1, &of_grpc);
    client.get(3, "/begin");
    // The time of each of these is longer than the rate's window.
    for (number, stream) in [(1, 5), (2, 7), (3, 9)] {
        client.get(stream, "/endless");
        let reset = client.wait_for(RST_STREAM);
        assert_eq!((reset.stream, reset.error()), (stream, CANCEL));
        counted(&running, Refusal::SlowResponse, number);
    }
    assert_eq!((running.http_counts().in_flight(), running.counts().open()), (2, 1));
}

#[test]
fn who_takes_all_responses_together_fast_enough_may_take_each_slowly() {
    const STREAMS: u32 = 20;
    const PIECE: u32 = 1000;
    // The client has less than the rate for each response, and much more for all.
    let rate = MinRate::new(1000, Duration::from_secs(1));
    let running = start(Limits::new().min_rate(rate));
    let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, 1 << 20)]);
    for stream in 0..STREAMS {
        client.get(1 + 2 * stream, "/endless");
    }
    let mut left = 65_535;
    for _ in 0..30 {
        while left > 0 {
            let frame = client.wait_for_any();
            assert_ne!(frame.kind, RST_STREAM, "{frame:?}");
            left -= if frame.kind == DATA { frame.payload.len() } else { 0 };
        }
        thread::sleep(Duration::from_millis(100));
        client.send(WINDOW_UPDATE, 0, 0, &PIECE.to_be_bytes());
        left = PIECE as usize;
    }
    assert_eq!(running.http_counts().refused(Refusal::SlowResponse), 0);
    assert_eq!(running.http_counts().in_flight(), u64::from(STREAMS));
}

#[test]
fn a_body_that_is_too_large_is_413_by_its_length_or_when_so_much_has_come() {
    let running = start(Limits::new().max_body(1000));
    let mut client = Client::new(&running);
    let head_with_length = [head("POST", "/read"), field("content-length", "1001")].concat();
    client.send(HEADERS, END_HEADERS, 1, &head_with_length);
    assert_eq!(client.wait_for(HEADERS).status(), "413");
    client.send(HEADERS, END_HEADERS, 3, &head("POST", "/read"));
    client.send(DATA, 0, 3, &[b'y'; 800]);
    client.send(DATA, 0, 3, &[b'y'; 800]);
    let head = loop {
        let frame = client.wait_for(HEADERS);
        if frame.stream == 3 {
            break frame;
        }
    };
    // By the second time, h2's table of fields has it.
    assert_eq!(head.payload[0] & 0x80, 0x80);
    counted(&running, Refusal::BodyTooLarge, 2);
    // Its response has begun.
    client.send(HEADERS, END_HEADERS, 5, &self::head("POST", "/echo"));
    assert_eq!(client.wait_for(HEADERS).status(), "200");
    client.send(DATA, 0, 5, &[b'y'; 800]);
    client.send(DATA, 0, 5, &[b'y'; 800]);
    assert_eq!(client.wait_for(RST_STREAM).stream, 5);
    counted(&running, Refusal::BodyTooLarge, 3);
    serves(&mut client, 7);
}

#[test]
fn a_call_of_grpc_without_limits_of_time_may_be_no_larger_than_others() {
    let limits = Limits::new().grpc_calls(GrpcCalls::Unlimited).max_body(1000);
    let running = start(limits);
    let mut client = Client::new(&running);
    let call = [head("POST", "/swallow"), field("content-type", "application/grpc")].concat();
    client.send(HEADERS, END_HEADERS, 1, &call);
    client.send(DATA, END_STREAM, 1, &[b'y'; 1001]);
    assert_eq!(client.wait_for(HEADERS).status(), "413");
    counted(&running, Refusal::BodyTooLarge, 1);
    serves(&mut client, 3);
}

#[test]
fn a_length_that_no_body_has_is_413_and_one_that_h2_cannot_count_an_error_of_its_stream() {
    let running = start(Limits::new().max_body(None));
    let mut client = Client::new(&running);
    let post = |client: &mut Client, stream, length| {
        let head = [head("POST", "/read"), field("content-length", length)].concat();
        client.send(HEADERS, END_HEADERS, stream, &head);
    };
    post(&mut client, 1, "9223372036854775808");
    assert_eq!(client.wait_for(HEADERS).status(), "413");
    for (stream, length) in [(3, "18446744073709551615"), (5, "abc")] {
        post(&mut client, stream, length);
        // The reset of the first stream says that its body is not wanted.
        let resets = || Some(client.wait_for(RST_STREAM));
        let reset = std::iter::from_fn(resets).find(|reset| reset.stream == stream).unwrap();
        assert_eq!(reset.error(), PROTOCOL_ERROR, "{length}");
    }
    counted(&running, Refusal::BodyTooLarge, 1);
    serves(&mut client, 7);
}

#[test]
fn a_header_that_is_too_large_is_431_and_one_beyond_all_measure_ends_the_connection() {
    let limits = Limits::new().max_header_size(8 * 1024).max_headers(5);
    let running = start(limits);
    let mut client = Client::new(&running);
    let large = [head("GET", "/"), field("x", &"y".repeat(10_000))].concat();
    client.send(HEADERS, END_STREAM | END_HEADERS, 1, &large);
    assert_eq!(client.wait_for(HEADERS).status(), "431");
    // h2 refuses it, and does not say why.
    counted(&running, Refusal::Http2Refused, 1);
    let mut client = Client::new(&running);
    let many = [head("GET", "/"), field("x", "y").repeat(6)].concat();
    client.send(HEADERS, END_STREAM | END_HEADERS, 1, &many);
    assert_eq!(client.wait_for(HEADERS).status(), "431");
    counted(&running, Refusal::HeaderTooLarge, 1);
    serves(&mut client, 3);
    // A bomb: a field that is remembered, and then named by one byte each.
    let mut bomb = head("GET", "/");
    let mut remembered = field("x", &"y".repeat(3000));
    remembered[0] = 0x40;
    bomb.extend(remembered);
    bomb.extend([0xbe; 10_000]);
    client.send(HEADERS, END_STREAM | END_HEADERS, 5, &bomb);
    assert_eq!(client.goaway(), ENHANCE_YOUR_CALM);
    counted(&running, Refusal::HeaderTooLarge, 2);
    is_served(&running);
}

#[test]
fn a_header_is_counted_as_http2_counts_it_and_stays_below_its_limit() {
    let running = start(Limits::new().max_header_size(8 * 1024));
    let mut client = Client::new(&running);
    // `:method GET`, `:scheme http`, `:path /`, `:authority x`, and `x` with its value: 32 bytes
    // for each besides.
    let others = 7 + 3 + 7 + 4 + 5 + 1 + 10 + 1 + 1 + 5 * 32;
    for (stream, size, status) in [(1, 8 * 1024 - 1, "200"), (3, 8 * 1024, "431")] {
        let header = [head("GET", "/"), field("x", &"y".repeat(size - others))].concat();
        client.send(HEADERS, END_STREAM | END_HEADERS, stream, &header);
        assert_eq!(client.wait_for(HEADERS).status(), status, "{size}");
    }
    counted(&running, Refusal::Http2Refused, 1);
}

#[test]
fn paths_rates_and_numbers_are_answered_as_over_http1() {
    let rate = PeerRate::new(1).burst(2);
    let limits = Limits::new().max_uri(20).peer_rate(rate);
    let running = start(limits);
    let mut client = Client::new(&running);
    client.get(1, &"/x".repeat(20));
    assert_eq!(client.wait_for(HEADERS).status(), "414");
    counted(&running, Refusal::UriTooLong, 1);
    let mut client = Client::new(&running);
    for stream in [1, 3, 5, 7] {
        client.get(stream, "/");
    }
    until("one is refused", || running.http_counts().refused(Refusal::PeerRate) > 0);
    let (gate, app) = Gate::on(app());
    let limits = Limits::new().max_requests(1);
    let running = server().limits(limits).start(app).unwrap();
    let mut client = Client::new(&running);
    client.get(1, "/gated");
    gate.wait_for_one();
    client.get(3, "/");
    let refused = client.wait_for(HEADERS);
    assert_eq!((refused.stream, refused.status().as_str()), (3, "503"));
    counted(&running, Refusal::Requests, 1);
    gate.open();
    assert_eq!(client.wait_for(HEADERS).stream, 1);
}

#[test]
fn one_stream_too_many_is_refused_and_may_be_tried_again() {
    let http2 = Http2Limits::new().max_streams(2);
    let running = start(Limits::new().http2(http2));
    let mut client = Client::new(&running);
    let settings = client.wait_for(SETTINGS);
    let announced = settings.payload.chunks(6).any(|setting| {
        setting[..2] == MAX_STREAMS.to_be_bytes() && setting[2..] == 2_u32.to_be_bytes()
    });
    assert!(announced, "{settings:?}");
    for stream in [1, 3, 5] {
        client.get(stream, "/never");
    }
    let reset = client.wait_for(RST_STREAM);
    assert_eq!((reset.stream, reset.error()), (5, REFUSED_STREAM));
    counted(&running, Refusal::Http2Refused, 1);
}

#[test]
fn what_is_idle_or_old_or_has_asked_enough_goes_away_without_an_error() {
    let running = start(Limits::new().idle_timeout(SHORT));
    let mut client = Client::new(&running);
    serves(&mut client, 1);
    assert_eq!(client.goaway(), NO_ERROR);
    counted(&running, Refusal::IdleTimeout, 1);

    let running = start(Limits::new().max_requests_per_connection(2));
    let mut client = Client::new(&running);
    serves(&mut client, 1);
    serves(&mut client, 3);
    assert_eq!(client.goaway(), NO_ERROR);

    let max_age = MaxAge::new(SHORT).jitter(0.0).grace(SHORT);
    let running = start(Limits::new().max_age(max_age));
    let mut client = Client::new(&running);
    serves(&mut client, 1);
    assert_eq!(client.goaway(), NO_ERROR);
    let mut client = Client::new(&running);
    client.get(1, "/never");
    assert_eq!(client.goaway(), NO_ERROR);
    counted(&running, Refusal::MaxAge, 1);
}

/// `/read-on` answers, and a task still reads the request's body, and tells its length.
fn app_that_reads_on() -> (Router, mpsc::Receiver<Result<usize, axum::Error>>) {
    let (tell, told) = mpsc::channel();
    let read_on = move |body: Body| {
        let tell = tell.clone();
        async move {
            wakeful::spawn(async move {
                tell.send(body.collect().await.map(|body| body.to_bytes().len())).unwrap();
            })
            .detach();
            "answered"
        }
    };
    (app().route("/read-on", post(read_on)), told)
}

/// Sends an upload for a while after its response. Returns how much it sent, and its longest pause.
fn uploads_on(client: &mut Client, stream: u32, time: Duration) -> (usize, Duration) {
    let (begun, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
    let mut sent = 0;
    while begun.elapsed() < time {
        client.send(DATA, 0, stream, &[b'y'; 10]);
        sent += 10;
        thread::sleep(Duration::from_millis(20));
        longest = longest.max(mem::replace(&mut last, Instant::now()).elapsed());
    }
    client.send(DATA, END_STREAM, stream, b"");
    (sent, longest)
}

#[test]
fn a_client_that_sends_its_upload_on_is_not_idle() {
    const IDLE: Duration = Duration::from_millis(500);
    let (app, told) = app_that_reads_on();
    let running = server().limits(Limits::new().idle_timeout(IDLE)).start(app).unwrap();
    let mut client = Client::new(&running);
    client.send(HEADERS, END_HEADERS, 1, &head("POST", "/read-on"));
    assert_eq!(client.wait_for(DATA).payload, b"answered");
    let (sent, longest) = uploads_on(&mut client, 1, 3 * IDLE);
    assert_eq!(told.recv_timeout(GUARD).unwrap().unwrap(), sent);
    // Unless this process was itself stopped for so long.
    if longest < IDLE / 2 {
        assert_eq!(running.http_counts().refused(Refusal::IdleTimeout), 0);
    }
    // Then it is idle.
    assert_eq!(client.goaway(), NO_ERROR);
}

#[test]
fn a_client_that_sends_its_upload_on_is_not_idle_in_a_drain() {
    const GRACE: Duration = Duration::from_secs(4);
    let (app, told) = app_that_reads_on();
    let running = server().start(app).unwrap();
    let mut client = Client::new(&running);
    client.send(HEADERS, END_HEADERS, 1, &head("POST", "/read-on"));
    assert_eq!(client.wait_for(DATA).payload, b"answered");
    let draining = thread::spawn(move || running.shutdown(GRACE).unwrap());
    client.wait_for(GOAWAY);
    // A client that is idle has half of the grace period.
    let (sent, longest) = uploads_on(&mut client, 1, GRACE * 2 / 3);
    // Unless this process was itself stopped for so long.
    if longest < GRACE / 6 {
        assert_eq!(told.recv_timeout(GUARD).unwrap().unwrap(), sent);
    }
    assert_eq!(client.goaway(), NO_ERROR);
    drop(client);
    draining.join().unwrap();
}

#[test]
fn an_old_connection_ends_although_it_was_told_to_leave_before() {
    let max_age = MaxAge::new(SHORT).jitter(0.0).grace(SHORT);
    let running = start(Limits::new().max_requests_per_connection(1).max_age(max_age));
    let mut client = Client::new(&running);
    client.get(1, "/never");
    assert_eq!(client.goaway(), NO_ERROR);
    counted(&running, Refusal::MaxAge, 1);
}

#[test]
fn a_header_that_does_not_end_and_a_client_that_does_not_answer_end_the_connection() {
    let running = start(Limits::new().header_timeout(SHORT));
    let mut client = Client::new(&running);
    serves(&mut client, 1);
    client.send(HEADERS, END_STREAM, 3, &head("GET", "/"));
    assert_eq!(client.goaway(), ENHANCE_YOUR_CALM);
    counted(&running, Refusal::HeaderTimeout, 1);

    let http2 = Http2Limits::new().ping_interval(SHORT).ping_timeout(SHORT);
    let running = start(Limits::new().http2(http2));
    let mut client = Client::new(&running);
    // It reads everything, and answers nothing.
    while client.next().is_some() {}
    counted(&running, Refusal::Http2PingTimeout, 1);
}

#[test]
fn what_is_no_http2_is_a_protocol_error() {
    let running = start(Limits::default());
    let mut client = Client::new(&running);
    client.send(DATA, 0, 1, b"of no stream");
    assert_eq!(client.goaway(), PROTOCOL_ERROR);
    counted(&running, Refusal::Http2Protocol, 1);
    is_served(&running);
}

/// hyper ends such a connection as if its client had closed.
#[test]
fn a_connect_with_a_length_is_a_protocol_error() {
    let running = start(Limits::default());
    let mut client = Client::new(&running);
    let fields = [(":method", "CONNECT"), (":authority", "x:80"), ("content-length", "5")];
    let fields: Vec<u8> = fields.into_iter().flat_map(|(name, value)| field(name, value)).collect();
    client.send(HEADERS, END_HEADERS, 1, &fields);
    assert_eq!(client.goaway(), PROTOCOL_ERROR);
    counted(&running, Refusal::Http2Protocol, 1);
    is_served(&running);
}

#[test]
fn who_sends_many_frames_at_once_gives_way_to_others_between_them() {
    const PINGS: usize = 900;
    let http2 = Http2Limits::new().max_control_frames_per_second(1000);
    let running = start(Limits::new().http2(http2));
    let mut client = Client::new(&running);
    serves(&mut client, 1);
    let polls = || running.handles().iter().map(|handle| handle.metrics().polls).sum::<u64>();
    let before = polls();
    client.write(&frame(PING, 0, 0, b"anything").repeat(PINGS));
    for _ in 0..PINGS {
        assert_eq!(client.wait_for(PING).payload, b"anything");
    }
    // 15 KB: at most what h2 reads at once (8 KiB), and from then on pieces of 512 bytes.
    until("it gave way", || polls() - before >= 12);
    serves(&mut client, 3);
}

#[test]
fn who_reads_much_in_small_pieces_floods_nobody() {
    const PIECE: u32 = 4096;
    let running = start(Limits::default());
    let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, 16 << 20)]);
    client.send(WINDOW_UPDATE, 0, 0, &(16_u32 << 20).to_be_bytes());
    client.get(1, "/large");
    let mut length = 0;
    loop {
        let frame = client.wait_for(DATA);
        length += frame.payload.len();
        if frame.flags & END_STREAM != 0 {
            break;
        }
    }
    assert_eq!(length, 8 << 20);
    // It had all of it before it read any.
    for _ in 0..length / PIECE as usize {
        client.send(WINDOW_UPDATE, 0, 0, &PIECE.to_be_bytes());
        client.send(WINDOW_UPDATE, 0, 1, &PIECE.to_be_bytes());
    }
    serves(&mut client, 3);
}

#[test]
fn a_header_in_two_pieces_is_no_stream_that_was_refused() {
    let running = start(Limits::default());
    let mut client = Client::new(&running);
    // So that no answer of ours to it comes between the pieces.
    client.wait_for(SETTINGS);
    let get = frame(HEADERS, END_STREAM | END_HEADERS, 1, &head("GET", "/"));
    let (start, rest) = get.split_at(12);
    client.write(&[&frame(PING, 0, 0, b"anything"), start].concat());
    client.wait_for(PING);
    client.write(rest);
    assert_eq!(client.wait_for(HEADERS).status(), "200");
    assert_eq!(running.http_counts().refused(Refusal::Http2Refused), 0);
}

#[test]
fn the_smallest_window_of_a_stream_lets_a_body_through() {
    const LENGTH: usize = 100_000;
    let running = start(Limits::new().http2(Http2Limits::new().stream_window(0)));
    let addr = addr(&running);
    wakeful::block_on(async {
        let mut client = http2_client(addr).await;
        // Its answer comes after the server's settings.
        client.send_request(request("GET", "/", "")).await.unwrap();
        let sent = client.send_request(request("POST", "/read", vec![b'x'; LENGTH]));
        let answer = wakeful::time::timeout(GUARD, sent).await.expect("there is room").unwrap();
        let read = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(read, LENGTH.to_string());
    });
}
