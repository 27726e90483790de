//! Memory that a shard keeps back. If the process may have no more memory (`RLIMIT_AS`), keys and
//! values are refused while there is still some for what cannot be refused: an answer, a buffer, a
//! log line. Otherwise the next small allocation would abort the process.

/// The size of a piece, and the number of pieces. They are never written, so they take next to no
/// memory.
const PIECE: usize = 64 << 10;
const PIECES: usize = 16;

#[derive(Debug)]
pub(super) struct Spare(Vec<Vec<u8>>);

impl Spare {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(PIECES))
    }

    /// Is all of the spare memory there, perhaps from now on? As long as it is not, nothing may
    /// grow.
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

    /// Releases the spare memory for everything else, because there is none left.
    #[cold]
    pub(super) fn give(&mut self) {
        self.0.clear();
    }
}
