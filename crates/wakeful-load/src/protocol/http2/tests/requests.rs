//! Which bytes are sent, and when.

use super::*;

fn asked(http: &mut Http2) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(http.may_request());
    http.request(&mut out);
    out
}

#[test]
fn a_connection_opens_with_preface_settings_and_a_wide_window() {
    let mut out = Vec::new();
    Http2::new(&get()).unwrap().open(&mut out);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert!(out.starts_with(preface));
    let ours = settings(&[(2, 0), (4, (1 << 30) - 1)]);
    assert_eq!(frames(&out[preface.len()..]), [ours, update(0, (1 << 30) - 1 - 65_535)]);
}

#[test]
fn requests_differ_in_nothing_but_their_stream() {
    let mut template = Template::http("PUT", "a:1", "/x?y");
    template.headers.push(("X-A".into(), "b".into()));
    template.headers.push(("Accept".into(), "c".into()));
    template.headers.push(("Host".into(), "d".into()));
    template.body = b"body".to_vec();
    let mut http = opened(&template, &[]);
    let block = b"\x02\x03PUT\x86\x04\x04/x?y\x01\x01d\x00\x03x-a\x01b\x0f\x04\x01c\x0f\x0d\x014";
    for stream in [1, 3, 5] {
        let expected = [frame(1, 4, stream, block), frame(0, 1, stream, b"body")];
        assert_eq!(frames(&asked(&mut http)), expected);
    }
    let mut http = opened(&get(), &[]);
    assert_eq!(asked(&mut http), frame(1, 5, 1, b"\x82\x86\x84\x01\x09localhost"));
    let mut http = opened(&post(0), &[]);
    let block = b"\x83\x86\x84\x01\x09localhost\x0f\x0d\x010";
    assert_eq!(asked(&mut http), frame(1, 5, 1, block));
}

#[test]
fn keys_are_the_streams_order() {
    let mut http = opened(&get(), &[]);
    let keys: Vec<_> = (0..5).map(|_| http.request(&mut Vec::new())).collect();
    assert_eq!(keys, [0, 1, 2, 3, 4]);
}

#[test]
fn long_values_have_long_lengths() {
    let mut template = get();
    template.headers.push(("a".into(), "b".repeat(1000)));
    let out = asked(&mut opened(&template, &[]));
    let end = [&b"\x00\x01a\x7f\xe9\x06"[..], &[b'b'; 1000]].concat();
    assert!(out.ends_with(&end));
}

#[test]
fn a_smaller_table_is_acknowledged_once() {
    let mut http = opened(&get(), &[(1, 100), (1, 4096)]);
    let block = b"\x82\x86\x84\x01\x09localhost";
    assert_eq!(asked(&mut http), frame(1, 5, 1, &[b"\x20", &block[..]].concat()));
    assert_eq!(asked(&mut http), frame(1, 5, 3, block));
    told(&mut http, &settings(&[(1, 0)]));
    assert_eq!(asked(&mut http), frame(1, 5, 5, block));
}

#[test]
fn no_more_streams_than_the_peer_allows() {
    let mut http = opened(&get(), &[(3, 2)]);
    asked(&mut http);
    asked(&mut http);
    assert!(!http.may_request());
    let (answers, _) = take(&mut http, &frame(1, 5, 1, b"\x88"), 99).unwrap();
    assert_eq!(outcomes(&answers), "+");
    asked(&mut http);
    assert!(!http.may_request());
    told(&mut http, &settings(&[(3, 3)]));
    assert!(http.may_request());
    told(&mut http, &settings(&[(3, 0)]));
    assert!(!http.may_request() && !http.is_closing());
}

#[test]
fn numbers_of_streams_come_to_an_end() {
    let mut http = opened(&get(), &[]);
    http.next = MAX_31;
    assert!(!http.is_closing());
    let sent = asked(&mut http);
    assert_eq!(sent[5..9], MAX_31.to_be_bytes());
    assert!(!http.may_request() && http.is_closing());
    let (answers, _) = take(&mut http, &frame(1, 5, MAX_31, b"\x88"), 99).unwrap();
    assert_eq!(outcomes(&answers), "+");
}

#[test]
fn templates_that_cannot_be_sent_are_refused() {
    let refused = |name: &str, value: &str| {
        let mut template = get();
        template.headers.push((name.into(), value.into()));
        Http2::new(&template).err()
    };
    for name in ["Connection", "keep-alive", "Proxy-Connection", "upgrade", "TE"] {
        let lower = name.to_ascii_lowercase();
        assert_eq!(refused(name, "a"), Some(InvalidTemplate::ConnectionHeader(lower)));
    }
    assert_eq!(refused("te", "trailers"), None);
    // The largest block has one byte less than a frame has room for.
    let most = MIN_MAX_FRAME - 1 - 20;
    assert_eq!(refused("a", &"b".repeat(most)), None);
    let long = Some(InvalidTemplate::HeadersTooLong(MIN_MAX_FRAME));
    assert_eq!(refused("a", &"b".repeat(most + 1)), long);
    assert!(matches!(refused("a b", "c"), Some(InvalidTemplate::HeaderName(_))));
}
