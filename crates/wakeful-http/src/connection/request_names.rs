//! The name of a request in the report of a slow turn: its method and the beginning of its path.
//!
//! The service consumes the request, so the name is a copy. It is made for each request and read
//! only after a slow poll, or by a supervising process, so a connection reuses the buffer of one
//! request's name for the next. (The clone of a method allocates if its name has more than 15
//! bytes, which no standard method has.)

use std::cell::RefCell;
use std::fmt::{self, Write};

use http::{Method, Uri};
use wakeful::heartbeat::WorkText;

/// How many bytes of the path are kept.
const KEPT: usize = 46;

/// How many bytes of the method are kept.
const KEPT_METHOD: usize = 14;

/// Where the path begins: after the method and a space.
const PATH: usize = KEPT_METHOD + 1;

/// Added to a path that was cut.
const CUT: &[u8] = b"...";

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RequestName {
    /// The method in the text.
    method: Method,
    text: [u8; PATH + KEPT + CUT.len()],
    start: u8,
    end: u8,
}

impl RequestName {
    #[inline]
    pub(crate) fn set(&mut self, method: &Method, uri: &Uri) {
        // The query is left out, because it may contain secrets.
        let path = uri.path().as_bytes();
        let end = PATH + path.len().min(KEPT);
        self.text[PATH..end].copy_from_slice(&path[..end - PATH]);
        self.end = end as u8;
        if path.len() > KEPT {
            self.text[end..].copy_from_slice(CUT);
            self.end = self.text.len() as u8;
        }
        // The method is nearly always the same as for the previous request.
        if self.method != *method {
            self.set_method(method);
        }
    }

    #[inline(never)]
    fn set_method(&mut self, method: &Method) {
        self.method.clone_from(method);
        let name = method.as_str().as_bytes();
        let length = name.len().min(KEPT_METHOD);
        let start = KEPT_METHOD - length;
        self.text[start..KEPT_METHOD].copy_from_slice(&name[..length]);
        self.start = start as u8;
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.text[usize::from(self.start)..usize::from(self.end)]
    }
}

impl Default for RequestName {
    fn default() -> Self {
        let text = [b' '; PATH + KEPT + CUT.len()];
        let mut name = Self { method: Method::GET, text, start: 0, end: PATH as u8 };
        name.set_method(&Method::GET);
        name
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
            // HTTP/1 has only one request at a time.
            names.reserve_exact(place + 1);
        }
        names.resize_with(place + 1, RequestName::default);
    }

    /// Describes the last request that was at this place.
    pub(crate) fn describe(&self, place: usize, text: &mut WorkText) {
        if let Some(name) = self.0.borrow().get(place) {
            text.add(name.bytes());
        }
    }

    /// The name of the last request that was at this place.
    pub(crate) fn get(&self, place: usize) -> String {
        self.0.borrow().get(place).map(ToString::to_string).unwrap_or_default()
    }
}

/// Shows only graphic ASCII and spaces. The rest is percent-encoded, so that no client can forge or
/// hide a line of the log.
impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.bytes() {
            if byte.is_ascii_graphic() || byte == b' ' {
                f.write_char(char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(method: &str, uri: &str) -> String {
        let uri = Uri::try_from(uri).unwrap();
        // The previous name must not show.
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
    fn a_long_name_is_cut() {
        let long = format!("/{}", "a".repeat(KEPT - 1));
        assert_eq!(name("GET", &long), format!("GET {long}"));
        assert_eq!(name("GET", &format!("{long}b")), format!("GET {long}..."));
        // The cut is in the middle of a character.
        let split = format!("/{}\u{e4}", "a".repeat(KEPT - 2));
        assert!(name("GET", &split).ends_with("a%C3..."));
        assert_eq!(name("ABCDEFGHIJKLMNOP", "/"), "ABCDEFGHIJKLMN /");
    }
}
