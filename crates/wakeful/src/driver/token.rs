//! What the kernel gives back with an event.

/// Which registration an event is for: a slot in the table and the generation of its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token(pub(super) u64);

impl Token {
    /// No source has these tokens, because no slot has this index.
    pub(super) const BELL: Self = Self(u64::MAX);
    pub(super) const TIMER: Self = Self(u64::MAX - (1 << 32));
    pub(super) const HIGH: Self = Self(u64::MAX - (2 << 32));
    pub(super) const ALARM: Self = Self(u64::MAX - (3 << 32));

    pub(super) fn new(slot: usize, generation: u32) -> Self {
        debug_assert!(slot < u32::MAX as usize);
        Self((u64::from(generation) << 32) | slot as u64)
    }

    pub(super) fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }
}
