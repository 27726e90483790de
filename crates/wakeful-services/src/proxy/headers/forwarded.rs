//! What backends are told about the client: `X-Forwarded-For`, `-Proto` and `-Host`, and
//! `Forwarded` (RFC 7239).

use std::net::IpAddr;

use bytes::BytesMut;
use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use wakeful::net::PeerAddr;
use wakeful_http::{Caller, Security};

use super::names::{is_about_client, remove_where};

/// What happens to a request's headers that name earlier clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedHeaders {
    /// They are removed (`Forwarded`, all of `X-Forwarded-…`, `X-Real-IP`), and backends see only
    /// the client itself. This is the default, and the right choice for untrusted clients.
    #[default]
    Replace,
    /// They stay, and the client is appended to them. Choose this behind another, trusted proxy. If
    /// that proxy sends `X-Forwarded-Proto` and `X-Forwarded-Host`, backends get them unchanged.
    Append,
    /// They are forwarded unchanged, and nothing is added about the client.
    Keep,
}

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The client of a connection, in the form that backends get.
#[derive(Debug, Clone)]
pub struct Client {
    caller: Caller,
    /// `192.0.2.1`
    address: HeaderValue,
    /// `for=192.0.2.1`, with quotes and brackets where necessary.
    node: Box<str>,
}

impl Client {
    /// Makes the client from its `caller`. Call this once for each connection.
    #[must_use]
    pub fn new(caller: Caller) -> Self {
        let ip = match caller.peer {
            PeerAddr::Tcp(addr) => Some(addr.ip().to_canonical()),
            PeerAddr::Unix => None,
        };
        let node = match ip {
            None => "for=unknown".to_owned(),
            Some(IpAddr::V4(ip)) => format!("for={ip}"),
            Some(IpAddr::V6(ip)) => format!("for=\"[{ip}]\""),
        };
        let address = ip.and_then(|ip| HeaderValue::try_from(ip.to_string()).ok());
        let address = address.unwrap_or_else(|| HeaderValue::from_static("unknown"));
        Self { caller, address, node: node.into() }
    }

    /// Returns the address of the client.
    #[must_use]
    pub fn peer(&self) -> PeerAddr {
        self.caller.peer
    }

    fn scheme(&self) -> &'static str {
        match self.caller.security {
            Security::Plain => "http",
            Security::Tls => "https",
        }
    }
}

pub(super) fn tell(
    headers: &mut HeaderMap,
    client: &Client,
    host: Option<&HeaderValue>,
    how: ForwardedHeaders,
) {
    match how {
        ForwardedHeaders::Keep => return,
        ForwardedHeaders::Append => {}
        ForwardedHeaders::Replace => {
            remove_where(headers, |name| is_about_client(name.as_str()));
        }
    }
    if headers.contains_key(FOR) {
        let mut list = list(headers, FOR);
        list.extend_from_slice(client.address.as_bytes());
        put(headers, FOR, list);
    } else {
        headers.insert(FOR, client.address.clone());
    }
    if !headers.contains_key(PROTO) {
        headers.insert(PROTO, HeaderValue::from_static(client.scheme()));
    }
    if let Some(host) = host
        && !headers.contains_key(HOST)
    {
        headers.insert(HOST, host.clone());
    }
    let mut list = list(headers, FORWARDED);
    add_element(&mut list, client, host);
    put(headers, FORWARDED, list);
}

/// `for=192.0.2.1;host=example.org;proto=http`
fn add_element(list: &mut BytesMut, client: &Client, host: Option<&HeaderValue>) {
    list.extend_from_slice(client.node.as_bytes());
    // The host was checked before, so nothing in it needs escaping.
    if let Some(host) = host.map(HeaderValue::as_bytes) {
        let is_token = host.iter().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(b));
        let quote: &[u8] = if is_token { b"" } else { b"\"" };
        for part in [b";host=", quote, host, quote] {
            list.extend_from_slice(part);
        }
    }
    list.extend_from_slice(b";proto=");
    list.extend_from_slice(client.scheme().as_bytes());
}

/// The list so far, which may be on several lines, followed by a comma if it is not empty.
fn list(headers: &HeaderMap, name: HeaderName) -> BytesMut {
    let mut list = BytesMut::with_capacity(96);
    for value in headers.get_all(name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list
}

fn put(headers: &mut HeaderMap, name: HeaderName, list: BytesMut) {
    match HeaderValue::from_maybe_shared(list.freeze()) {
        Ok(value) => headers.insert(name, value),
        // The value consists of valid values and an address, so it is valid.
        Err(_) => headers.remove(name),
    };
}
