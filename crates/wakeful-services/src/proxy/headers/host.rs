//! Whom a request is for, and the form of its target (RFC 9112, 3.2; RFC 9113, 8.3.1).

use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Uri, Version};

use super::Refusal;

/// Returns the host of a request, and puts its target into origin form. `None`: there is no host,
/// which HTTP/1.0 allows.
///
/// With HTTP/1 an absolute target takes precedence over `Host`, as RFC 9112 requires of proxies.
/// With HTTP/2 the two must not differ.
pub(super) fn of(parts: &mut Parts) -> Result<Option<HeaderValue>, Refusal> {
    let header = of_headers(&parts.headers)?;
    let is_http2 = parts.version == Version::HTTP_2;
    let uri = std::mem::take(&mut parts.uri).into_parts();
    if let Some(scheme) = &uri.scheme
        && !matches!(scheme.as_str(), "http" | "https")
    {
        return Err(Refusal::Scheme);
    }
    // The form `example.org:80` is allowed only for CONNECT.
    if uri.authority.is_some() && uri.scheme.is_none() && !is_http2 {
        return Err(Refusal::Target);
    }
    let is_server = parts.method == Method::OPTIONS && !is_http2 && names_no_path(&uri);
    let target = target(&parts.method, uri.path_and_query, uri.authority.is_some())?;
    let target = if is_server { PathAndQuery::from_static("*") } else { target };
    parts.uri = Uri::from(target);
    let authority = uri.authority.as_ref().map(|authority| checked(authority.as_str().as_bytes()));
    let host = match (authority.transpose()?, header) {
        (Some(authority), Some(header)) if is_http2 => {
            if !authority.as_bytes().eq_ignore_ascii_case(header.as_bytes()) {
                return Err(Refusal::HostsDiffer);
            }
            Some(authority)
        }
        (Some(authority), _) => Some(authority),
        (None, Some(header)) => Some(checked(header.as_bytes())?),
        (None, None) if parts.version == Version::HTTP_10 => None,
        (None, None) => return Err(Refusal::NoHost),
    };
    Ok(host)
}

/// Sets the host, exactly once.
pub(super) fn put(headers: &mut HeaderMap, host: Option<HeaderValue>) {
    match host {
        Some(host) => {
            headers.insert(HOST, host);
        }
        None => {
            headers.remove(HOST);
        }
    }
}

fn of_headers(headers: &HeaderMap) -> Result<Option<&HeaderValue>, Refusal> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() { Err(Refusal::ManyHosts) } else { Ok(host) }
}

/// Checks a host with or without a port. A user name is refused.
fn checked(text: &[u8]) -> Result<HeaderValue, Refusal> {
    let authority = Authority::try_from(text).map_err(|_| Refusal::InvalidHost)?;
    let text = authority.as_str();
    if authority.host().is_empty() || text.contains('@') {
        return Err(Refusal::InvalidHost);
    }
    // An invalid port must not silently become another one.
    let behind = &text[authority.host().len()..];
    if !behind.is_empty() && authority.port_u16().is_none() {
        return Err(Refusal::InvalidHost);
    }
    HeaderValue::from_str(text).map_err(|_| Refusal::InvalidHost)
}

/// Is this `http://host` (RFC 9112, 3.2.4: OPTIONS for the whole server) and not `http://host/`?
/// The crate `http` shows both as the latter. But it keeps what it has parsed in one piece of
/// memory, in which a path that was sent comes directly after the authority. The path that `http`
/// adds is elsewhere.
fn names_no_path(uri: &http::uri::Parts) -> bool {
    let (Some(authority), Some(path)) = (&uri.authority, &uri.path_and_query) else { return false };
    path.as_str() == "/"
        && authority.as_str().as_bytes().as_ptr_range().end != path.as_str().as_ptr()
}

/// The path, or `*` for OPTIONS. An absolute target without a path becomes `/`.
fn target(
    method: &Method,
    target: Option<PathAndQuery>,
    is_absolute: bool,
) -> Result<PathAndQuery, Refusal> {
    let Some(target) = target else {
        return if is_absolute { Ok(PathAndQuery::from_static("/")) } else { Err(Refusal::Target) };
    };
    match target.as_str() {
        // `http` also returns this for an empty path, for example before a fragment.
        "/" => Ok(PathAndQuery::from_static("/")),
        "*" if *method == Method::OPTIONS => Ok(target),
        text if text.starts_with('/') => Ok(target),
        // `http://host?query`.
        text if text.starts_with('?') && is_absolute => {
            format!("/{text}").parse().map_err(|_| Refusal::Target)
        }
        _ => Err(Refusal::Target),
    }
}
