//! The name of a request in the report of a slow turn: its method and the beginning of its path.
//!
//! The service consumes the request, so the name is a copy. It is made for each request and read
//! only after a slow poll, so a connection reuses the buffer of one request's name for the next.
//! (The clone of a method allocates if its name has more than 15 bytes: the client's own
//! invention.)

use std::cell::RefCell;
use std::fmt;

use http::{Method, Uri};
use wakeful::heartbeat::WorkText;

/// Bytes of the path that are kept.
const KEPT: usize = 46;

/// Added to a path that was cut.
const CUT: &str = "...";

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RequestName {
    method: Method,
    path: [u8; KEPT],
    length: u8,
    is_cut: bool,
}

impl RequestName {
    #[inline]
    pub(crate) fn set(&mut self, method: &Method, uri: &Uri) {
        // Without the query, which may hold secrets.
        let path = uri.path().as_bytes();
        let length = path.len().min(KEPT);
        self.path[..length].copy_from_slice(&path[..length]);
        self.length = length as u8;
        self.is_cut = path.len() > KEPT;
        // Nearly always that of the request before.
        if self.method != *method {
            self.method.clone_from(method);
        }
    }
}

impl Default for RequestName {
    fn default() -> Self {
        Self { method: Method::GET, path: [0; KEPT], length: 0, is_cut: false }
    }
}

/// The names of a connection's requests, by their place among those in flight.
#[derive(Debug, Default)]
pub(crate) struct RequestNames(RefCell<Vec<RequestName>>);

impl RequestNames {
    #[inline]
    pub(crate) fn set(&self, place: usize, method: &Method, uri: &Uri) {
        let mut names = self.0.borrow_mut();
        if place >= names.len() {
            Self::grow(&mut names, place);
        }
        names[place].set(method, uri);
    }

    #[cold]
    fn grow(names: &mut Vec<RequestName>, place: usize) {
        if names.is_empty() {
            // HTTP/1 has one at a time.
            names.reserve_exact(place + 1);
        }
        names.resize_with(place + 1, RequestName::default);
    }

    /// Describes the request that was there last.
    pub(crate) fn describe(&self, place: usize, text: &mut WorkText) {
        if let Some(name) = self.0.borrow().get(place) {
            text.add(name.method.as_str().as_bytes());
            text.add(b" ");
            text.add(&name.path[..usize::from(name.length)]);
            text.add(if name.is_cut { CUT.as_bytes() } else { b"" });
        }
    }

    /// Of the request that was there last.
    pub(crate) fn get(&self, place: usize) -> String {
        self.0.borrow().get(place).map(ToString::to_string).unwrap_or_default()
    }
}

/// Only graphic ASCII: the rest is percent-encoded, so that no client can forge or hide a line of
/// the log.
impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.method)?;
        for &byte in &self.path[..usize::from(self.length)] {
            if byte.is_ascii_graphic() {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        if self.is_cut { f.write_str(CUT) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(method: &str, uri: &str) -> String {
        let uri = Uri::try_from(uri).unwrap();
        // What was there before does not show.
        let mut name = RequestName::default();
        name.set(&Method::DELETE, &Uri::from_static("/another/request"));
        name.set(&method.parse().unwrap(), &uri);
        name.to_string()
    }

    #[test]
    fn a_name_is_method_and_path_without_the_query() {
        assert_eq!(name("GET", "/reports/7?token=secret"), "GET /reports/7");
        assert_eq!(name("GET", "http://localhost/"), "GET /");
        assert_eq!(name("PROPFIND", "/"), "PROPFIND /");
        assert_eq!(name("OPTIONS", "*"), "OPTIONS *");
        assert_eq!(name("CONNECT", "localhost:80"), "CONNECT ");
    }

    #[test]
    fn bytes_that_a_terminal_may_interpret_are_escaped() {
        // `Uri` refuses ASCII control characters and admits other UTF-8: a control character (CSI),
        // one that reverses the text, a letter.
        assert_eq!(name("GET", "/\u{9b}31m"), "GET /%C2%9B31m");
        assert_eq!(name("GET", "/\u{202e}x\u{e4}"), "GET /%E2%80%AEx%C3%A4");
    }

    #[test]
    fn a_long_path_is_cut() {
        let long = format!("/{}", "a".repeat(KEPT - 1));
        assert_eq!(name("GET", &long), format!("GET {long}"));
        assert_eq!(name("GET", &format!("{long}b")), format!("GET {long}..."));
        // In the middle of a character.
        let split = format!("/{}\u{e4}", "a".repeat(KEPT - 2));
        assert!(name("GET", &split).ends_with("a%C3..."));
    }
}
