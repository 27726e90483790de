//! Just enough HTTP/1.1 for the runtimes without a library for it. All of them share this, because
//! the runtimes are compared. It separates requests correctly, including their bodies, and knows
//! only `GET /`.

use crate::session::Answer;

/// The longest request head that is accepted, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// The longest request body that is accepted, in bytes. Bodies are ignored.
const MAX_BODY: usize = 1 << 20;

/// The most header fields of one request.
const MAX_FIELDS: usize = 64;

const HELLO: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 6\r\n\r\nhello\n";

/// How a request is answered.
struct Reply {
    status: &'static str,
    /// The length of the request, with its body.
    length: usize,
    close: bool,
    head_only: bool,
}

impl Reply {
    /// A reply after which nothing on this connection can be understood.
    fn refusal(status: &'static str) -> Self {
        Self { status, length: 0, close: true, head_only: false }
    }

    fn write(&self, out: &mut Vec<u8>) {
        if self.status == "200 OK" && !self.close && !self.head_only {
            out.extend_from_slice(HELLO);
            return;
        }
        let body = if self.status == "200 OK" { "hello\n" } else { "" };
        let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
        put("HTTP/1.1 ");
        put(self.status);
        put("\r\n");
        if self.status.starts_with("405") {
            put("allow: GET, HEAD\r\n");
        }
        if self.close {
            put("connection: close\r\n");
        }
        put(if body.is_empty() {
            "content-length: 0\r\n\r\n"
        } else {
            "content-type: text/plain\r\ncontent-length: 6\r\n\r\n"
        });
        if !self.head_only {
            put(body);
        }
    }
}

/// Answers every complete request, one after the other, into `out`.
#[must_use]
pub fn answer(received: &[u8], out: &mut Vec<u8>) -> Answer {
    let mut end = 0;
    while let Some(reply) = one(&received[end..]) {
        reply.write(out);
        end += reply.length;
        if reply.close {
            return Answer { end, close: true };
        }
    }
    Answer { end, close: false }
}

/// Returns the reply to the first request in `bytes`, or `None` if that request is incomplete.
fn one(bytes: &[u8]) -> Option<Reply> {
    if bytes.is_empty() {
        return None;
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let head = match request.parse(bytes) {
        Ok(httparse::Status::Complete(head)) if head <= MAX_HEAD => head,
        Ok(httparse::Status::Partial) if bytes.len() <= MAX_HEAD => return None,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Some(Reply::refusal("431 Request Header Fields Too Large"));
        }
        Err(_) => return Some(Reply::refusal("400 Bad Request")),
    };
    let mut body: Option<usize> = None;
    let mut close = request.version == Some(0);
    for field in request.headers.iter() {
        let text = field.value.trim_ascii();
        if field.name.eq_ignore_ascii_case("content-length") {
            // Digits only: `parse` alone would accept a sign.
            let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
            let length = digits.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten();
            if length.is_none() || (body.is_some() && body != length) {
                return Some(Reply::refusal("400 Bad Request"));
            }
            body = length;
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Some(Reply::refusal("501 Not Implemented"));
        } else if field.name.eq_ignore_ascii_case("connection") {
            let mut options = text.split(|&b| b == b',').map(<[u8]>::trim_ascii);
            close |= options.any(|option| option.eq_ignore_ascii_case(b"close"));
        }
    }
    let body = body.unwrap_or(0);
    if body > MAX_BODY {
        return Some(Reply::refusal("413 Content Too Large"));
    }
    let length = head + body;
    if bytes.len() < length {
        return None;
    }
    let method = request.method.unwrap_or_default();
    let status = match (method, request.path) {
        ("GET" | "HEAD", Some("/")) => "200 OK",
        (_, Some("/")) => "405 Method Not Allowed",
        _ => "404 Not Found",
    };
    Some(Reply { status, length, close, head_only: method == "HEAD" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (String, Answer) {
        let mut out = Vec::new();
        let answer = answer(text.as_bytes(), &mut out);
        (String::from_utf8(out).expect("text"), answer)
    }

    #[test]
    fn pipelined_requests_are_answered_together_and_the_rest_is_kept() {
        let (out, answer) = of("GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\n\r\nGET /");
        assert_eq!(out.matches("200 OK").count(), 2);
        assert_eq!(answer, Answer { end: 45, close: false });
    }

    #[test]
    fn a_body_is_part_of_its_request() {
        let text = "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nGET /GET /no HTTP/1.1\r\n\r\n";
        let (out, answer) = of(text);
        assert!(out.starts_with("HTTP/1.1 405 "));
        assert!(out.contains("HTTP/1.1 404 "));
        assert_eq!(answer, Answer { end: text.len(), close: false });
        assert_eq!(of(&text[..40]), (String::new(), Answer { end: 0, close: false }));
    }

    #[test]
    fn what_cannot_be_understood_ends_the_connection() {
        for text in [
            "\0\x01\x02\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length: +5\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
            "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        ] {
            assert!(of(text).1.close, "{text:?}");
        }
        assert!(of(&format!("GET /{} HTTP/1.1\r\n", "a".repeat(MAX_HEAD))).1.close);
    }

    #[test]
    fn the_client_may_ask_for_the_end() {
        let (out, answer) = of("GET / HTTP/1.1\r\nConnection: Keep-Alive, Close\r\n\r\n");
        assert!(out.contains("connection: close") && out.ends_with("\r\n\r\nhello\n"));
        assert!(answer.close);
        assert!(of("GET / HTTP/1.0\r\n\r\n").1.close);
    }

    #[test]
    fn head_has_the_length_and_no_body() {
        let (out, _) = of("HEAD / HTTP/1.1\r\n\r\n");
        assert!(out.contains("content-length: 6\r\n") && out.ends_with("\r\n\r\n"));
    }
}
