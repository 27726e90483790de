//! Memory that a shard keeps back. Where the process may have no more (`RLIMIT_AS`), keys and
//! values are refused while there is still some for what cannot be refused: an answer, a buffer, a
//! log line. Without it, whatever asks for a few bytes next would end the process.

/// One piece, as many of them. They are never written, so they take next to no memory.
const PIECE: usize = 64 << 10;
const PIECES: usize = 16;

#[derive(Debug)]
pub(super) struct Spare(Vec<Vec<u8>>);

impl Spare {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(PIECES))
    }

    /// Is all of it there, now at the latest? As long as it is not, nothing may grow.
    #[inline]
    pub(super) fn is_there(&mut self) -> bool {
        self.0.len() == PIECES || self.keep()
    }

    #[cold]
    fn keep(&mut self) -> bool {
        while self.0.len() < PIECES {
            let mut piece = Vec::new();
            if piece.try_reserve_exact(PIECE).is_err() {
                self.give();
                return false;
            }
            self.0.push(piece);
        }
        true
    }

    /// There is no memory left: for all others.
    #[cold]
    pub(super) fn give(&mut self) {
        self.0.clear();
    }
}
