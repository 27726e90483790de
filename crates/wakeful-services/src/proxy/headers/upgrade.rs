//! Requests that ask for another protocol: which of them may, how they are rewritten for a backend,
//! and which 101 answers them.
//!
//! A tunnel may open only if both sides agree that it does. So the proxy itself writes all headers
//! about the upgrade that the backend gets (one `Connection: upgrade`, one protocol), and only a
//! 101 for exactly that protocol opens the tunnel. No other status does, even if a client or a
//! backend could take it for an upgrade, and neither does a 101 without a request. h2c is never
//! allowed, because its requests would pass the proxy unseen.

use async_tungstenite::tungstenite::handshake::client::generate_key;
use async_tungstenite::tungstenite::handshake::derive_accept_key;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, response};
use hyper::ext::Protocol;
use wakeful_http::client::HttpVersion;

use super::framing::Framing;
use super::refusal::Refusal;
use super::response::BadResponse;
use super::settings::{Settings, Upgrades};

/// How a client asked for another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// By HTTP/1.1's `Upgrade`.
    Upgrade,
    /// By HTTP/2's extended CONNECT (RFC 8441), which becomes a GET with `Upgrade`.
    ExtendedConnect,
}

/// The upgrade that a request asks for. A backend's answer is checked against it.
#[derive(Debug, Clone)]
pub struct Question {
    asked: Asked,
    /// The method and the protocol of the request to the backend.
    method: Method,
    protocol: HeaderValue,
    /// The backend's correct answer to the proxy's own key.
    accept: Option<HeaderValue>,
}

/// Returns the protocol that a request asks for, if it may. An upgrade that is not allowed is
/// ignored, as RFC 9110 permits. A CONNECT that is not allowed is refused.
pub(super) fn asked(
    parts: &Parts,
    framing: Framing,
    settings: &Settings,
) -> Result<Option<(Asked, HeaderValue)>, Refusal> {
    if parts.method == Method::CONNECT {
        let protocol = parts.extensions.get::<Protocol>();
        let is_websocket = protocol.is_some_and(|name| name.as_str() == "websocket");
        let may = settings.upgrades != Upgrades::Off && settings.version == HttpVersion::Http1;
        if !is_websocket || !may || framing != Framing::None || parts.version != Version::HTTP_2 {
            return Err(Refusal::Connect);
        }
        return Ok(Some((Asked::ExtendedConnect, HeaderValue::from_static("websocket"))));
    }
    let headers = &parts.headers;
    // This is the case for most requests.
    if !headers.contains_key(UPGRADE) || settings.version == HttpVersion::Http2 {
        return Ok(None);
    }
    // With a body, it would be unclear what follows the body. HTTP/1.0 has no upgrades.
    let has_body = !matches!(framing, Framing::None | Framing::Length(0));
    let is_meant = list(headers, CONNECTION).any(|name| name.eq_ignore_ascii_case(b"upgrade"));
    if has_body || parts.version != Version::HTTP_11 || !is_meant {
        return Ok(None);
    }
    let protocol = list(headers, UPGRADE).find(|name| is_allowed(name, settings.upgrades));
    let protocol = protocol.and_then(|name| HeaderValue::from_bytes(name).ok());
    Ok(protocol.map(|protocol| (Asked::Upgrade, protocol)))
}

fn list(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).into_iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

fn is_allowed(protocol: &[u8], upgrades: Upgrades) -> bool {
    let is = |name: &[u8]| protocol.eq_ignore_ascii_case(name);
    match upgrades {
        Upgrades::Off => false,
        Upgrades::WebSocket => is(b"websocket"),
        Upgrades::Any => {
            // This includes names that only begin like this, because a backend may read them
            // generously.
            let begins = |name: &[u8]| {
                protocol.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
            };
            let is_http = [&b"h2"[..], b"h3", b"http", b"tls"].into_iter().any(begins);
            let is_sign = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(b);
            let is_named = protocol.first().is_some_and(|b| *b != b'/');
            is_named && !is_http && protocol.iter().all(is_sign)
        }
    }
}

/// Adds the upgrade to a head from which all hop-by-hop fields were removed.
pub(super) fn put(parts: &mut Parts, asked: Asked, protocol: HeaderValue) {
    let headers = &mut parts.headers;
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
    if asked == Asked::ExtendedConnect {
        parts.method = Method::GET;
        parts.extensions.remove::<Protocol>();
        let key = HeaderValue::try_from(generate_key());
        headers.insert(SEC_WEBSOCKET_KEY, key.expect("base64 is a value"));
    }
}

impl Question {
    /// Returns the upgrade that a head for a backend asks for, or `None` if it asks for none.
    #[must_use]
    pub fn of(parts: &Parts, asked: Asked) -> Option<Self> {
        let (method, protocol) = (parts.method.clone(), parts.headers.get(UPGRADE)?.clone());
        let accept = match asked {
            Asked::Upgrade => None,
            Asked::ExtendedConnect => {
                let key = parts.headers.get(SEC_WEBSOCKET_KEY)?;
                Some(derive_accept_key(key.as_bytes()).try_into().ok()?)
            }
        };
        Some(Self { asked, method, protocol, accept })
    }

    /// Returns how the client asked.
    #[must_use]
    pub fn asked(&self) -> Asked {
        self.asked
    }

    /// Returns whether the protocol is WebSocket.
    #[must_use]
    pub fn is_websocket(&self) -> bool {
        self.protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
    }

    /// Returns whether a client could cause `bad` although the backend is healthy. A client can ask
    /// any resource for a WebSocket (or for any protocol, if all are allowed). Such failures must
    /// not count against the backend. Otherwise any client could have backends excluded.
    #[must_use]
    pub fn may_be_clients_doing(&self, bad: BadResponse) -> bool {
        match bad {
            BadResponse::NoUpgrade => true,
            BadResponse::OtherProtocol => !self.is_websocket(),
            _ => false,
        }
    }

    /// Turns the head of a backend's 101 into the head that opens the tunnel for the client.
    ///
    /// # Errors
    /// The response does not match the request.
    pub fn switched(&self, parts: &mut response::Parts) -> Result<(), BadResponse> {
        let headers = &mut parts.headers;
        let is_meant = list(headers, CONNECTION).any(|name| name.eq_ignore_ascii_case(b"upgrade"));
        let mut named = list(headers, UPGRADE);
        let is_same =
            named.next().is_some_and(|name| name.eq_ignore_ascii_case(self.protocol.as_bytes()));
        if !is_meant || !is_same || named.next().is_some() {
            return Err(BadResponse::OtherProtocol);
        }
        drop(named);
        if let Some(accept) = &self.accept
            && headers.get(SEC_WEBSOCKET_ACCEPT) != Some(accept)
        {
            return Err(BadResponse::WebSocketAccept);
        }
        super::response::clean(parts);
        match self.asked {
            Asked::Upgrade => {
                parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                parts.headers.insert(UPGRADE, self.protocol.clone());
            }
            Asked::ExtendedConnect => {
                parts.headers.remove(SEC_WEBSOCKET_ACCEPT);
                parts.status = StatusCode::OK;
            }
        }
        Ok(())
    }

    /// Turns the head of any other response into a head for the client. It opens no tunnel.
    ///
    /// # Errors
    /// The response must not be forwarded, for example because the client would treat it as a
    /// successful upgrade.
    pub fn refused(&self, parts: &mut response::Parts) -> Result<(), BadResponse> {
        if self.asked == Asked::ExtendedConnect && parts.status.is_success() {
            return Err(BadResponse::NoUpgrade);
        }
        let version = match self.asked {
            Asked::Upgrade => Version::HTTP_11,
            Asked::ExtendedConnect => Version::HTTP_2,
        };
        super::to_client_of(version, parts, &self.method)?;
        if self.asked == Asked::Upgrade {
            // Bytes that the client sent after its request may have been meant for the other
            // protocol, so they must not be read as requests.
            super::say_close(&mut parts.headers);
        }
        Ok(())
    }
}
