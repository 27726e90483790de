//! Replaces header values by copies.
//!
//! The bytes of a header value may belong to the program (`Bytes::from_owner`), and their drop may
//! panic. h2 keeps the values of many messages together: in its queue of frames, and in the table
//! by which it compresses headers. It drops an old value while it holds a new one, and drops all of
//! them when the connection ends. Two such panics would abort the process. So values are copied
//! before h2 gets them, and the program's values are dropped here, one at a time.
//!
//! From outside, a value that belongs to the program looks like a static one, so all values are
//! copied. The copies share blocks of memory, so this allocates once for many values.

use std::cell::RefCell;
use std::mem;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;

use crate::foreign_code::contain;

/// The size of a block in bytes. A value that is kept keeps its whole block in memory.
const BLOCK: usize = 1 << 10;

thread_local! {
    /// The rest of the last block.
    static REST: RefCell<BytesMut> = RefCell::default();
}

/// Replaces each value in `headers` by a copy.
pub(crate) fn own(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        let Ok(mut copy) = HeaderValue::from_maybe_shared(copy(value.as_bytes())) else { continue };
        copy.set_sensitive(value.is_sensitive());
        let foreign = mem::replace(value, copy);
        contain(|| drop(foreign));
    }
}

/// A frame of a body, whose trailers have copies of their values.
pub(crate) fn of_trailers<D>(mut frame: Frame<D>) -> Frame<D> {
    if let Some(trailers) = frame.trailers_mut() {
        own(trailers);
    }
    frame
}

fn copy(bytes: &[u8]) -> Bytes {
    if bytes.is_empty() {
        return Bytes::new();
    }
    let copied = REST.try_with(|rest| {
        let rest = &mut *rest.borrow_mut();
        if rest.capacity() < bytes.len() {
            *rest = BytesMut::with_capacity(BLOCK.max(bytes.len()));
        }
        rest.extend_from_slice(bytes);
        rest.split().freeze()
    });
    // The thread-local is gone, because the thread is ending.
    copied.unwrap_or_else(|_| Bytes::copy_from_slice(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_says_the_same_and_many_share_a_block() {
        let long = "x".repeat(3 * BLOCK);
        let mut headers = HeaderMap::new();
        for text in ["", "text/plain", "a", "é", &long, "b"] {
            headers.append("name", HeaderValue::from_bytes(text.as_bytes()).unwrap());
        }
        let mut secret = HeaderValue::from_static("secret");
        secret.set_sensitive(true);
        headers.insert("secret", secret);
        let before = headers.clone();
        own(&mut headers);
        assert_eq!(headers, before);
        assert!(headers["secret"].is_sensitive() && !headers["name"].is_sensitive());
        let at = |value: &HeaderValue| value.as_bytes().as_ptr().addr();
        let values: Vec<_> = headers.get_all("name").iter().collect();
        assert_eq!(at(values[1]) + "text/plain".len(), at(values[2]));
    }
}
