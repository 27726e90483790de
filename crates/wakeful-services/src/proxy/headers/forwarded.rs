//! What backends are told about the client: `X-Forwarded-For`, `-Proto` and `-Host`, and `Forwarded` (RFC 7239).

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use wakeful::net::PeerAddr;
use wakeful_http::{Caller, Security};

/// What becomes of what a client says about those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedHeaders {
    /// It is taken away, and the client is all that backends are told about: the default, and right where clients are strangers.
    #[default]
    Replace,
    /// The client is added behind it: right behind another proxy that is trusted. Its `X-Forwarded-Proto` and `-Host` stay, if it says them.
    Append,
    /// It goes on as it came, and nothing is said about the client.
    Keep,
}

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Others that a backend may believe.
const OTHERS: [HeaderName; 4] = [
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-forwarded"),
];

pub(super) fn tell(
    headers: &mut HeaderMap,
    client: &Caller,
    host: Option<&HeaderValue>,
    how: ForwardedHeaders,
) {
    match how {
        ForwardedHeaders::Keep => return,
        ForwardedHeaders::Append => {}
        ForwardedHeaders::Replace => {
            for name in [FOR, PROTO, HOST, FORWARDED].iter().chain(&OTHERS) {
                headers.remove(name);
            }
        }
    }
    let ip = match client.peer {
        PeerAddr::Tcp(addr) => Some(addr.ip().to_canonical()),
        PeerAddr::Unix => None,
    };
    append(headers, FOR, &ip.map_or_else(|| "unknown".to_owned(), |ip| ip.to_string()));
    if !headers.contains_key(PROTO) {
        headers.insert(PROTO, HeaderValue::from_static(scheme(client.security)));
    }
    if let Some(host) = host
        && !headers.contains_key(HOST)
    {
        headers.insert(HOST, host.clone());
    }
    append(headers, FORWARDED, &element(ip, client, host));
}

/// `for=192.0.2.1;host=example.org;proto=http`
fn element(ip: Option<IpAddr>, client: &Caller, host: Option<&HeaderValue>) -> String {
    let mut text = match ip {
        None => "for=unknown".to_owned(),
        Some(IpAddr::V4(ip)) => format!("for={ip}"),
        Some(IpAddr::V6(ip)) => format!("for=\"[{ip}]\""),
    };
    // It was checked to be a host, so there is nothing in it to escape.
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        let is_token = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b));
        let quote = if is_token { "" } else { "\"" };
        text.push_str(&format!(";host={quote}{host}{quote}"));
    }
    text.push_str(";proto=");
    text.push_str(scheme(client.security));
    text
}

fn scheme(security: Security) -> &'static str {
    match security {
        Security::Plain => "http",
        Security::Tls => "https",
    }
}

/// At the end of the list, which may be on several lines.
fn append(headers: &mut HeaderMap, name: HeaderName, element: &str) {
    let mut list = Vec::new();
    for value in headers.get_all(&name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    match HeaderValue::from_bytes(&list) {
        Ok(value) => headers.insert(name, value),
        // Made of values and an address: there is nothing in it that a value may not have.
        Err(_) => headers.remove(name),
    };
}
