//! The server that a client talks to: its address, and the HTTP version.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};
use wakeful::net::ListenAddr;

use super::error::{ClientError, InvalidTarget};
use crate::tls::security::Security;

/// The HTTP version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HttpVersion {
    /// HTTP/1.1: one request at a time on each connection.
    #[default]
    Http1,
    /// HTTP/2: many requests share a connection. With TLS the two sides agree on it (ALPN). Without
    /// TLS the server has to expect it (prior knowledge).
    Http2,
}

/// A server: a name or an address with a port, or the path or the abstract name of a Unix socket.
/// It includes whether to use TLS, and the HTTP version.
///
/// ```
/// use wakeful_http::client::{HttpVersion, Target};
///
/// let hosts = ["127.0.0.1:8080", "[::1]:8080", "example.org:80"];
/// let others = ["http://example.org", "https://example.org", "unix:/run/app.sock"];
/// for text in hosts.into_iter().chain(others) {
///     let target: Target = text.parse().unwrap();
///     assert_eq!(target.http_version(), HttpVersion::Http1);
/// }
/// let grpc: Target = "127.0.0.1:50051".parse().unwrap();
/// let grpc = grpc.version(HttpVersion::Http2);
/// assert_eq!(grpc.to_string(), "127.0.0.1:50051");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    pub(super) place: Place,
    pub(super) security: Security,
    pub(super) version: HttpVersion,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Address(SocketAddr),
    /// The name is without the brackets of an IPv6 address.
    Name(String, u16),
    /// A name, and which of its addresses to use.
    Resolved(String, SocketAddr),
    Unix(PathBuf),
    /// The name is without the leading zero byte.
    Abstract(Box<[u8]>),
}

const fn default_port(security: Security) -> u16 {
    match security {
        Security::Plain => 80,
        Security::Tls => 443,
    }
}

impl Target {
    /// Returns this target with another HTTP version.
    #[must_use]
    pub fn version(mut self, version: HttpVersion) -> Self {
        self.version = version;
        self
    }

    /// Returns the HTTP version.
    #[must_use]
    pub fn http_version(&self) -> HttpVersion {
        self.version
    }

    /// Returns the name and the port that are looked up for each connection. Returns `None` if the
    /// target is an address or a Unix socket, or if [`at`](Self::at) has set the address.
    #[must_use]
    pub fn name(&self) -> Option<(&str, u16)> {
        match &self.place {
            Place::Name(name, port) => Some((name, *port)),
            Place::Address(_) | Place::Resolved(..) | Place::Unix(_) | Place::Abstract(_) => None,
        }
    }

    /// Returns this target at `addr`, one of the addresses of its [name](Self::name). The client
    /// then connects to `addr`, and does not look up the name.
    ///
    /// The name is still the default `host` of requests, and the server's certificate must still be
    /// for it. `Display` shows only the address. If the target has no name, this returns it
    /// unchanged.
    ///
    /// ```
    /// use wakeful_http::client::Target;
    ///
    /// let name: Target = "https://example.org".parse().unwrap();
    /// let one = name.at("192.0.2.1:443".parse().unwrap());
    /// assert_eq!(one.to_string(), "https://192.0.2.1:443");
    /// assert_eq!(one.tls_name().unwrap(), "example.org");
    /// ```
    #[must_use]
    pub fn at(&self, addr: SocketAddr) -> Self {
        let place = match &self.place {
            Place::Name(name, _) => Place::Resolved(name.clone(), addr),
            other => other.clone(),
        };
        Self { place, ..self.clone() }
    }

    /// Returns the name or address that the server's certificate must be for, or `None` if the
    /// target does not use TLS.
    #[must_use]
    pub fn tls_name(&self) -> Option<String> {
        (self.security == Security::Tls).then(|| self.server_name())
    }

    pub(super) fn of(uri: &Uri, version: HttpVersion) -> Result<Self, ClientError> {
        let invalid = |reason| {
            let text = without_secrets(&uri.to_string());
            ClientError::Target(InvalidTarget { text, reason })
        };
        let security = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => Security::Plain,
            Some(scheme) if *scheme == Scheme::HTTPS => Security::Tls,
            _ => return Err(invalid("its scheme is neither http nor https")),
        };
        let authority = uri.authority().ok_or_else(|| invalid("it names no host"))?;
        let place = Place::of(authority, security).map_err(invalid)?;
        Ok(Self { place, security, version })
    }

    /// The authority of a request that does not set its own.
    pub(super) fn authority(&self) -> Authority {
        let of_name = |name: &str, port| {
            if port == default_port(self.security) {
                name.to_owned()
            } else {
                format!("{name}:{port}")
            }
        };
        let text = match &self.place {
            Place::Address(addr) => addr.to_string(),
            Place::Name(name, port) => of_name(name, *port),
            Place::Resolved(name, addr) => of_name(name, addr.port()),
            Place::Unix(_) | Place::Abstract(_) => "localhost".to_owned(),
        };
        text.parse().unwrap_or_else(|_| Authority::from_static("localhost"))
    }

    /// The name that the server's certificate must contain.
    pub(super) fn server_name(&self) -> String {
        match &self.place {
            Place::Address(addr) => addr.ip().to_string(),
            Place::Name(name, _) | Place::Resolved(name, _) => name.clone(),
            Place::Unix(_) | Place::Abstract(_) => "localhost".to_owned(),
        }
    }

    fn new(place: Place) -> Self {
        Self { place, security: Security::Plain, version: HttpVersion::default() }
    }
}

impl Place {
    fn of(authority: &Authority, security: Security) -> Result<Self, &'static str> {
        if authority.as_str().contains('@') {
            return Err("it has a user name, which is not supported");
        }
        let host = authority.host();
        if host.is_empty() {
            return Err("it names no host");
        }
        // `port` is also `None` if the text after the host is no port number.
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str().ends_with(':') => return Err("there is no port after `:`"),
            None if authority.as_str() != host => {
                return Err("its port is not a number from 0 to 65535");
            }
            None => default_port(security),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        Ok(match bare.parse() {
            Ok(ip) => Self::Address(SocketAddr::new(ip, port)),
            Err(_) => Self::Name(host.to_owned(), port),
        })
    }
}

impl From<SocketAddr> for Target {
    fn from(addr: SocketAddr) -> Self {
        Self::new(Place::Address(addr))
    }
}

impl From<ListenAddr> for Target {
    fn from(addr: ListenAddr) -> Self {
        match addr {
            ListenAddr::Tcp(addr) => addr.into(),
            ListenAddr::Unix(path) => Self::new(Place::Unix(path)),
            ListenAddr::Abstract(name) => Self::new(Place::Abstract(name)),
        }
    }
}

/// The longest path, or abstract name, of a Unix socket in bytes: unix(7).
const LONGEST_UNIX: usize = 107;

impl FromStr for Target {
    type Err = InvalidTarget;

    /// Parses `HOST:PORT`, `http://HOST[:PORT]`, `https://HOST[:PORT]`, `unix:PATH` or `unix:@NAME`
    /// (a Unix socket with an abstract name). The version of the target is HTTP/1.1.
    ///
    /// # Errors
    /// The text has none of these forms, has a user name, or has a port that is not a number from 0
    /// to 65535.
    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let invalid = |reason| InvalidTarget { text: without_secrets(text), reason };
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(invalid("there is no path after `unix:`"));
            }
            if path == "@" {
                return Err(invalid("there is no name after `unix:@`"));
            }
            if path.strip_prefix('@').unwrap_or(path).len() > LONGEST_UNIX {
                return Err(invalid(
                    "the path or name of a Unix socket has at most 107 bytes: unix(7)",
                ));
            }
            return Ok(Self::new(match path.strip_prefix('@') {
                Some(name) => Place::Abstract(name.as_bytes().into()),
                None => Place::Unix(path.into()),
            }));
        }
        let (authority, scheme) = match text.split_once("://") {
            Some(("http", rest)) => (rest.strip_suffix('/').unwrap_or(rest), Some(Security::Plain)),
            Some(("https", rest)) => (rest.strip_suffix('/').unwrap_or(rest), Some(Security::Tls)),
            Some(_) => return Err(invalid("its scheme is neither http nor https")),
            None => (text, None),
        };
        let expected =
            "expected HOST:PORT, http://HOST[:PORT], https://HOST[:PORT], unix:PATH or unix:@NAME";
        if authority.starts_with("unix:") {
            return Err(invalid("a Unix socket has no scheme: expected unix:PATH or unix:@NAME"));
        }
        let authority: Authority = authority.parse().map_err(|_| invalid(expected))?;
        if scheme.is_none() && authority.port().is_none() {
            return Err(invalid(expected));
        }
        let security = scheme.unwrap_or(Security::Plain);
        let place = Place::of(&authority, security).map_err(invalid)?;
        Ok(Self { security, ..Self::new(place) })
    }
}

/// Removes a user name and a password, which must not be logged.
fn without_secrets(uri: &str) -> String {
    if uri.starts_with("unix:") {
        return uri.to_owned();
    }
    let start = uri.find("://").map_or(0, |at| at + "://".len());
    let end = uri[start..].find(['/', '?', '#']).map_or(uri.len(), |at| start + at);
    match uri[start..end].rfind('@') {
        Some(at) => format!("{}...{}", &uri[..start], &uri[start + at..]),
        None => uri.to_owned(),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.security == Security::Tls {
            f.write_str("https://")?;
        }
        match &self.place {
            Place::Address(addr) | Place::Resolved(_, addr) => addr.fmt(f),
            Place::Name(name, port) => write!(f, "{name}:{port}"),
            Place::Unix(path) => ListenAddr::Unix(path.clone()).fmt(f),
            Place::Abstract(name) => ListenAddr::Abstract(name.clone()).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_in_all_their_forms() {
        for (text, as_printed) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:8080", "[::1]:8080"),
            ("example.org:81", "example.org:81"),
            ("http://example.org", "example.org:80"),
            ("http://[::1]", "[::1]:80"),
            ("http://example.org:8080/", "example.org:8080"),
            ("https://example.org", "https://example.org:443"),
            ("https://[::1]:80", "https://[::1]:80"),
            ("unix:/run/a b.sock", "unix:/run/a b.sock"),
        ] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), as_printed);
        }
        let long = format!("unix:/{}", "x".repeat(LONGEST_UNIX));
        for text in [
            long.as_str(),
            "https://unix:/run/a.sock",
            "",
            "8080",
            "example.org",
            "unix:",
            "ftp://example.org",
            "http://",
            "http://a/b",
            "a:99999",
            ":80",
            "a:",
        ] {
            let error = text.parse::<Target>().expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_password_is_in_no_error() {
        for text in ["http://u:secret@a/b@c", "https://u:secret@[::1]:9?x", "u:secret@x@a:1"] {
            let error = text.parse::<Target>().expect_err(text).to_string();
            assert!(!error.contains("secret") && error.contains("...@"), "{error}");
            if let Ok(uri) = text.parse::<Uri>() {
                let error = Target::of(&uri, HttpVersion::Http1).expect_err(text).to_string();
                assert!(!error.contains("secret") && error.contains("...@"), "{error}");
            }
        }
        assert_eq!(without_secrets("unix:@b"), "unix:@b");
    }

    #[test]
    fn a_port_that_is_none_is_an_error_and_not_the_default_one() {
        for text in ["http://a:65536", "http://a:x", "https://[::1]:99999", "http://1.2.3.4:"] {
            let error = text.parse::<Target>().expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("port"), "{error}");
            // Some of them are not even URIs.
            if let Ok(uri) = text.parse::<Uri>() {
                let error = Target::of(&uri, HttpVersion::Http1).expect_err(text).to_string();
                assert!(error.contains(text) && error.contains("port"), "{error}");
            }
        }
        let target = Target::of(&Uri::from_static("http://a:65535/"), HttpVersion::Http1);
        assert_eq!(target.expect("a port").to_string(), "a:65535");
    }

    #[test]
    fn a_request_says_whom_it_is_for() {
        for (text, authority) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("http://example.org", "example.org"),
            ("http://example.org:81", "example.org:81"),
            ("https://example.org", "example.org"),
            ("https://example.org:80", "example.org:80"),
            ("unix:/run/app.sock", "localhost"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().authority(), authority);
        }
    }

    #[test]
    fn an_address_of_a_name_keeps_the_name() {
        for (text, name, authority, tls_name) in [
            ("example.org:81", Some(("example.org", 81)), "example.org:81", None),
            ("https://a.b", Some(("a.b", 443)), "a.b", Some("a.b")),
            ("https://a.b:81", Some(("a.b", 81)), "a.b:81", Some("a.b")),
            ("127.0.0.1:80", None, "127.0.0.1:80", None),
            ("https://[::1]", None, "[::1]:443", Some("::1")),
            ("unix:/run/app.sock", None, "localhost", None),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.name(), name);
            let addr = SocketAddr::from(([192, 0, 2, 1], name.map_or(0, |(_, port)| port)));
            let at = target.at(addr);
            assert_eq!((at.name(), at.authority().as_str()), (None, authority));
            assert_eq!(at.tls_name().as_deref(), tls_name);
            assert_eq!(at.to_string().contains("192.0.2.1"), name.is_some());
            assert_eq!(at == target, name.is_none());
        }
    }
}
