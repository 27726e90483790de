//! The `Content-Length` that a program has given a message.
//!
//! hyper may write it although the body has another length. Then the receiver takes the next
//! message of the connection for a part of this one, or the rest of this one for the next message.

use http::{HeaderMap, HeaderValue, header};
use wakeful::log::OncePerSecond;

use crate::foreign_code;

/// Returns whether the `Content-Length` of `headers` is wrong:
/// * there are several,
/// * it is not a number,
/// * it is not `length`, the length of the body (`None`: the body may have any length), or
/// * there is also a `Transfer-Encoding`. hyper's server would then end the connection without an
///   answer.
#[inline]
pub(crate) fn is_wrong(headers: &HeaderMap, length: impl FnOnce() -> Option<u64>) -> bool {
    // Comparing a few names takes less time than hashing one.
    let (mut named, mut is_coded) = (None, false);
    for (name, value) in headers {
        if *name == header::CONTENT_LENGTH {
            if named.replace(value).is_some() {
                return true;
            }
        } else {
            is_coded |= *name == header::TRANSFER_ENCODING;
        }
    }
    let Some(named) = named else { return false };
    let is_right = |named| length().is_none_or(|length| length == named);
    is_coded || !number(named).is_some_and(is_right)
}

/// Digits only: a parser of the standard library also takes a sign.
fn number(value: &HeaderValue) -> Option<u64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let bytes = value.as_bytes();
    let (first, rest) = bytes.split_first()?;
    rest.iter()
        .try_fold(digit(first)?, |number, byte| number.checked_mul(10)?.checked_add(digit(byte)?))
}

/// Removes the wrong length. hyper then sends the length of the body, or the transfer encoding.
#[cold]
pub(crate) fn remove(headers: &mut HeaderMap) {
    static LIMIT: OncePerSecond = OncePerSecond::new();
    let length = headers.remove(header::CONTENT_LENGTH);
    if let Some(count) = LIMIT.pass() {
        foreign_code::log!(
            error,
            count,
            ?length,
            "a message's content-length is not the length of its body, or stands beside a \
             transfer-encoding: it is not sent"
        );
    }
}
