//! A key, and which loop and table own it.

use std::ops::Range;

pub(super) const TABLES: usize = 1024;
/// Which bits of a hash choose the table. The lowest choose the place in a table and the highest
/// seven tell its entries apart (hashbrown); those between choose the loop.
const TABLE_BITS: Range<u32> = 22..32;
const LOOP_BITS: Range<u32> = 32..56;

/// A key, with its hash.
#[derive(Debug, Clone, Copy)]
pub(in crate::kv) struct Key<'a> {
    pub(in crate::kv) hash: u64,
    pub(in crate::kv) bytes: &'a [u8],
}

impl Key<'_> {
    /// Which of so many loops owns it.
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
