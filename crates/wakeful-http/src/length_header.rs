//! The `Content-Length` that a program has given a message.
//!
//! hyper may write it although the body has another length. Then the receiver takes the next
//! message of the connection for a part of this one, or the rest of this one for the next message.

use http::{HeaderMap, HeaderValue, header};
use wakeful::log::OncePerSecond;

use crate::foreign_code;

/// Returns whether `headers` have several lengths, or one that is not a number or not the `length`
/// of the body. `None`: the body may have any length.
#[inline]
pub(crate) fn is_wrong(headers: &HeaderMap, length: impl FnOnce() -> Option<u64>) -> bool {
    let mut named = headers.get_all(header::CONTENT_LENGTH).iter().map(number);
    let Some(first) = named.next() else { return false };
    let is_right = first.is_some_and(|first| length().is_none_or(|length| length == first));
    !is_right || named.next().is_some()
}

fn number(value: &HeaderValue) -> Option<u64> {
    let is_number = value.as_bytes().iter().all(u8::is_ascii_digit);
    value.to_str().ok().filter(|_| is_number)?.parse().ok()
}

/// Removes the wrong length. hyper then sends the length of the body.
#[cold]
pub(crate) fn remove(headers: &mut HeaderMap) {
    static LIMIT: OncePerSecond = OncePerSecond::new();
    let length = headers.remove(header::CONTENT_LENGTH);
    if let Some(count) = LIMIT.pass() {
        foreign_code::log!(
            error,
            count,
            ?length,
            "a message's content-length is not the length of its body, and is not sent"
        );
    }
}
