//! Memory that a loop keeps back. If the process may have no more memory (`RLIMIT_AS`), whatever
//! holds bytes of clients is refused while there is still some for what cannot be refused: a task,
//! a message to another loop, a log line. Otherwise the next small allocation would abort the
//! process.
//!
//! * A key, a value or a large buffer needs all of the spare memory to be there, and takes nothing
//!   of it.
//! * A small buffer needs half of it, and may take from the other half. So clients that come when
//!   nothing else is left can still clear the keys.
//! * An error takes from it. Connections write their answers early then, so errors are few.
//!
//! The spare memory is given when a buffer cannot be had, and also before: now and then a look
//! shows whether there is some more. Once given, it is taken only for as long as a client's bytes
//! find their place, until there is more again.

use std::collections::TryReserveError;

use crate::buffers::{FREE, PIECE, is_some_left};

/// The number of pieces. They are never written, so they take next to no memory.
const PIECES: usize = 16;

/// After clients have taken this many bytes, it is time for a look.
const LOOK_AFTER: usize = 256 << 10;

#[derive(Debug)]
pub(in crate::kv) struct Spare {
    pieces: Vec<Vec<u8>>,
    /// How many bytes clients have taken since the last look. [`LOOK_AFTER`]: there was no memory.
    taken: usize,
}

impl Spare {
    pub(super) fn new() -> Self {
        let mut spare = Self { pieces: Vec::with_capacity(PIECES), taken: 0 };
        spare.keep(PIECES);
        spare
    }

    /// Is there so little memory that buffers had better not grow?
    pub(in crate::kv) fn is_given(&self) -> bool {
        self.taken >= LOOK_AFTER
    }

    /// Notes that a client has taken `bytes`. `false`: too little is left.
    #[cold]
    pub(in crate::kv) fn lasts(&mut self, bytes: usize) -> bool {
        self.settle(bytes, true);
        !self.is_given()
    }

    /// Makes room for `more` bytes of a client. `false`: there is no memory for them.
    #[inline]
    pub(in crate::kv) fn has_room<T>(&mut self, to: &mut Vec<T>, more: usize) -> bool {
        to.capacity() - to.len() >= more
            || self.lends((to.len() + more) * size_of::<T>(), || to.try_reserve(more))
    }

    /// The same for a buffer that has `size` bytes afterwards.
    #[cold]
    pub(in crate::kv) fn lends(
        &mut self,
        size: usize,
        mut reserve: impl FnMut() -> Result<(), TryReserveError>,
    ) -> bool {
        let is_small = size <= FREE;
        if !self.are_there(if is_small { PIECES / 2 } else { PIECES }) {
            return false;
        }
        let has_room = if is_small { self.gives(reserve) } else { reserve().is_ok() };
        self.settle(size, has_room);
        has_room
    }

    /// Makes room for what is not a client's. If there is no other memory, it is taken from this.
    #[inline]
    pub(in crate::kv) fn gives(
        &mut self,
        mut reserve: impl FnMut() -> Result<(), TryReserveError>,
    ) -> bool {
        reserve().is_ok() || {
            self.give();
            reserve().is_ok()
        }
    }

    /// Is all of the spare memory there, perhaps from now on? To be asked before a client's bytes
    /// find their place. [`settle`](Self::settle) must follow.
    #[inline]
    pub(super) fn is_there(&mut self) -> bool {
        self.are_there(PIECES)
    }

    #[inline]
    fn are_there(&mut self, pieces: usize) -> bool {
        self.pieces.len() >= pieces || self.keep(pieces)
    }

    #[cold]
    fn keep(&mut self, pieces: usize) -> bool {
        while self.pieces.len() < pieces {
            let mut piece = Vec::new();
            if piece.try_reserve_exact(PIECE).is_err() {
                self.give();
                return false;
            }
            self.pieces.push(piece);
        }
        true
    }

    /// A client's bytes have taken this much memory, or could not have it.
    #[inline]
    pub(super) fn settle(&mut self, taken: usize, had_room: bool) {
        self.taken = self.taken.saturating_add(taken);
        if !had_room {
            self.give();
        } else if self.taken >= LOOK_AFTER {
            self.look();
        }
    }

    #[cold]
    fn look(&mut self) {
        if is_some_left() {
            self.taken = 0;
        } else {
            self.give();
        }
    }

    /// Releases the spare memory for everything else.
    #[cold]
    fn give(&mut self) {
        self.pieces.clear();
        self.taken = LOOK_AFTER;
    }
}
