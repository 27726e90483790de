//! The form of a request for its HTTP version, and its target.

use http::header::{CONNECTION, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version};
use http_body::Body;

use super::body::Outgoing;
use super::error::ClientError;
use super::host_pool::Pool;
use super::{HttpVersion, OutgoingBody};
use crate::length_header;
use crate::tls::security::Security;

impl<B: OutgoingBody> Pool<B> {
    /// Puts the request into the form of its HTTP version, and adds the authority of its server.
    pub(super) fn address(
        &self,
        mut request: Request<B>,
    ) -> Result<Request<Outgoing<B>>, ClientError> {
        let unsupported = |reason| ClientError::Unsupported { target: self.label.clone(), reason };
        if request.method() == Method::CONNECT {
            return Err(unsupported("tunnels by CONNECT are not supported"));
        }
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        if parts.authority.as_ref().is_some_and(|named| named.as_str().contains('@')) {
            // The user name must not be sent (RFC 9110, 4.2.4), and may be a secret.
            return Err(unsupported("its URI has a user name, which is not supported"));
        }
        match self.target.version {
            HttpVersion::Http1 => {
                *request.version_mut() = Version::HTTP_11;
                if !request.headers().contains_key(HOST) {
                    let named = parts.authority.as_ref().and_then(|a| a.as_str().parse().ok());
                    request.headers_mut().insert(HOST, named.unwrap_or_else(|| self.host.clone()));
                }
                (parts.scheme, parts.authority) = (None, None);
            }
            HttpVersion::Http2 => {
                *request.version_mut() = Version::HTTP_2;
                request.headers_mut().remove(CONNECTION);
                let header = request.headers_mut().remove(HOST);
                let header = header.map(|host| Authority::try_from(host.as_bytes()));
                let header = header.transpose().map_err(|_| unsupported("its host is invalid"))?;
                let authority = header.or(parts.authority);
                parts.authority = Some(authority.unwrap_or_else(|| self.authority.clone()));
                parts.scheme = Some(match self.target.security {
                    Security::Plain => Scheme::HTTP,
                    Security::Tls => Scheme::HTTPS,
                });
            }
        }
        parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
        *request.uri_mut() =
            Uri::from_parts(parts).map_err(|_| unsupported("its URI is invalid"))?;
        let mut request = request.map(Outgoing::given);
        let body = request.body();
        let length = || if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
        if length_header::is_wrong(request.headers(), length) {
            length_header::remove(request.headers_mut());
        }
        Ok(request)
    }
}
