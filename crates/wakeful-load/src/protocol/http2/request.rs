//! A request's header block, encoded once. It uses only the static table and literals that are
//! never indexed, so the same bytes mean the same on every stream.

use super::{hpack::STATIC_NAMES, wire::MIN_MAX_FRAME};
use crate::protocol::{InvalidTemplate, Template};

/// Means, in front of a block, that the dynamic table has a size of 0 from here on.
pub(super) const NO_TABLE: u8 = 0x20;

/// Headers that concern the connection (RFC 9113, 8.2.2).
const CONNECTION: [&str; 4] = ["connection", "keep-alive", "proxy-connection", "upgrade"];

/// The header block and the body that every stream sends.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) block: Vec<u8>,
    pub(super) body: Vec<u8>,
    /// Whether this is a gRPC call, whose answer has its result in `grpc-status`.
    pub(super) is_grpc: bool,
}

impl Request {
    pub(super) fn new(template: &Template) -> Result<Self, InvalidTemplate> {
        template.check_http()?;
        let Template { method, path, body, .. } = template;
        let mut block = Vec::new();
        match method.as_str() {
            "GET" => block.push(0x82),
            "POST" => block.push(0x83),
            _ => literal(&mut block, ":method", method.as_bytes()),
        }
        // The field `:scheme: http`.
        block.push(0x86);
        match path.as_str() {
            "/" => block.push(0x84),
            _ => literal(&mut block, ":path", path.as_bytes()),
        }
        literal(&mut block, ":authority", template.host().as_bytes());
        for (name, value) in template.own_headers() {
            let name = name.to_ascii_lowercase();
            let te = name == "te" && !value.eq_ignore_ascii_case("trailers");
            if te || CONNECTION.contains(&name.as_str()) {
                return Err(InvalidTemplate::ConnectionHeader(name));
            }
            literal(&mut block, &name, value.as_bytes());
        }
        if template.says_length() {
            literal(&mut block, "content-length", body.len().to_string().as_bytes());
        }
        // One byte is left for `NO_TABLE`.
        if block.len() >= MIN_MAX_FRAME {
            return Err(InvalidTemplate::HeadersTooLong(block.len()));
        }
        Ok(Self { block, body: body.clone(), is_grpc: template.is_grpc() })
    }
}

/// Appends a field that is not put into a table.
fn literal(block: &mut Vec<u8>, name: &str, value: &[u8]) {
    let known = STATIC_NAMES.iter().position(|it| *it == name);
    integer(block, 4, known.map_or(0, |at| at + 1));
    if known.is_none() {
        string(block, name.as_bytes());
    }
    string(block, value);
}

fn string(block: &mut Vec<u8>, bytes: &[u8]) {
    integer(block, 7, bytes.len());
    block.extend_from_slice(bytes);
}

/// Appends an integer with a prefix of `prefix` bits. The other bits of its first byte are zero.
fn integer(block: &mut Vec<u8>, prefix: u32, value: usize) {
    let most = (1 << prefix) - 1;
    if value < most {
        block.push(value as u8);
        return;
    }
    block.push(most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}
