//! Reads HPACK (RFC 7541) for `:status` and `grpc-status`.
//!
//! Every block has to be read, because it may change the table that later blocks refer to. Of each
//! field only the lengths of its parts are kept, and the value if it is one of the two. So no list
//! of fields is built, and a block that expands takes no memory.
//!
//! Full decoders were tried. They allocate for each field, and the best known ones build the
//! Huffman code again for every string, which takes longer than most answers. So only the Huffman
//! code comes from another crate, [`httlib_huffman`]. It also accepts padding with zeros, which
//! does no harm here. The tests compare with a full decoder.

use std::collections::VecDeque;

use httlib_huffman::DecoderSpeed;

/// The names of the static table, whose first index is 1.
#[rustfmt::skip]
pub(super) const STATIC_NAMES: [&str; 61] = [
    ":authority", ":method", ":method", ":path", ":path", ":scheme", ":scheme",
    ":status", ":status", ":status", ":status", ":status", ":status", ":status",
    "accept-charset", "accept-encoding", "accept-language", "accept-ranges", "accept",
    "access-control-allow-origin", "age", "allow", "authorization", "cache-control",
    "content-disposition", "content-encoding", "content-language", "content-length",
    "content-location", "content-range", "content-type", "cookie", "date", "etag", "expect",
    "expires", "from", "host", "if-match", "if-modified-since", "if-none-match", "if-range",
    "if-unmodified-since", "last-modified", "link", "location", "max-forwards",
    "proxy-authenticate", "proxy-authorization", "range", "referer", "refresh", "retry-after",
    "server", "set-cookie", "strict-transport-security", "transfer-encoding", "user-agent", "vary",
    "via", "www-authenticate",
];
const STATIC_STATUS: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
const FIRST_STATUS: usize = 8;

/// The most bytes that the peer's table may hold. It is the default, because we announce no other
/// size.
const MAX_TABLE: usize = 4096;
/// How many bytes a field takes in the table besides its letters.
const OVERHEAD: usize = 32;

/// What a header block says about the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Absent,
    Code(u16),
    /// The status does not have three digits, or is given twice.
    Invalid,
}

/// What a header block says about the result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) status: Status,
    /// Whether `grpc-status` is 0. `None` if the block does not have it.
    pub(super) grpc_ok: Option<bool>,
}

/// One field.
#[derive(Debug, Clone, Copy)]
struct Field {
    name: usize,
    value: usize,
    says: Says,
}

/// What a field means, according to its name.
#[derive(Debug, Clone, Copy)]
enum Says {
    Nothing,
    Status(Status),
    /// The field is `grpc-status`, and this is whether it is 0.
    GrpcStatus(bool),
}

impl Says {
    /// What a field of the same name with the value `value` means.
    fn with(self, value: &[u8]) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Status(_) => Self::Status(code(value)),
            Self::GrpcStatus(_) => Self::GrpcStatus(value == b"0"),
        }
    }
}

/// Reads the blocks of one connection.
#[derive(Debug, Clone)]
pub(super) struct Decoder {
    /// The newest field is first. The sizes of the fields sum up to `size`, which is at most `max`.
    table: VecDeque<Field>,
    size: usize,
    max: usize,
    /// The last string that was decoded from Huffman code.
    scratch: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: VecDeque::new(), size: 0, max: MAX_TABLE, scratch: Vec::new() }
    }
}

type Fault = &'static str;

impl Decoder {
    /// Reads a whole block.
    pub(super) fn decode(&mut self, block: &[u8]) -> Result<Said, Fault> {
        let mut rest = block;
        let (mut status, mut grpc_ok) = (Status::Absent, None);
        let mut fields = false;
        while let Some(&first) = rest.first() {
            if first & 0xe0 == 0x20 {
                let size = integer(&mut rest, 5)?;
                if fields || size > MAX_TABLE {
                    return Err("an invalid change of the table's size");
                }
                self.max = size;
                self.make_room(0);
                continue;
            }
            fields = true;
            let field = if first & 0x80 != 0 {
                let index = integer(&mut rest, 7)?;
                self.at(index)?
            } else {
                self.literal(&mut rest, first & 0x40 != 0)?
            };
            match (status, field.says) {
                (_, Says::Nothing) => {}
                (_, Says::GrpcStatus(ok)) => grpc_ok = Some(ok),
                (Status::Absent, Says::Status(new)) => status = new,
                (_, Says::Status(_)) => status = Status::Invalid,
            }
        }
        Ok(Said { status, grpc_ok })
    }

    fn at(&self, index: usize) -> Result<Field, Fault> {
        let before = index.checked_sub(1).ok_or("a field of index 0")?;
        if let Some(name) = STATIC_NAMES.get(before) {
            let status = index.checked_sub(FIRST_STATUS).and_then(|at| STATIC_STATUS.get(at));
            let says = status.map_or(Says::Nothing, |code| Says::Status(Status::Code(*code)));
            // The length of the value does not matter, because the field does not go into the
            // table.
            return Ok(Field { name: name.len(), value: 0, says });
        }
        let field = self.table.get(before - STATIC_NAMES.len());
        field.copied().ok_or("a field that is not in the table")
    }

    fn literal(&mut self, rest: &mut &[u8], indexed: bool) -> Result<Field, Fault> {
        let index = integer(rest, if indexed { 6 } else { 4 })?;
        let (name, says) = if index == 0 {
            let name = self.unfold(string(rest)?)?;
            let says = match name {
                b":status" => Says::Status(Status::Absent),
                b"grpc-status" => Says::GrpcStatus(false),
                _ => Says::Nothing,
            };
            (name.len(), says)
        } else {
            let field = self.at(index)?;
            (field.name, field.says)
        };
        let value = string(rest)?;
        // The value and its length do not matter, because the field does not go into the table.
        if !indexed && matches!(says, Says::Nothing) {
            return Ok(Field { name, value: 0, says });
        }
        let value = self.unfold(value)?;
        let field = Field { name, value: value.len(), says: says.with(value) };
        if indexed {
            self.insert(field);
        }
        Ok(field)
    }

    /// Returns the string's letters, decoded if need be.
    fn unfold<'a>(&'a mut self, string: Text<'a>) -> Result<&'a [u8], Fault> {
        if !string.huffman {
            return Ok(string.bytes);
        }
        self.scratch.clear();
        httlib_huffman::decode(string.bytes, &mut self.scratch, DecoderSpeed::FiveBits)
            .map_err(|_| "a string outside the Huffman code")?;
        Ok(&self.scratch)
    }

    fn insert(&mut self, field: Field) {
        let size = field.name + field.value + OVERHEAD;
        self.make_room(size);
        // A field that is larger than the table empties the table and is not added.
        if size <= self.max {
            self.table.push_front(field);
            self.size += size;
        }
    }

    fn make_room(&mut self, size: usize) {
        while self.size + size > self.max
            && let Some(oldest) = self.table.pop_back()
        {
            self.size -= oldest.name + oldest.value + OVERHEAD;
        }
    }
}

/// A string as it was sent.
#[derive(Clone, Copy)]
struct Text<'a> {
    huffman: bool,
    bytes: &'a [u8],
}

fn string<'a>(rest: &mut &'a [u8]) -> Result<Text<'a>, Fault> {
    let huffman = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(rest, 7)?;
    let (bytes, after) = rest.split_at_checked(length).ok_or("a string beyond the block's end")?;
    *rest = after;
    Ok(Text { huffman, bytes })
}

/// Takes an integer with a prefix of `prefix` bits.
fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize, Fault> {
    let mut next = || -> Result<usize, Fault> {
        let (first, after) = rest.split_first().ok_or("an integer beyond the block's end")?;
        *rest = after;
        Ok(usize::from(*first))
    };
    let most = (1 << prefix) - 1;
    let mut value = next()? & most;
    if value < most {
        return Ok(value);
    }
    // No possible length or index needs more than four bytes after the prefix.
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("an integer that is too large")
}

fn code(value: &[u8]) -> Status {
    match *value {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            let [a, b, c] = [a, b, c].map(|digit| u16::from(digit - b'0'));
            Status::Code(100 * a + 10 * b + c)
        }
        _ => Status::Invalid,
    }
}

#[cfg(test)]
mod tests;
