//! The answers to requests that are not a valid handshake.

use axum_core::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::upgrade::KnownRefusal;

/// The error of a request that cannot open a WebSocket. Its response has the status 400, 405 or
/// 426.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebSocketRejection {
    /// The method is wrong (405).
    #[error("a WebSocket is opened by GET, or on HTTP/2 by CONNECT")]
    Method,
    /// A header that asks for the upgrade is missing (426).
    #[error("the headers `connection: upgrade` and `upgrade: websocket` are missing")]
    NoUpgrade,
    /// CONNECT asks for another protocol (400).
    #[error("CONNECT asks for another protocol than `websocket`")]
    Protocol,
    /// The WebSocket version is not supported (426, with the supported version).
    #[error("the header `sec-websocket-version` is not 13")]
    Version,
    /// The key is missing or not valid (400).
    #[error("the header `sec-websocket-key` is missing, or not 16 bytes in base64")]
    Key,
    /// The request is HTTP/1.0, or a layer has removed this server's extension from the request
    /// (426).
    #[error("the connection cannot be upgraded")]
    NotUpgradable,
}

impl IntoResponse for WebSocketRejection {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Protocol | Self::Key => StatusCode::BAD_REQUEST,
            Self::NoUpgrade | Self::Version | Self::NotUpgradable => StatusCode::UPGRADE_REQUIRED,
        };
        let mut response = (status, format!("{self}\n")).into_response();
        response.extensions_mut().insert(KnownRefusal);
        let headers = response.headers_mut();
        if status == StatusCode::UPGRADE_REQUIRED {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        if self == Self::Version {
            headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        response
    }
}
