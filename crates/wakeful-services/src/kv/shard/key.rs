//! A key, and which loop and table own it.

use std::ops::Range;

pub(super) const TABLES: usize = 1024;
/// The bits of a hash that choose the table, and those that choose the loop. The lowest bits choose
/// the place in a table, and the highest seven distinguish its entries (hashbrown).
const TABLE_BITS: Range<u32> = 22..32;
const LOOP_BITS: Range<u32> = 32..56;

/// A key, with its hash.
#[derive(Debug, Clone, Copy)]
pub(in crate::kv) struct Key<'a> {
    pub(in crate::kv) hash: u64,
    pub(in crate::kv) bytes: &'a [u8],
}

impl Key<'_> {
    /// The loop that owns the key, if there are `loops` loops.
    #[inline]
    pub(in crate::kv) fn owner(&self, loops: usize) -> usize {
        let bits = self.hash >> LOOP_BITS.start & ((1 << LOOP_BITS.len()) - 1);
        (bits as usize * loops) >> LOOP_BITS.len()
    }

    #[inline]
    pub(in crate::kv) fn table(&self) -> usize {
        (self.hash >> TABLE_BITS.start) as usize % TABLES
    }
}
