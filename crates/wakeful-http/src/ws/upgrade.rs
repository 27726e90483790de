//! The handshake: an extractor, and the response that opens the socket.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use async_tungstenite::WebSocketStream;
use async_tungstenite::tungstenite::handshake::derive_accept_key;
use async_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use axum_core::body::Body;
use axum_core::extract::FromRequestParts;
use axum_core::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use super::lengths::{Followed, GREATEST_SIZE, LONGEST_CONTROL};
use super::{WebSocket, WebSocketRejection};
use crate::foreign_code::{self, Contained};
use crate::upgrade::{OnUpgrade, UpgradeError, take};

/// The largest read that a setting allows. tungstenite fills a buffer of this size with zeros
/// before each read.
const GREATEST_READ: usize = 16 << 20;

/// Extracts a WebSocket handshake. [`on_upgrade`](Self::on_upgrade) answers it.
///
/// | setting | default | range | what happens beyond it |
/// |---|---|---|---|
/// | [`max_message_size`](Self::max_message_size) | 4 MiB | up to 1 GiB; more becomes 1 GiB | Close 1009 |
/// | [`max_frame_size`](Self::max_frame_size) | 4 MiB | up to 1 GiB; more becomes 1 GiB | Close 1009 |
/// | [`read_buffer_size`](Self::read_buffer_size) | 8 KiB | 1 byte to 16 MiB | |
/// | [`linger`](Self::linger) | 0 | any | Close 1001, when the server drains |
#[derive(Debug)]
#[must_use = "a handshake is answered by `on_upgrade`"]
pub struct WebSocketUpgrade {
    config: WebSocketConfig,
    linger: Duration,
    /// `None` on HTTP/2, which does not use it.
    key: Option<HeaderValue>,
    requested: Vec<HeaderValue>,
    selected: Option<HeaderValue>,
    upgrade: OnUpgrade,
}

impl<S: Sync> FromRequestParts<S> for WebSocketUpgrade {
    type Rejection = WebSocketRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, WebSocketRejection> {
        let headers = &parts.headers;
        let key = if parts.method == Method::GET {
            let asks = has_token(headers, header::CONNECTION, "upgrade")
                && has_token(headers, header::UPGRADE, "websocket");
            if !asks {
                return Err(WebSocketRejection::NoUpgrade);
            }
            let key = headers.get(header::SEC_WEBSOCKET_KEY).cloned();
            Some(key.filter(is_key).ok_or(WebSocketRejection::Key)?)
        } else if parts.method == Method::CONNECT {
            let protocol = parts.extensions.get::<hyper::ext::Protocol>();
            if protocol.is_none_or(|protocol| protocol.as_str() != "websocket") {
                return Err(WebSocketRejection::Protocol);
            }
            None
        } else {
            return Err(WebSocketRejection::Method);
        };
        if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err(WebSocketRejection::Version);
        }
        let requested = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().cloned().collect();
        let upgrade = take(&mut parts.extensions);
        if !upgrade.is_asked() {
            return Err(WebSocketRejection::NotUpgradable);
        }
        // tungstenite's own defaults, 128 KiB for each buffer and 64 MiB for a message, are meant
        // for few sockets.
        let config = WebSocketConfig::default()
            .read_buffer_size(8 << 10)
            .write_buffer_size(8 << 10)
            .max_message_size(Some(4 << 20))
            .max_frame_size(Some(4 << 20));
        Ok(Self { config, linger: Duration::ZERO, key, requested, selected: None, upgrade })
    }
}

impl WebSocketUpgrade {
    /// Sets how large a message may be in total, in bytes.
    pub fn max_message_size(mut self, bytes: usize) -> Self {
        self.config.max_message_size = Some(bytes.min(GREATEST_SIZE));
        self
    }

    /// Sets how large a frame may be, in bytes. A frame that exceeds
    /// [`max_message_size`](Self::max_message_size) is also refused. When the header of a frame has
    /// arrived, the server reserves memory for the whole frame.
    pub fn max_frame_size(mut self, bytes: usize) -> Self {
        self.config.max_frame_size = Some(bytes.min(GREATEST_SIZE));
        self
    }

    /// Sets how many bytes one read may return, from 1 to 16 MiB. A value out of range becomes the
    /// nearest value in the range. Each socket has a buffer of this size from its start.
    pub fn read_buffer_size(mut self, bytes: usize) -> Self {
        self.config.read_buffer_size = bytes.clamp(1, GREATEST_READ);
        self
    }

    /// Sets how long the socket may continue when the server drains. After that it sends Close
    /// 1001.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets the subprotocols that the server supports, the preferred one first. The socket uses the
    /// first of them that the client also offers. If the client offers none of them, the socket has
    /// no subprotocol, and the client decides whether to accept that.
    pub fn protocols<I>(mut self, protocols: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<Cow<'static, str>>,
    {
        let offered = |protocol: &str| {
            let values = self.requested.iter().filter_map(|value| value.to_str().ok());
            values.flat_map(|value| value.split(',')).any(|offer| offer.trim() == protocol)
        };
        let chosen = protocols.into_iter().map(Into::into).find(|protocol| offered(protocol));
        self.selected = chosen.and_then(|protocol| match protocol {
            Cow::Borrowed(protocol) => HeaderValue::from_str(protocol).ok(),
            Cow::Owned(protocol) => HeaderValue::from_str(&protocol).ok(),
        });
        self
    }

    /// Returns the subprotocol that [`protocols`](Self::protocols) chose, if any.
    #[must_use]
    pub fn selected_protocol(&self) -> Option<&HeaderValue> {
        self.selected.as_ref()
    }

    /// Returns the response that opens the socket. When the response is written, `callback` gets
    /// the socket, in a separate task on this loop. Neither `callback` nor its future need be
    /// `Send`. If the response is never written, this is logged at debug level.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[track_caller]
    pub fn on_upgrade<C, F>(self, callback: C) -> Response
    where
        C: FnOnce(WebSocket) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let failed = |error| foreign_code::log!(debug, %error, "a WebSocket was not opened after its handshake");
        self.on_upgrade_or(callback, failed)
    }

    /// Returns the response like [`on_upgrade`](Self::on_upgrade), but calls `failed` if the
    /// response could not be sent.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[track_caller]
    pub fn on_upgrade_or<C, F>(
        self,
        callback: C,
        failed: impl FnOnce(UpgradeError) + 'static,
    ) -> Response
    where
        C: FnOnce(WebSocket) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let Self { config, linger, key, selected, upgrade, .. } = self;
        let (config, protocol) = (with_frames_of_messages(config), selected.clone());
        // If one of them panics, its drop may panic, too, and so may the drop of the other.
        let (callback, failed) = (Contained::new(callback), Contained::new(failed));
        wakeful::spawn(async move {
            let upgraded = match upgrade.await {
                Ok(upgraded) => upgraded,
                Err(error) => {
                    if let Some(failed) = failed.into_inner() {
                        failed(error);
                    }
                    return;
                }
            };
            let inner = WebSocketStream::from_raw_socket(
                Followed::new(upgraded),
                Role::Server,
                Some(config),
            );
            let socket = WebSocket::new(inner.await, protocol, linger);
            if let Some(callback) = callback.into_inner() {
                Contained::new(Box::pin(callback(socket))).as_mut().await;
            }
        })
        .detach();
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        if let Some(protocol) = selected {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        if let Some(key) = key {
            let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept.expect("it is base64"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        }
        response
    }
}

/// No frame may be larger than a message. tungstenite reserves memory for a frame as soon as it has
/// its header, and asks for the size of the message when it has the whole frame.
fn with_frames_of_messages(config: WebSocketConfig) -> WebSocketConfig {
    let message = config.max_message_size.unwrap_or(GREATEST_SIZE).max(LONGEST_CONTROL);
    let frame = config.max_frame_size.map_or(message, |frame| frame.min(message));
    config.max_frame_size(Some(frame))
}

/// Is `token` in the header's list?
fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let values = headers.get_all(name);
    let texts = values.iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|found| found.trim().eq_ignore_ascii_case(token))
}

/// Is it 16 bytes in base64 (RFC 6455, 4.1)?
fn is_key(key: &HeaderValue) -> bool {
    let is_sign = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    match key.as_bytes() {
        // 22 characters have 132 bits, of which the last four have no meaning.
        [signs @ .., b'=', b'='] => signs.len() == 22 && signs.iter().all(is_sign),
        _ => false,
    }
}
