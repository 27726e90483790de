//! The content of a run's requests, and the checks before the first one is sent.
//!
//! This file has the checks that both versions of HTTP share; the other ones are in the file of
//! each protocol. The invariant: a template that passes the checks can be encoded, and its encoding
//! is exactly one request.

use thiserror::Error;

/// The content of a request. [`Requests`](super::Requests) checks it and encodes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// HTTP: the method. The other protocols do not use it.
    pub(super) method: String,
    /// HTTP: the path and the query. RESP: the command with its arguments, separated by blanks. If
    /// it is empty, the command is `ECHO`. Frames do not use it.
    pub(super) path: String,
    /// HTTP: the host and the port, for `host` and `:authority`. A `host` header replaces it. The
    /// other protocols do not use it.
    pub(super) authority: String,
    /// HTTP: the headers. `host` and `content-length` need not be among them, because they are made
    /// from the other fields.
    pub(super) headers: Vec<(String, String)>,
    /// HTTP: the request's body. RESP: the last argument. Frames: the payload.
    pub(super) body: Vec<u8>,
}

impl Template {
    /// Describes an HTTP request without a body. `method` is for example `GET`, `authority` is the
    /// host with or without a port, and `path` begins with a slash and includes the query.
    #[must_use]
    pub fn http(method: &str, authority: &str, path: &str) -> Self {
        let (method, authority, path) = (method.to_owned(), authority.to_owned(), path.to_owned());
        Self { method, path, authority, ..Self::default() }
    }

    /// Describes a unary gRPC call over HTTP/2. `path` is `/package.Service/Method`, and `message`
    /// is an encoded message.
    #[must_use]
    pub fn grpc(authority: &str, path: &str, message: &[u8]) -> Self {
        let mut template = Self::http("POST", authority, path)
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        // The prefix of a gRPC message: a byte that says that it is not compressed, and its length.
        template.body.push(0);
        template.body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        template.body.extend_from_slice(message);
        template
    }

    /// Describes a RESP command such as `GET key:{key}`. Blanks separate the arguments. Each
    /// request replaces `{key}` by a random key of 12 digits: see
    /// [`Plan::keys`](crate::Plan::keys). A [`body`](Self::body) becomes the last argument. An
    /// empty command means `ECHO`.
    #[must_use]
    pub fn command(command: &str) -> Self {
        Self { path: command.to_owned(), ..Self::default() }
    }

    /// Describes a frame, or a RESP command `ECHO`, with a payload of `bytes` bytes.
    #[must_use]
    pub fn of_size(bytes: usize) -> Self {
        Self::default().body_of_size(bytes)
    }

    /// Adds an HTTP header. A `host` header replaces the authority. You need not add
    /// `content-length`, because it is set from the body.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body: the request's body in HTTP, the last argument in RESP, or the payload of a
    /// frame. The default is empty.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets a [`body`](Self::body) of `bytes` bytes.
    #[must_use]
    pub fn body_of_size(self, bytes: usize) -> Self {
        // Letters are easy to read in a dump of the traffic.
        self.body((b'a'..=b'z').cycle().take(bytes).collect::<Vec<_>>())
    }

    /// Returns the body.
    #[must_use]
    pub fn get_body(&self) -> &[u8] {
        &self.body
    }

    /// Whether the request is a gRPC call, according to its `content-type`.
    pub(super) fn is_grpc(&self) -> bool {
        self.headers.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("content-type") && value.starts_with("application/grpc")
        })
    }

    /// Returns the value for `host` and `:authority`.
    pub(super) fn host(&self) -> &str {
        let host = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        host.map_or(&self.authority, |(_, value)| value)
    }

    /// Returns the headers that are sent as given: all but those that are made from other fields.
    pub(super) fn own_headers(&self) -> impl Iterator<Item = &(String, String)> {
        let made = ["host", "content-length"];
        self.headers
            .iter()
            .filter(move |(name, _)| !made.iter().any(|made| name.eq_ignore_ascii_case(made)))
    }

    /// Whether the request has a `content-length`. Methods that expect a body announce an empty
    /// one, too.
    pub(super) fn says_length(&self) -> bool {
        !self.body.is_empty() || ["POST", "PUT", "PATCH"].contains(&self.method.as_str())
    }

    /// Makes the checks that HTTP/1 and HTTP/2 share.
    pub(super) fn check_http(&self) -> Result<(), InvalidTemplate> {
        if !is_token(&self.method) {
            return Err(InvalidTemplate::Method(self.method.clone()));
        }
        if self.method == "CONNECT" {
            return Err(InvalidTemplate::Connect);
        }
        let asterisk = self.method == "OPTIONS" && self.path == "*";
        let plain = self.path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if !(asterisk || self.path.starts_with('/') && plain) {
            return Err(InvalidTemplate::Path(self.path.clone()));
        }
        let host = self.host();
        let plain = host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@,".contains(&byte));
        if host.is_empty() || !plain {
            return Err(InvalidTemplate::Authority(host.to_owned()));
        }
        let mut hosts = 0;
        for (name, value) in &self.headers {
            if !is_token(name) {
                return Err(InvalidTemplate::HeaderName(name.clone()));
            }
            let control = |byte: u8| byte.is_ascii_control() && byte != b'\t';
            if value.bytes().any(control) || value.trim_matches([' ', '\t']) != value {
                return Err(InvalidTemplate::HeaderValue(name.clone()));
            }
            hosts += usize::from(name.eq_ignore_ascii_case("host"));
            if hosts > 1 {
                return Err(InvalidTemplate::Hosts);
            }
            if name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(InvalidTemplate::TransferEncoding);
            }
            if name.eq_ignore_ascii_case("content-length") && *value != self.body.len().to_string()
            {
                let (said, body) = (value.clone(), self.body.len());
                return Err(InvalidTemplate::ContentLength { said, body });
            }
        }
        Ok(())
    }
}

/// Whether `text` is a `token` in HTTP's grammar.
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

/// The reason why a [`Template`] cannot be encoded in a protocol.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidTemplate {
    /// The method is not a token.
    #[error("the method {0:?} is not a token such as GET")]
    Method(String),
    /// The method is CONNECT, which opens a tunnel and has no answer.
    #[error("CONNECT opens a tunnel; it has no answer to measure")]
    Connect,
    /// The path does not begin with a slash, or has blanks, control characters, a fragment or
    /// non-ASCII characters.
    #[error(
        "the path {0:?} must begin with '/' and hold only visible ASCII characters, without '#'"
    )]
    Path(String),
    /// The authority is not a host and port of visible characters.
    #[error("the authority {0:?} must be a host with or without a port")]
    Authority(String),
    /// A header's name is not a token.
    #[error("the header name {0:?} is not a token")]
    HeaderName(String),
    /// A header's value has line breaks or other control characters, or blanks at its beginning or
    /// end.
    #[error(
        "the value of header {0:?} has a line break, another control character, or blanks around it"
    )]
    HeaderValue(String),
    /// There is more than one `host` header.
    #[error("the header \"host\" is given more than once")]
    Hosts,
    /// There is a `transfer-encoding` header, but bodies are sent with their length.
    #[error("the header \"transfer-encoding\" cannot be given: the body is sent with its length")]
    TransferEncoding,
    /// The `content-length` header is not the length of the body.
    #[error("the header \"content-length\" says {said:?}, but the body has {body} bytes")]
    ContentLength {
        /// The header's value.
        said: String,
        /// The body's length.
        body: usize,
    },
    /// There is a connection-specific header, which HTTP/2 does not allow.
    #[error("the header {0:?} concerns the connection and is forbidden in HTTP/2")]
    ConnectionHeader(String),
    /// The headers do not fit into one HTTP/2 frame.
    #[error("the headers take {0} bytes; at most {max} fit one frame of HTTP/2", max = super::http2::MIN_MAX_FRAME)]
    HeadersTooLong(usize),
    /// The payload does not fit into a frame of the echo protocol.
    #[error("the payload takes {0} bytes; a frame has at most {max}", max = super::frames::MAX_LENGTH)]
    PayloadTooLong(usize),
    /// The RESP command has no name.
    #[error("the command {0:?} has no words")]
    NoCommand(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Template)) -> Result<(), InvalidTemplate> {
        let mut template = Template::http("GET", "example.org:80", "/a?b=c");
        change(&mut template);
        template.check_http()
    }

    #[test]
    fn good_templates_pass() {
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(check(|it| (it.method, it.path) = ("OPTIONS".into(), "*".into())), Ok(()));
        assert_eq!(check(|it| it.headers.push(("x-a".into(), "é \t b".into()))), Ok(()));
        assert_eq!(check(|it| it.headers.push(("Content-Length".into(), "0".into()))), Ok(()));
    }

    #[test]
    fn each_fault_is_named() {
        let header = |name: &str, value: &str| {
            check(|it| it.headers.push((name.to_owned(), value.to_owned()))).unwrap_err()
        };
        use InvalidTemplate as Is;
        assert!(matches!(check(|it| it.method = "GE T".into()), Err(Is::Method(_))));
        assert!(matches!(check(|it| it.method.clear()), Err(Is::Method(_))));
        assert!(matches!(check(|it| it.method = "CONNECT".into()), Err(Is::Connect)));
        assert!(matches!(check(|it| it.path = "a".into()), Err(Is::Path(_))));
        assert!(matches!(check(|it| it.path = "/a b".into()), Err(Is::Path(_))));
        assert!(matches!(check(|it| it.path = "/\r\nx: y".into()), Err(Is::Path(_))));
        assert!(matches!(check(|it| it.authority = "a/b".into()), Err(Is::Authority(_))));
        assert!(matches!(check(|it| it.authority.clear()), Err(Is::Authority(_))));
        assert!(matches!(header("a b", "c"), Is::HeaderName(_)));
        assert!(matches!(header(":path", "/"), Is::HeaderName(_)));
        assert!(matches!(header("a", "b\r\nc: d"), Is::HeaderValue(_)));
        assert!(matches!(header("a", " b"), Is::HeaderValue(_)));
        assert!(matches!(header("transfer-encoding", "chunked"), Is::TransferEncoding));
        assert!(matches!(header("content-length", "1"), Is::ContentLength { .. }));
    }
}
