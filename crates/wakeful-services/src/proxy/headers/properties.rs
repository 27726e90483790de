//! Checks that every forwarded message can be understood in only one way, whatever came.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use proptest::prelude::*;

use super::fuzzing;

/// Names that matter, written in their ways.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec![
            "host", "Host", "content-length", "Content-Length", "transfer-encoding", "Transfer-Encoding", "connection",
            "te", "trailer", "upgrade", "expect", "keep-alive", "proxy-connection", "proxy", "http2-settings", "via",
            "x-forwarded-for", "x-forwarded-host", "forwarded", "cookie", "max-forwards", "content_length",
            "transfer_encoding", "X_Forwarded_For",
        ])
        .prop_map(str::to_owned),
        1 => "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}",
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::sample::select(vec![
            "", "0", "5", "05", "+5", "5, 5", "18446744073709551616", "chunked", "Chunked", "gzip, chunked",
            "chunked, chunked", "identity", ",chunked", "x", "a.example", "a.example:80", "u@a", "a:b", "[::1]:80", "a b",
            "close", "upgrade", "Upgrade, close", "websocket", "h2c, WebSocket", "spdy/3.1", "keep-alive, host", "host, content-length, transfer-encoding, te", "trailers", "100-continue", "h2c",
            "1.2.3.4", "for=1.2.3.4", "a=1",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

fn target() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "/", "*", "/a?b", "//evil/", "http://real/", "http://real", "http://real?a", "http://u@real/", "ftp://real/",
            "real:80", "a", "/a#b", "https://[::1]:1/",
        ])
        .prop_map(str::to_owned),
        1 => "[!-~]{1,20}",
    ]
}

fn method() -> impl Strategy<Value = Method> {
    prop::sample::select(vec![
        Method::GET,
        Method::POST,
        Method::OPTIONS,
        Method::TRACE,
        Method::CONNECT,
        Method::HEAD,
    ])
}

fn fields() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    prop::collection::vec((name(), value()), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_goes_on_can_be_understood_in_one_way_only(
        method in method(),
        target in target(),
        version in prop::sample::select(vec![Version::HTTP_10, Version::HTTP_11, Version::HTTP_2]),
        fields in fields(),
    ) {
        let Ok(uri) = target.parse() else { return Ok(()) };
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(&value)) else {
                continue;
            };
            headers.append(name, value);
        }
        fuzzing::check(&fuzzing::parts(method, uri, version, headers));
    }

    #[test]
    fn a_head_in_bytes_does_as_well(
        method in method(),
        target in target(),
        end in prop::sample::select(vec!["\r\n", "\n", "\r", "\r\r\n"]),
        colon in prop::sample::select(vec![": ", ":", " : ", "\t:", ":\t", ":\r\n "]),
        fields in fields(),
    ) {
        let mut bytes = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
        for (name, value) in fields {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(colon.as_bytes());
            bytes.extend_from_slice(&value);
            bytes.extend_from_slice(end.as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        if let Some(parts) = fuzzing::head(&bytes) {
            fuzzing::check(&parts);
        }
    }
}
