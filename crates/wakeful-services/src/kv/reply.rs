//! Answers in RESP2, appended to what is to be written.

/// Appends an error. Line breaks would begin further answers, so they become blanks.
pub(super) fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

pub(super) fn ok(out: &mut Vec<u8>) {
    out.extend_from_slice(b"+OK\r\n");
}

/// A line that is not from outside.
pub(super) fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text.as_bytes());
}

#[inline]
pub(super) fn integer(out: &mut Vec<u8>, number: i64) {
    line(out, b':', itoa::Buffer::new().format(number).as_bytes());
}

#[inline]
pub(super) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 16);
    line(out, b'$', itoa::Buffer::new().format(bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[inline]
pub(super) fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(b"$-1\r\n");
}

/// The beginning of an array of `count` answers.
pub(super) fn array(out: &mut Vec<u8>, count: usize) {
    line(out, b'*', itoa::Buffer::new().format(count).as_bytes());
}

#[inline]
fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}
