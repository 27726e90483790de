//! What a fuzzer calls, and what has to hold of whatever goes on to a backend.

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use wakeful::net::PeerAddr;
use wakeful_http::client::HttpVersion;
use wakeful_http::{Caller, Security};

use super::{Client, ForwardedHeaders, Framing, Refusal, Settings, Step, to_backend};

/// A head of HTTP/1 in bytes, and the same as if HTTP/2 had brought it.
pub(crate) fn heads(data: &[u8]) {
    if let Some(mut parts) = head(data) {
        check(&parts);
        parts.version = Version::HTTP_2;
        check(&parts);
    }
}

/// A head of HTTP/1 as hyper's parser reads it. `None`: it does not.
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

/// Sends it on in each way that there is, and panics if what comes out could be understood in two ways.
pub(crate) fn check(came: &Parts) {
    let peers = [PeerAddr::Unix, PeerAddr::Tcp(([192, 0, 2, 1], 80).into())];
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        for forwarded in
            [ForwardedHeaders::Replace, ForwardedHeaders::Append, ForwardedHeaders::Keep]
        {
            for peer in peers {
                let mut parts = came.clone();
                let client = Client::new(Caller { peer, security: Security::Plain });
                let step = to_backend(&mut parts, &client, &Settings { forwarded, version });
                check_one(came, &parts, step, version);
            }
        }
    }
}

fn check_one(came: &Parts, parts: &Parts, step: Result<Step, Refusal>, version: HttpVersion) {
    let framing = match step {
        Ok(Step::Forward(framing)) => framing,
        Ok(Step::Answer(_)) => return,
        Err(refusal) => return assert!(refusal.status().as_u16() >= 400),
    };
    let headers = &parts.headers;
    // The connection to the backend is told nothing about framing but that there is no body.
    let lengths: Vec<_> = headers.get_all(CONTENT_LENGTH).iter().collect();
    match framing {
        Framing::Length(0) => assert_eq!(lengths, ["0"]),
        _ => assert!(lengths.is_empty(), "{lengths:?}"),
    }
    for name in [
        "transfer-encoding",
        "upgrade",
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
    let is_te = headers.contains_key(TE) && version == HttpVersion::Http1;
    assert!(if is_te { connection == ["te"] } else { connection.is_empty() });
    // One host, which is one, unless HTTP/1.0 said none.
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
    // One coding or none, and one length or none.
    if framing == Framing::Chunked {
        assert_eq!(came.version, Version::HTTP_11);
        assert!(!came.headers.contains_key(CONTENT_LENGTH));
        assert_eq!(came.headers.get_all("transfer-encoding").iter().count(), 1);
    } else {
        assert!(!came.headers.contains_key("transfer-encoding"));
    }
}
