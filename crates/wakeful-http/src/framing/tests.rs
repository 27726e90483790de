use proptest::prelude::*;

use super::*;
use crate::fuzzing;

/// Whether each request is clean, if all of them come in one read.
fn verdicts(bytes: &str, requests: usize) -> Vec<bool> {
    fuzzing::framing(bytes.as_bytes());
    let mut framing = Framing::default();
    framing.feed(bytes.as_bytes());
    (0..requests).map(|_| framing.next()).collect()
}

#[test]
fn both_lengths_are_seen_in_any_order_and_any_case() {
    let (length, coding) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
    let body = "0\r\n\r\n";
    for fields in [
        format!("{length}{coding}"),
        format!("{coding}{length}"),
        format!("{length}Host: x\r\n{coding}"),
        format!("{length}{length}{coding}"),
        format!("{coding}{coding}{length}"),
        format!("{coding}Content-Length:\r\n"),
        format!("{coding}Content-Length: five\r\n"),
        "CONTENT-LENGTH:5\ntransfer-ENCODING:chunked\n".to_owned(),
        "cOnTeNt-LeNgTh:\t 5 \t\r\nTRANSFER-encoding: \tChunked \r\n".to_owned(),
    ] {
        let request = format!("POST / HTTP/1.1\r\n{fields}\r\n{body}");
        assert_eq!(verdicts(&request, 1), [false], "{fields:?}");
        let behind = format!("GET / HTTP/1.1\r\nHost: x\r\n\r\n{request}");
        assert_eq!(verdicts(&behind, 2), [true, false], "{fields:?}");
    }
}

#[test]
fn one_length_is_clean_whatever_the_body_looks_like() {
    let head =
        "POST /in HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let size = head.len();
    let counted = format!("POST / HTTP/1.1\r\nContent-Length: {size}\r\n\r\n{head}");
    let coded = format!(
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{size:x};a=b\r\n{head}\r\n{size:X} \r\n{head}\r\n0\r\ncontent-length: 5\r\n\r\n"
    );
    let bare = "\r\n\nGET / HTTP/1.0\n\n";
    assert_eq!(
        verdicts(&[&counted, &coded, bare, &counted].concat(), 5),
        [true, true, true, true, false]
    );
}

#[test]
fn a_number_may_have_zeroes_and_spaces_and_nothing_else() {
    let of =
        |length: &str| verdicts(&format!("GET / HTTP/1.1\r\nContent-Length:{length}\r\n\r\nx"), 1);
    for clean in ["1", " 01", "\t1 \t", "0", "18446744073709551615"] {
        let mut framing = Framing::default();
        framing.feed(format!("GET / HTTP/1.1\r\nContent-Length:{clean}\r\n\r\n").as_bytes());
        assert!(framing.next(), "{clean:?}");
        of(clean);
    }
    for lost in
        ["", " ", "1 1", "+1", "1,1", "1x", "18446744073709551616", "1\r\nContent-Length: 2"]
    {
        assert_eq!(of(lost), [false], "{lost:?}");
    }
}

/// A field, in one of the ways in which it may be written.
fn field() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "Content-Length",
        "content-length",
        "Transfer-Encoding",
        "TRANSFER-ENCODING",
        "Host",
        "Cookie",
        "Content-Type",
        "TE",
        "t",
        "c",
        "Connection",
        "Content-Length ",
        "Expect",
        "Upgrade",
        "",
    ]);
    let colon = prop::sample::select(vec![": ", ":", ":\t", ":  ", " :", "\r\n: "]);
    let value = prop::sample::select(vec![
        "0",
        "5",
        "05",
        "5 ",
        "27",
        "chunked",
        "Chunked",
        "gzip, chunked",
        "identity",
        "x",
        "close",
        "keep-alive",
        "100-continue",
        "h2c",
        "",
        "-1",
    ]);
    let end = prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "\n", " \r\n", "\r\r\n"]);
    (name, colon, value, end)
        .prop_map(|(name, colon, value, end)| format!("{name}{colon}{value}{end}"))
}

fn fields() -> impl Strategy<Value = String> {
    let honest = prop::sample::select(vec![
        "Host: x\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\n",
    ]);
    let field = prop_oneof![3 => honest.prop_map(str::to_owned), 1 => field()];
    prop::collection::vec(field, 0..4).prop_map(|fields| fields.concat())
}

/// Heads, bodies, and bytes that look like them, in sequence.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /a HTTP/1.1\r\n",
        "POST / HTTP/1.0\r\n",
        "GET / HTTP/1.1\n",
        "\r\nGET http://a HTTP/1.1\r\n",
        "CONNECT a:1 HTTP/1.1\r\n",
        "get\r\n",
    ]);
    let body = prop::sample::select(vec![
        "",
        "",
        "hello",
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "1;a\r\n\n\r\n00 \r\nx: y\r\n\r\n",
        "\r\n",
        "1\r\n",
        "0\r\nContent-Length: 3\r\n\r\n",
        "0\r\nx\n\r\n\r\n",
        "0 \t ;a\r\n\r\n",
        "1b\r\nGET / HTTP/1.1\r\nTe: hi\r\n\r\n\r\n0\r\n\r\n",
        "10000000000000000\r\n",
        "2\nab",
    ]);
    let end = prop::sample::select(vec!["\r\n", "\r\n", "\r\n", "\n", "", "\r"]);
    let request = (line, fields(), end, body)
        .prop_map(|(line, fields, end, body)| format!("{line}{fields}{end}{body}"));
    let requests = prop::collection::vec(request, 1..5);
    let change = prop::option::weighted(
        0.3,
        (
            any::<prop::sample::Index>(),
            prop_oneof![Just(b'\n'), Just(b'\r'), Just(b' '), any::<u8>()],
        ),
    );
    (requests, change).prop_map(|(requests, change)| {
        let mut bytes = requests.concat().into_bytes();
        if let Some((at, byte)) = change {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn hyper_finds_the_same_requests_at_the_same_places(bytes in stream()) {
        fuzzing::framing(&bytes);
    }
}
