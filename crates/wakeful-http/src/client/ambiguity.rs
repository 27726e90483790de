//! Responses that two readers can end in different places (RFC 9112, 6.3). hyper chooses one of
//! them. The bytes after such a response may still belong to it, so its connection takes no other
//! request.

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

/// Returns whether an HTTP/1.1 response with these headers can be read in two ways.
pub(super) fn is_ambiguous(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        return !is_chunked || codings.next().is_some() || headers.contains_key(CONTENT_LENGTH);
    }
    // Several lengths that differ are an error in hyper.
    headers
        .get_all(CONTENT_LENGTH)
        .iter()
        .any(|length| !length.as_bytes().iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn what_has_one_end_only_is_not_ambiguous() {
        const CODING: HeaderName = TRANSFER_ENCODING;
        const LENGTH: HeaderName = CONTENT_LENGTH;
        for (fields, expected) in [
            (&[][..], false),
            (&[(LENGTH, "5")], false),
            (&[(LENGTH, "5"), (LENGTH, "5")], false),
            (&[(CODING, "Chunked")], false),
            (&[(LENGTH, "5, 5")], true),
            (&[(LENGTH, "+5")], true),
            (&[(LENGTH, "5"), (CODING, "chunked")], true),
            (&[(CODING, "gzip, chunked")], true),
            (&[(CODING, "chunked"), (CODING, "chunked")], true),
            (&[(CODING, "chunked, chunked")], true),
        ] {
            let field = |(name, value): &(HeaderName, &'static str)| {
                (name.clone(), HeaderValue::from_static(value))
            };
            let headers: HeaderMap = HeaderMap::from_iter(fields.iter().map(field));
            assert_eq!(is_ambiguous(&headers), expected, "{fields:?}");
        }
    }
}
