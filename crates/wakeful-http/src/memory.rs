//! Whether there is memory for what a peer has announced.
//!
//! The libraries below reserve a frame or a message in one piece as soon as its length has come,
//! and end the process if the memory is not there (`RLIMIT_AS`). So this asks before they do.
//! Another thread may take the memory in between: this makes the end unlikely, not impossible.

use std::hint::black_box;

/// Smaller pieces are like the program's own: it ends if it has no memory at all.
const LARGE: usize = 16 << 10;
/// What is left for those.
const LEFT: usize = 1 << 20;

/// Is there memory for a piece of this many bytes, and for some small ones beside it?
pub(crate) fn is_there_for(bytes: usize) -> bool {
    if bytes < LARGE {
        return true;
    }
    let mut piece = Vec::<u8>::new();
    let is_there = piece.try_reserve_exact(bytes.saturating_add(LEFT)).is_ok();
    // Otherwise the compiler may leave out what is never used.
    black_box(&piece);
    is_there
}

#[cfg(test)]
mod tests {
    #[test]
    fn more_than_there_is_is_not_there() {
        assert!(super::is_there_for(1 << 20));
        assert!(!super::is_there_for(isize::MAX as usize));
    }
}
