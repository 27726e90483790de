//! The place of a conversation in the peer's bytes.

use super::hpack;

/// How far the peer's bytes have been read.
#[derive(Debug, Clone, Default)]
pub(super) struct Receiving {
    /// A DATA frame of which a part is still to come.
    pub(super) data: Option<Data>,
    /// A header block of which a part is still to come.
    pub(super) block: Option<Block>,
    /// The part of that block that has come. It is bounded by `MAX_BLOCK`. The buffer is kept so
    /// that it need not be allocated again.
    pub(super) fragments: Vec<u8>,
    pub(super) fields: hpack::Decoder,
    /// How many bytes of bodies have come on the whole connection since the peer was last given
    /// room.
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
