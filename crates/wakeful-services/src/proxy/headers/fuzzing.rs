//! The functions that a fuzzer calls, and what must be true of every request that is forwarded to a
//! backend.

use std::sync::OnceLock;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, UPGRADE};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use wakeful::net::PeerAddr;
use wakeful_http::client::HttpVersion;
use wakeful_http::{Caller, Security};

use super::{
    Asked, Client, ForwardedHeaders, Framing, Pseudonym, Question, Refusal, Settings, Step,
    Upgrades, to_backend,
};

/// There is only one, because it is never freed.
static PSEUDONYM: OnceLock<Pseudonym> = OnceLock::new();

/// Checks a head of HTTP/1, and the same head as if HTTP/2 had brought it.
pub(crate) fn heads(data: &[u8]) {
    if let Some(mut parts) = head(data) {
        check(&parts);
        parts.version = Version::HTTP_2;
        check(&parts);
    }
}

/// A head of HTTP/1 as hyper's parser reads it. `None`: it is refused.
pub(crate) fn head(bytes: &[u8]) -> Option<Parts> {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut fields);
    if !request.parse(bytes).ok()?.is_complete() {
        return None;
    }
    let mut headers = HeaderMap::new();
    for field in &*request.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    let version = if request.version? == 1 { Version::HTTP_11 } else { Version::HTTP_10 };
    let method = Method::from_bytes(request.method?.as_bytes()).ok()?;
    Some(parts(method, request.path?.parse().ok()?, version, headers))
}

/// A head of any HTTP.
pub(crate) fn parts(method: Method, uri: Uri, version: Version, headers: HeaderMap) -> Parts {
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    request.into_parts().0
}

/// Forwards the request in each possible way, and panics if a result could be understood in two
/// ways.
pub(crate) fn check(came: &Parts) {
    let peers = [PeerAddr::Unix, PeerAddr::Tcp(([192, 0, 2, 1], 80).into())];
    let pseudonym = *PSEUDONYM.get_or_init(Pseudonym::unique);
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        for (forwarded, upgrades) in [
            (ForwardedHeaders::Replace, Upgrades::WebSocket),
            (ForwardedHeaders::Append, Upgrades::Any),
            (ForwardedHeaders::Keep, Upgrades::Off),
        ] {
            for peer in peers {
                let mut parts = came.clone();
                let client = Client::new(Caller { peer, security: Security::Plain });
                let settings = Settings { forwarded, version, upgrades, pseudonym };
                let step = to_backend(&mut parts, &client, &settings);
                check_one(came, &parts, step, &settings);
            }
        }
    }
}

fn check_one(came: &Parts, parts: &Parts, step: Result<Step, Refusal>, settings: &Settings) {
    let (framing, asked) = match step {
        Ok(Step::Forward(framing)) => (framing, None),
        Ok(Step::Upgrade(asked)) => (Framing::None, Some(asked)),
        Ok(Step::Answer(_)) => return,
        Err(refusal) => return assert!(refusal.status().as_u16() >= 400),
    };
    let headers = &parts.headers;
    if let Some(asked) = asked {
        check_upgrade(came, parts, asked, settings);
    }
    // The only framing header for the connection to the backend is that there is no body.
    let lengths: Vec<_> = headers.get_all(CONTENT_LENGTH).iter().collect();
    match framing {
        Framing::Length(0) => assert_eq!(lengths, ["0"]),
        // An upgrade has no body, and may say so.
        _ => assert!(lengths.is_empty() || asked.is_some() && lengths == ["0"], "{lengths:?}"),
    }
    assert_eq!(headers.get_all(UPGRADE).iter().count(), usize::from(asked.is_some()));
    for name in [
        "transfer-encoding",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "proxy",
        "expect",
        "http2-settings",
        "transfer_encoding",
        "content_length",
    ] {
        assert!(!headers.contains_key(name), "{name}");
    }
    assert!(headers.get_all(TE).iter().all(|te| te == "trailers"));
    let connection: Vec<_> = headers.get_all(CONNECTION).iter().collect();
    let is_te = headers.contains_key(TE) && settings.version == HttpVersion::Http1;
    match asked {
        Some(_) => assert!(connection == ["upgrade"] && !is_te),
        None if is_te => assert_eq!(connection, ["te"]),
        None => assert!(connection.is_empty()),
    }
    // There is exactly one valid host, except that HTTP/1.0 need not have one.
    let hosts: Vec<_> = headers.get_all(HOST).iter().collect();
    match hosts[..] {
        [] => assert_eq!(came.version, Version::HTTP_10),
        [host] => {
            let host = Authority::try_from(host.as_bytes()).expect("a host");
            assert!(!host.host().is_empty());
            assert!(!host.as_str().contains(['@', '"', ' ', '/']));
        }
        _ => panic!("{hosts:?}"),
    }
    // The origin form, or that of OPTIONS.
    assert!(parts.uri.scheme().is_none() && parts.uri.authority().is_none());
    let target = parts.uri.to_string();
    assert!(target.starts_with('/') || target == "*" && came.method == Method::OPTIONS, "{target}");
    assert!(!target.bytes().any(|byte| byte <= b' ' || byte == 0x7f), "{target:?}");
    // There is at most one coding, and at most one length.
    if framing == Framing::Chunked {
        assert_eq!(came.version, Version::HTTP_11);
        assert!(!came.headers.contains_key(CONTENT_LENGTH));
        assert_eq!(came.headers.get_all("transfer-encoding").iter().count(), 1);
    } else {
        assert!(!came.headers.contains_key("transfer-encoding"));
    }
}

/// Checks that an upgrade is asked for only if the client did, for an allowed protocol, and without
/// a body.
fn check_upgrade(came: &Parts, parts: &Parts, asked: Asked, settings: &Settings) {
    assert!(settings.upgrades != Upgrades::Off && settings.version == HttpVersion::Http1);
    assert!(!came.headers.contains_key("transfer-encoding"));
    assert!(came.headers.get_all(CONTENT_LENGTH).iter().all(|length| !length.is_empty()));
    let protocol = parts.headers[UPGRADE].as_bytes().to_ascii_lowercase();
    assert!(!protocol.starts_with(b"h2") && !protocol.starts_with(b"http"), "{protocol:?}");
    match asked {
        Asked::Upgrade => {
            assert_eq!((came.version, &came.method), (Version::HTTP_11, &parts.method));
            let said = |name: &str, text: &[u8]| {
                let values = came.headers.get_all(name).iter();
                values.map(|value| value.as_bytes().to_ascii_lowercase()).any(|value| {
                    value.split(|byte| *byte == b',').any(|item| item.trim_ascii() == text)
                })
            };
            assert!(said("upgrade", &protocol) && said("connection", b"upgrade"));
        }
        Asked::ExtendedConnect => {
            assert_eq!((came.version, &came.method), (Version::HTTP_2, &Method::CONNECT));
            assert_eq!((&parts.method, &protocol[..]), (&Method::GET, &b"websocket"[..]));
        }
    }
    assert!(settings.upgrades == Upgrades::Any || protocol == b"websocket");
    assert!(Question::of(parts, asked).is_some());
}
