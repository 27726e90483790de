//! HPACK (RFC 7541) as far as `:status` goes.
//!
//! Every block must be read, for each may change the table that later ones refer to; but all that is kept of a field is
//! how long its parts are and, if it is `:status`, its code. So a block is read without building a list of its fields,
//! and whatever it unfolds to takes no room.
//!
//! Decoders that build every field were tried and left: they allocate for each, and the best known ones set up the
//! Huffman code anew for every string, which takes longer than most answers. Only that code is another crate's,
//! [`httlib_huffman`]. It also lets padding of zeros pass, which is no harm to us. The tests compare with a full decoder.

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

/// How much a peer's table may hold, since we announce nothing else.
const MAX_TABLE: usize = 4096;
/// What a field takes in the table besides its letters.
const OVERHEAD: usize = 32;

/// What a block says of the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Absent,
    Code(u16),
    /// Not three digits, or given twice.
    Invalid,
}

/// One field. `status` is other than `Absent` only if that is its name.
#[derive(Debug, Clone, Copy)]
struct Field {
    name: usize,
    value: usize,
    status: Status,
}

/// Reads the blocks of one connection.
#[derive(Debug, Clone)]
pub(super) struct Decoder {
    /// Newest first. Holds fields whose sizes sum up to `size`, which is at most `max`.
    table: VecDeque<Field>,
    size: usize,
    max: usize,
    /// A string that has just been unfolded.
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
    pub(super) fn decode(&mut self, block: &[u8]) -> Result<Status, Fault> {
        let mut rest = block;
        let mut status = Status::Absent;
        let mut fields = false;
        while let Some(&first) = rest.first() {
            if first & 0xe0 == 0x20 {
                let size = integer(&mut rest, 5)?;
                if fields || size > MAX_TABLE {
                    return Err("a change of the table's size where or as it must not be");
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
            status = match (status, field.status) {
                (status, Status::Absent) => status,
                (Status::Absent, new) => new,
                _ => Status::Invalid,
            };
        }
        Ok(status)
    }

    fn at(&self, index: usize) -> Result<Field, Fault> {
        let before = index.checked_sub(1).ok_or("a field of index 0")?;
        if let Some(name) = STATIC_NAMES.get(before) {
            let status = index.checked_sub(FIRST_STATUS).and_then(|at| STATIC_STATUS.get(at));
            let status = status.map_or(Status::Absent, |code| Status::Code(*code));
            // No one asks how long its value is: it does not go into the table.
            return Ok(Field { name: name.len(), value: 0, status });
        }
        let field = self.table.get(before - STATIC_NAMES.len());
        field.copied().ok_or("a field that is not in the table")
    }

    fn literal(&mut self, rest: &mut &[u8], indexed: bool) -> Result<Field, Fault> {
        let index = integer(rest, if indexed { 6 } else { 4 })?;
        let (name, is_status) = if index == 0 {
            let name = self.unfold(string(rest)?)?;
            (name.len(), name == b":status")
        } else {
            let field = self.at(index)?;
            (field.name, field.status != Status::Absent)
        };
        let value = string(rest)?;
        // Nobody needs to know what the value is, or how long.
        if !indexed && !is_status {
            return Ok(Field { name, value: 0, status: Status::Absent });
        }
        let value = self.unfold(value)?;
        let status = if is_status { code(value) } else { Status::Absent };
        let field = Field { name, value: value.len(), status };
        if indexed {
            self.insert(field);
        }
        Ok(field)
    }

    /// The string's letters.
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
        // A field larger than the table only empties it.
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

/// Takes an integer behind a prefix of so many bits.
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
    // Four bytes reach beyond every length and index that can be.
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("an integer out of all proportion")
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
