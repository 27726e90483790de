//! How the peer's frames become answers and failures.

use super::*;

/// Passes the frames to a conversation with nine requests, cut in several ways. Returns the
/// outcomes in order of arrival, `!` if the connection is closing, the keys of the answers, and the
/// kinds of the frames in the reply.
fn answered(frames_in: &[&[u8]]) -> Result<String, String> {
    let bytes = frames_in.concat();
    let ways = [1, 2, 5, bytes.len()].map(|step| {
        let mut http = opened(&get(), &[]);
        for _ in 0..9 {
            http.request(&mut Vec::new());
        }
        let (mut out, mut answers, mut input) = (Vec::new(), Vec::new(), Vec::new());
        for part in bytes.chunks(step) {
            input.extend_from_slice(part);
            let taken = http.receive(&input, &mut out, &mut answers);
            input.drain(..taken.map_err(|error| error.what)?);
        }
        let closing = if http.is_closing() { "!" } else { "" };
        let replies = frames(&out);
        let kinds: String = replies.iter().map(|it| char::from(b'0' + it[3])).collect();
        let keys: Vec<_> = answers.iter().map(|it| it.key.to_string()).collect();
        Ok(format!("{}{closing} {} {kinds}", outcomes(&answers), keys.concat()))
    });
    assert!(ways.iter().all(|way| *way == ways[0]), "{ways:?}");
    ways[0].clone()
}

fn good(bytes: &[&[u8]], expected: &str) {
    assert_eq!(answered(bytes).as_deref(), Ok(expected), "{}", bytes.concat().escape_ascii());
}

fn bad(bytes: &[&[u8]], part: &str) {
    let what = answered(bytes).unwrap_err();
    assert!(what.contains(part), "{what}");
}

fn head(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(1, 4, stream, block)
}

fn last(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(1, 5, stream, block)
}

#[test]
fn the_status_decides() {
    good(&[&last(1, b"\x88"), &last(3, b"\x8e"), &last(5, b"\x8b")], "+-+ 012 ");
    good(&[&last(5, b"\x08\x03400"), &last(1, b"\x08\x03399"), &last(3, b"\x89")], "-++ 201 ");
    // The first answer puts 503 into the table, and the second one refers to it.
    good(&[&last(1, b"\x48\x03503"), &last(3, b"\xbe")], "-- 01 ");
    // A header block on a stream that is answered already still changes the table.
    good(&[&last(1, b"\x88"), &last(1, b"\x48\x03503"), &last(3, b"\xbe")], "+- 01 ");
}

#[test]
fn of_grpc_the_trailers_decide() {
    let template = Template::grpc("localhost", "/a.B/C", b"\x0a\x01x");
    assert_eq!(template.body, b"\0\0\0\0\x03\x0a\x01x");
    let mut http = opened(&template, &[]);
    for _ in 0..4 {
        http.request(&mut Vec::new());
    }
    let status = |value: &[u8]| [b"\x10\x0bgrpc-status\x01", value].concat();
    let (mut answers, mut out) = (Vec::new(), Vec::new());
    for frames in [
        [head(1, b"\x88"), last(1, &status(b"0"))],
        [head(3, b"\x88"), last(3, &status(b"4"))],
        // There is no `grpc-status`.
        [head(5, b"\x88"), frame(0, 1, 5, b"")],
        // There are only trailers.
        [last(7, &[b"\x88".to_vec(), status(b"0")].concat()), Vec::new()],
    ] {
        http.receive(&frames.concat(), &mut out, &mut answers).unwrap();
    }
    assert_eq!(outcomes(&answers), "+--+");
}

#[test]
fn bodies_and_trailers_are_dropped() {
    good(&[&head(1, b"\x88"), &frame(0, 0, 1, b"abc"), &frame(0, 1, 1, b"d")], "+ 0 ");
    good(&[&head(1, b"\x88"), &frame(0, 0, 1, b"abc")], "  ");
    good(&[&head(1, b"\x88"), &frame(0, 1, 1, b"")], "+ 0 ");
    good(&[&head(1, b"\x88"), &frame(0, 9, 1, b"\x02ab\0\0")], "+ 0 ");
    good(&[&head(1, b"\x88"), &frame(0, 9, 1, b"\0"), &last(3, b"\x88")], "++ 01 ");
    good(&[&head(1, b"\x8d"), &frame(0, 0, 1, b"a"), &last(1, b"\0\x01a\x01b")], "- 0 ");
    good(
        &[&head(1, b"\x88"), &head(3, b"\x88"), &frame(0, 1, 3, b"b"), &frame(0, 1, 1, b"a")],
        "++ 10 ",
    );
}

#[test]
fn informational_heads_answer_nothing() {
    good(&[&head(1, b"\x08\x03100"), &head(1, b"\x08\x03103"), &last(1, b"\x88")], "+ 0 ");
    good(&[&head(1, b"\x08\x03100")], "  ");
}

#[test]
fn blocks_may_be_padded_prioritized_and_continued() {
    good(&[&frame(1, 0x0d, 1, b"\x02\x88\0\0")], "+ 0 ");
    good(&[&frame(1, 0x25, 1, b"\x80\0\0\0\x10\x88")], "+ 0 ");
    good(&[&frame(1, 0x2d, 1, b"\x01\0\0\0\0\x10\x88\0")], "+ 0 ");
    let parts = [frame(1, 1, 1, b"\x08"), frame(9, 0, 1, b""), frame(9, 4, 1, b"\x03404")];
    good(&[&parts.concat(), &last(3, b"\x88")], "-+ 01 ");
}

#[test]
fn malformed_answers_cost_only_their_stream() {
    let next = last(3, b"\x88");
    good(&[&last(1, b""), &next], "-+ 01 3");
    good(&[&last(1, b"\x88\x88"), &next], "-+ 01 3");
    good(&[&last(1, b"\x08\x03abc"), &next], "-+ 01 3");
    good(&[&last(1, b"\x08\x03100"), &next], "-+ 01 3");
    good(&[&head(1, b"\x08\x03101"), &next], "-+ 01 3");
    good(&[&frame(0, 0, 1, b"abc"), &next], "-+ 01 3");
    good(&[&frame(0, 1, 1, b"abc"), &next], "-+ 01 3");
    good(&[&head(1, b"\x88"), &head(1, b"\0\x01a\x01b"), &next], "-+ 01 3");
    good(&[&head(1, b"\x88"), &last(1, b"\x88"), &next], "-+ 01 3");
}

#[test]
fn a_reset_is_a_failure_unless_all_was_said() {
    let reset = |stream| frame(3, 0, stream, &[0, 0, 0, 7]);
    good(&[&reset(3), &last(1, b"\x88"), &reset(1), &reset(3)], "-+ 10 ");
    good(&[&head(1, b"\x88"), &reset(1), &frame(0, 1, 1, b"late")], "- 0 ");
}

#[test]
fn going_away_fails_what_was_not_taken() {
    let away = |last: u8| frame(7, 0, 0, &[0, 0, 0, last, 0, 0, 0, 0, b'd']);
    good(&[&away(5), &last(3, b"\x88"), &last(1, b"\x88")], "------++! 34567810 ");
    good(&[&away(127), &last(1, b"\x88"), &away(3)], "+-------! 02345678 ");
    good(&[&away(0), &last(3, b"\x88")], "---------! 012345678 ");
    let mut http = opened(&get(), &[]);
    told(&mut http, &away(127));
    assert!(!http.may_request());
}

#[test]
fn pings_and_settings_are_acknowledged_and_extensions_ignored() {
    good(&[&frame(6, 0, 0, b"abcdefgh"), &frame(6, 1, 0, b"abcdefgh")], "  6");
    good(&[&settings(&[(99, 7), (3, 1)]), &frame(4, 1, 0, &[])], "  4");
    good(&[&frame(2, 0, 1, b"\0\0\0\0\0"), &frame(77, 255, 2, b"abc"), &last(1, b"\x88")], "+ 0 ");
    let mut http = opened(&get(), &[]);
    assert_eq!(told(&mut http, &frame(6, 0, 0, b"12345678")), [frame(6, 1, 0, b"12345678")]);
}

#[test]
fn frames_out_of_place_are_errors() {
    for early in [last(1, b"\x88"), frame(4, 1, 0, &[]), frame(6, 0, 0, &[0; 8])] {
        let mut http = Http2::new(&get()).unwrap();
        http.request(&mut Vec::new());
        assert!(take(&mut http, &early, 4).unwrap_err().what.contains("first"));
    }
    bad(&[&last(2, b"\x88")], "nobody opened");
    bad(&[&last(19, b"\x88")], "nobody opened");
    bad(&[&frame(0, 0, 19, b"a")], "nobody opened");
    bad(&[&frame(3, 0, 19, &[0; 4])], "nobody opened");
    bad(&[&update(19, 1)], "nobody opened");
    for (kind, stream) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (6, 1), (7, 1)] {
        bad(&[&frame(kind, 4, stream, &[0; 8])], "on stream");
    }
    bad(&[&frame(9, 4, 1, b"\x88")], "none begun");
    bad(&[&frame(1, 1, 1, b"\x88"), &frame(9, 4, 3, b"")], "inside a header block");
    bad(&[&frame(1, 1, 1, b"\x88"), &frame(77, 0, 0, b"")], "inside a header block");
    bad(&[&frame(5, 4, 1, b"\0\0\0\x02\x88")], "pushed");
}

#[test]
fn wrong_sizes_are_errors() {
    for (kind, stream, length) in
        [(2, 1, 4), (3, 1, 5), (4, 0, 5), (6, 0, 7), (7, 0, 7), (8, 0, 3), (8, 1, 5)]
    {
        bad(&[&frame(kind, 0, stream, &vec![0; length])], "bytes");
    }
    bad(&[&frame(4, 1, 0, &[0; 6])], "6 bytes");
    bad(&[&frame(77, 0, 0, &[0; 16_385])], "16385 bytes");
    bad(&[&frame(0, 8, 1, b"")], "0 bytes");
    bad(&[&frame(0, 8, 1, b"\x02a")], "padding");
    bad(&[&frame(1, 0x0d, 1, b"\x02\x88")], "padding");
    bad(&[&frame(1, 0x25, 1, b"\0\0\0\0")], "bytes");
    bad(&[&settings(&[(5, 16_383)])], "16383 bytes");
    bad(&[&settings(&[(5, 1 << 24)])], "bytes");
    bad(&[&settings(&[(2, 1)])], "pushed");
}

#[test]
fn header_blocks_have_limits() {
    bad(&[&last(1, b"\xbe")], "not in the table");
    bad(&[&last(1, b"\x48\x82\0")], "beyond");
    let mut long = frame(1, 0, 1, &[0x88; 16_384]);
    for _ in 0..4 {
        long.extend(frame(9, 0, 1, &[0x88; 16_384]));
    }
    let mut http = opened(&get(), &[]);
    http.request(&mut Vec::new());
    assert!(take(&mut http, &long, 4096).unwrap_err().what.contains("block of more"));
}
