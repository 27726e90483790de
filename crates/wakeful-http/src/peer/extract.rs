//! [`Peer`] and [`PeerCertificates`] as arguments of axum's handlers.

use std::convert::Infallible;

use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use super::Peer;
use crate::tls::PeerCertificates;

/// The error of extracting a [`Peer`] if the sender of the request is not known. Its response has
/// the status 500.
///
/// This happens if the handler does not run in the task of a [`Server`](crate::Server)'s
/// connection: a test calls it, or a layer runs it in a separate task. In a test, add a [`Peer`] to
/// the request's extensions. For such a layer, use
/// [`insert_peer`](crate::observe::Observe::insert_peer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request has no peer: it is handled outside of its connection's task")]
#[non_exhaustive]
pub struct NoPeer;

impl IntoResponse for NoPeer {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{self}\n")).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = NoPeer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoPeer> {
        parts.extensions.get().copied().or_else(Self::current).ok_or(NoPeer)
    }
}

/// The error of extracting [`PeerCertificates`](crate::tls::PeerCertificates) if the client has
/// sent no certificate. Its response has the status 403.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a client certificate is required")]
#[non_exhaustive]
pub struct NoClientCertificate;

impl IntoResponse for NoClientCertificate {
    fn into_response(self) -> Response {
        (StatusCode::FORBIDDEN, format!("{self}\n")).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for PeerCertificates {
    type Rejection = NoClientCertificate;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoClientCertificate> {
        parts.extensions.get().cloned().ok_or(NoClientCertificate)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for PeerCertificates {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}
