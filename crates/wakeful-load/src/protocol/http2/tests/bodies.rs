//! Bodies and windows in both directions.

use super::*;
use crate::protocol::http2::settings::WINDOW;

/// Returns the DATA frames as (stream, length, whether it is the last).
fn data(frames: &[Vec<u8>]) -> Vec<(u32, usize, bool)> {
    let headers = frames.iter().map(|frame| Header::read(frame).unwrap());
    let data = headers.filter(|it| it.kind == Kind::Data);
    data.map(|it| (it.stream, it.length, it.has(END_STREAM))).collect()
}

fn ask(http: &mut Http2) -> Vec<(u32, usize, bool)> {
    let mut out = Vec::new();
    assert!(http.may_request());
    http.request(&mut out);
    data(&frames(&out))
}

#[test]
fn bodies_are_cut_into_frames_that_the_peer_takes() {
    let mut http = opened(&post(40_000), &[]);
    assert_eq!(ask(&mut http), [(1, 16_384, false), (1, 16_384, false), (1, 7232, true)]);
    let mut http = opened(&post(40_000), &[(5, 39_999)]);
    let mut out = Vec::new();
    http.request(&mut out);
    let sent = frames(&out);
    assert_eq!(data(&sent), [(1, 39_999, false), (1, 1, true)]);
    let body: Vec<_> = sent[1..].iter().flat_map(|frame| &frame[HEADER..]).copied().collect();
    assert_eq!(body, post(40_000).body);
}

#[test]
fn a_body_waits_for_its_streams_window() {
    let mut http = opened(&post(10), &[(4, 4)]);
    assert_eq!(ask(&mut http), [(1, 4, false)]);
    assert_eq!(ask(&mut http), [(3, 4, false)]);
    assert_eq!(data(&told(&mut http, &update(3, 5))), [(3, 5, false)]);
    assert_eq!(data(&told(&mut http, &update(0, 5))), []);
    assert_eq!(data(&told(&mut http, &update(3, 5))), [(3, 1, true)]);
    // A new setting changes the windows of the open streams.
    assert_eq!(data(&told(&mut http, &settings(&[(4, 6)]))), [(1, 2, false)]);
    assert_eq!(data(&told(&mut http, &settings(&[(4, 0)]))), []);
    assert_eq!(data(&told(&mut http, &update(1, 5))), []);
    assert_eq!(data(&told(&mut http, &update(1, 2))), [(1, 1, false)]);
    assert_eq!(data(&told(&mut http, &settings(&[(4, 10)]))), [(1, 3, true)]);
    assert!(http.stalled.is_empty());
}

#[test]
fn the_oldest_body_gets_the_connections_window_first() {
    let mut http = opened(&post(40_000), &[]);
    assert_eq!(ask(&mut http).len(), 3);
    assert_eq!(ask(&mut http), [(3, 16_384, false), (3, 9151, false)]);
    assert!(!http.may_request(), "the connection's window is used up");
    assert_eq!(data(&told(&mut http, &update(0, 14_465))), [(3, 14_465, true)]);
    assert!(!http.may_request());
    assert_eq!(data(&told(&mut http, &update(0, 10))), []);
    assert_eq!(ask(&mut http), [(5, 10, false)]);
    // Requests without bodies do not wait.
    let mut http = opened(&get(), &[]);
    http.window = 0;
    assert!(http.may_request());
}

#[test]
fn windows_that_overflow_or_grow_by_nothing_are_faults() {
    let error = |bytes: &[u8]| {
        let mut http = opened(&post(10), &[(4, 4)]);
        ask(&mut http);
        take(&mut http, bytes, 3).unwrap_err().what
    };
    assert!(error(&update(0, MAX_31)).contains("window"));
    assert!(error(&update(0, 0)).contains("window"));
    assert!(error(&settings(&[(4, 1 << 31)])).contains("window"));
    let grown = [update(1, MAX_31 - 10), settings(&[(4, 100)])].concat();
    assert!(error(&grown).contains("window"));
    // A faulty update of a stream's window fails only that stream.
    for (bytes, code) in [(0, 1), (MAX_31, 3)] {
        let mut http = opened(&get(), &[]);
        ask(&mut http);
        let (mut out, mut answers) = (Vec::new(), Vec::new());
        http.receive(&update(1, bytes), &mut out, &mut answers).unwrap();
        assert_eq!((out, outcomes(&answers)), (frame(3, 0, 1, &[0, 0, 0, code]), "-".into()));
        assert!(http.stalled.is_empty() && http.streams.is_empty());
    }
}

#[test]
fn an_answer_before_the_bodys_end_takes_back_the_rest() {
    let mut http = opened(&post(10), &[(4, 4)]);
    ask(&mut http);
    let (mut out, mut answers) = (Vec::new(), Vec::new());
    http.receive(&frame(1, 5, 1, b"\x8d"), &mut out, &mut answers).unwrap();
    assert_eq!((out, outcomes(&answers)), (frame(3, 0, 1, &[0, 0, 0, 8]), "-".into()));
    let late = [frame(3, 0, 1, &[0; 4]), update(1, 9), update(0, 9)].concat();
    assert_eq!(told(&mut http, &late), [] as [Vec<u8>; 0]);
}

#[test]
fn room_is_given_back_when_half_of_it_is_used() {
    let mut http = opened(&get(), &[]);
    http.request(&mut Vec::new());
    told(&mut http, &frame(1, 4, 1, b"\x88"));
    let nearly = WINDOW / 2 - 4;
    http.receiving.received = nearly;
    http.streams.get_mut(&1).unwrap().received = nearly;
    // The padding and the byte with its length count, too.
    let padded = frame(0, 8, 1, b"\x01x\0");
    assert_eq!(told(&mut http, &padded), [] as [Vec<u8>; 0]);
    let half = nearly + 4;
    assert_eq!(told(&mut http, &frame(0, 0, 1, b"a")), [update(0, half), update(1, half)]);
    // The stream has ended, so only the connection needs room.
    http.receiving.received = nearly;
    http.streams.get_mut(&1).unwrap().received = nearly;
    let (mut out, mut answers) = (Vec::new(), Vec::new());
    http.receive(&frame(0, 1, 1, b"abcd"), &mut out, &mut answers).unwrap();
    assert_eq!((out, outcomes(&answers)), (update(0, half), "+".into()));
    // Bytes on a stream that is answered already count, too.
    http.receiving.received = nearly;
    assert_eq!(told(&mut http, &frame(0, 0, 1, b"abcd")), [update(0, half)]);
}

#[test]
fn more_than_the_window_is_an_error() {
    let mut http = opened(&get(), &[]);
    http.request(&mut Vec::new());
    told(&mut http, &frame(1, 4, 1, b"\x88"));
    http.streams.get_mut(&1).unwrap().received = WINDOW - 3;
    let error = take(&mut http, &frame(0, 0, 1, b"abcd"), 1).unwrap_err();
    assert!(error.what.contains("room"), "{error}");
}
