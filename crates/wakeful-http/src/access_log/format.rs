//! The format of a line. Text from a client stays within its field: it cannot end a line or a
//! quoted string.

use std::io::Write;
use std::time::{Duration, SystemTime};

use http::{Method, Version};
use humantime::{Rfc3339Timestamp, format_rfc3339_millis};
use wakeful::net::PeerAddr;

use super::settings::Format;
use crate::dates;

/// Longer texts are cut.
const LONGEST: usize = 4096;

/// A request and its outcome.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// When the request came.
    pub(crate) time: SystemTime,
    pub(crate) peer: PeerAddr,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    /// `None` if queries are not logged.
    pub(crate) query: Option<&'a str>,
    pub(crate) version: Version,
    pub(crate) status: Option<u16>,
    pub(crate) bytes: u64,
    pub(crate) duration: Duration,
    pub(crate) aborted: bool,
    pub(crate) user_agent: Option<&'a [u8]>,
    pub(crate) referer: Option<&'a [u8]>,
    pub(crate) request_id: Option<&'a [u8]>,
    pub(crate) trace_id: Option<u128>,
}

pub(super) fn write(out: &mut Vec<u8>, format: Format, line: &Line<'_>) {
    match format {
        Format::Json => json(out, line),
        Format::Common => common(out, line),
        Format::Combined => {
            common(out, line);
            for text in [line.referer, line.user_agent] {
                out.extend_from_slice(b" \"");
                escape_common(out, text.unwrap_or(b"-"));
                out.push(b'"');
            }
        }
    }
    out.push(b'\n');
}

/// Writes the line that replaces `lines` missing ones.
pub(super) fn write_dropped(out: &mut Vec<u8>, format: Format, now: SystemTime, lines: u64) {
    match format {
        Format::Json => {
            let now = rfc3339(now);
            put(out, format_args!("{{\"time\":\"{now}\",\"dropped\":{lines}}}\n"));
        }
        Format::Common | Format::Combined => put(out, format_args!("# {lines} lines dropped\n")),
    }
}

fn rfc3339(time: SystemTime) -> Rfc3339Timestamp {
    format_rfc3339_millis(dates::writable(time))
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = out.write_fmt(text);
}

fn json(out: &mut Vec<u8>, line: &Line<'_>) {
    let time = rfc3339(line.time);
    put(out, format_args!("{{\"time\":\"{time}\",\"peer\":\"{}\"", line.peer));
    field(out, "method", Some(line.method.as_str().as_bytes()));
    field(out, "path", Some(line.path.as_bytes()));
    field(out, "query", line.query.map(str::as_bytes));
    put(out, format_args!(",\"protocol\":\"{:?}\"", line.version));
    match line.status {
        Some(status) => put(out, format_args!(",\"status\":{status}")),
        None => out.extend_from_slice(b",\"status\":null"),
    }
    let (bytes, aborted, duration) = (line.bytes, line.aborted, line.duration.as_micros());
    put(out, format_args!(",\"bytes\":{bytes},\"duration_us\":{duration},\"aborted\":{aborted}"));
    field(out, "user_agent", line.user_agent);
    field(out, "referer", line.referer);
    field(out, "request_id", line.request_id);
    if let Some(id) = line.trace_id {
        put(out, format_args!(",\"trace_id\":\"{id:032x}\""));
    }
    out.push(b'}');
}

fn field(out: &mut Vec<u8>, name: &str, text: Option<&[u8]>) {
    let Some(text) = text else { return };
    put(out, format_args!(",\"{name}\":\""));
    escape_json(out, text);
    out.push(b'"');
}

/// Escapes as RFC 8259 requires. Control characters beyond ASCII, line ends, and marks that change
/// the direction of text are escaped, too, because a terminal or a reader of lines would obey them.
fn escape_json(out: &mut Vec<u8>, text: &[u8]) {
    let (text, more) = cut(text);
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\0'..'\x20'
                | '\x7f'..='\u{9f}'
                | '\u{61c}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}' => {
                    put(out, format_args!("\\u{:04x}", u32::from(character)));
                }
                _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.extend_from_slice(more);
}

fn common(out: &mut Vec<u8>, line: &Line<'_>) {
    match line.peer {
        PeerAddr::Tcp(addr) => put(out, format_args!("{}", addr.ip())),
        PeerAddr::Unix => out.extend_from_slice(b"unix"),
    }
    out.extend_from_slice(b" - - [");
    common_time(out, line.time);
    out.extend_from_slice(b"] \"");
    escape_common(out, line.method.as_str().as_bytes());
    out.push(b' ');
    escape_common(out, line.path.as_bytes());
    if let Some(query) = line.query {
        out.push(b'?');
        escape_common(out, query.as_bytes());
    }
    put(out, format_args!(" {:?}\" ", line.version));
    match line.status {
        Some(status) => put(out, format_args!("{status} {}", line.bytes)),
        None => put(out, format_args!("- {}", line.bytes)),
    }
}

/// `22/Nov/2026:06:30:00 +0000`.
fn common_time(out: &mut Vec<u8>, time: SystemTime) {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // 2026-11-22T06:30:00.000Z
    let start = out.len();
    put(out, format_args!("{}", rfc3339(time)));
    let mut text = [b'0'; 19];
    text.copy_from_slice(&out[start..start + 19]);
    out.truncate(start);
    let month = usize::from(text[5] - b'0') * 10 + usize::from(text[6] - b'0');
    out.extend_from_slice(&text[8..10]);
    put(out, format_args!("/{}/", MONTHS[(month - 1) % 12]));
    out.extend_from_slice(&text[..4]);
    out.push(b':');
    out.extend_from_slice(&text[11..]);
    out.extend_from_slice(b" +0000");
}

fn escape_common(out: &mut Vec<u8>, text: &[u8]) {
    let (text, more) = cut(text);
    for &byte in text {
        match byte {
            b'"' | b'\\' | 0..b' ' | 0x7f.. => put(out, format_args!("\\x{byte:02X}")),
            _ => out.push(byte),
        }
    }
    out.extend_from_slice(more);
}

/// The beginning of a long text, and a mark that shows that there was more.
fn cut(text: &[u8]) -> (&[u8], &'static [u8]) {
    match text.get(..LONGEST) {
        Some(start) if text.len() > LONGEST => (start, b"..."),
        _ => (text, b""),
    }
}

#[cfg(test)]
mod tests;
