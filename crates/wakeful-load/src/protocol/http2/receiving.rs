//! The place of a conversation in the peer's bytes.

use super::hpack;

/// Where in the peer's bytes we are.
#[derive(Debug, Clone, Default)]
pub(super) struct Receiving {
    /// A DATA frame of which a part is still to come.
    pub(super) data: Option<Data>,
    /// A header block of which a part is still to come.
    pub(super) block: Option<Block>,
    /// That block's part which has come. Bounded by `MAX_BLOCK`; kept for its room.
    pub(super) fragments: Vec<u8>,
    pub(super) fields: hpack::Decoder,
    /// Bytes of bodies on the whole connection since the peer was last given room.
    pub(super) received: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    pub(super) stream: u32,
    pub(super) left: usize,
    pub(super) end: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) end: bool,
}
