//! A key and its value.

use super::key::Key;
use super::operation::Refused;

/// What an entry takes in addition to its bytes: its place in a table, the places that a table
/// keeps free, and the overhead of the allocator. This is an estimate. With a million keys, and
/// values of 10 to 1,000 bytes, the resident set was as large as the counted memory, or up to a
/// tenth smaller.
const OVERHEAD: usize = 80;

/// Key and value, in one allocation.
#[derive(Debug)]
pub(super) struct Entry {
    bytes: Box<[u8]>,
    /// The hash is stored, so that a table that grows need not read the keys.
    hash: u64,
    key: u32,
}

impl Entry {
    /// # Errors
    /// There is no memory for it.
    pub(super) fn new(key: Key<'_>, value: &[u8]) -> Result<Self, Refused> {
        let length = u32::try_from(key.bytes.len()).expect("words are limited to less");
        Ok(Self { bytes: joined(key.bytes, value)?, hash: key.hash, key: length })
    }

    #[inline]
    pub(super) fn is(&self, key: Key<'_>) -> bool {
        self.hash == key.hash && self.key() == key.bytes
    }

    #[inline]
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key as usize]
    }

    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        &self.bytes[self.key as usize..]
    }

    /// Returns the memory that the entry no longer needs.
    ///
    /// # Errors
    /// There is no memory for it, and the value is as it was.
    #[inline]
    pub(super) fn replace(&mut self, value: &[u8]) -> Result<Box<[u8]>, Refused> {
        let old = &mut self.bytes[self.key as usize..];
        if old.len() == value.len() {
            old.copy_from_slice(value);
            return Ok(Box::default());
        }
        let new = joined(self.key(), value)?;
        Ok(std::mem::replace(&mut self.bytes, new))
    }

    pub(super) fn into_bytes(self) -> Box<[u8]> {
        self.bytes
    }

    /// The memory that it takes, in bytes.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + OVERHEAD
    }

    /// Returns the memory that this key takes with a value of `value` bytes.
    #[inline]
    pub(super) fn size_of(key: &[u8], value: usize) -> usize {
        key.len() + value + OVERHEAD
    }
}

/// # Errors
/// There is no memory for both. (`concat` would abort the process.)
fn joined(key: &[u8], value: &[u8]) -> Result<Box<[u8]>, Refused> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(key.len() + value.len()).map_err(|_| Refused::NoMemory)?;
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    Ok(bytes.into())
}
