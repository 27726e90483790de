//! The part of a request's body that h2 holds, and has not written yet.
//!
//! hyper hands a body's last piece to h2 in one call, however large the piece is, and drops the
//! body. The server may have sent its whole response by then, and may never open the window for
//! that piece. h2 counts the stream until the piece is written. Until then h2 would keep another
//! request in its own queue, at the server's limit of streams. So each piece reports when h2 drops
//! it.
//!
//! h2 drops a piece with its lock held. So the drop wakes no request. It wakes the connection's
//! task, and that wake runs no foreign code.

use std::cell::{Cell, OnceCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;

use bytes::{Buf, Bytes};
use wakeful::LoopBound;
use wakeful::time::turn_time;

use crate::foreign_code;
use crate::joined::Data;

/// A connection's streams that have ended, except that h2 still holds a piece of their body.
#[derive(Default)]
pub(super) struct Unwritten {
    streams: Cell<usize>,
    has_written_one: Cell<bool>,
    /// When h2 got the last piece of any stream.
    took_one: Cell<Option<Instant>>,
    /// The waker of the connection's task.
    waker: Cell<Option<Waker>>,
}

impl Unwritten {
    pub(super) fn streams(&self) -> usize {
        self.streams.get()
    }

    /// Returns when h2 got its last piece.
    pub(super) fn took_one(&self) -> Option<Instant> {
        self.took_one.get()
    }

    /// Returns whether h2 has finished one of the streams since the last call. The connection's
    /// task calls it, and is woken for the next one.
    pub(super) fn has_written_one(&self, cx: &Context<'_>) -> bool {
        let known = self.waker.take().filter(|known| known.will_wake(cx.waker()));
        self.waker.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
        self.has_written_one.take()
    }

    fn wrote_one(&self) {
        self.streams.set(self.streams.get() - 1);
        self.has_written_one.set(true);
        self.waker.take().into_iter().for_each(foreign_code::wake);
    }
}

/// The pieces of one stream.
pub(super) struct Pieces {
    connection: Rc<Unwritten>,
    /// Made with the first piece of the body.
    shared: OnceCell<Arc<LoopBound<Shared>>>,
}

/// What the pieces of a stream share.
struct Shared {
    connection: Rc<Unwritten>,
    is_left: Cell<bool>,
}

impl Pieces {
    pub(super) fn new(connection: Rc<Unwritten>) -> Self {
        Self { connection, shared: OnceCell::new() }
    }

    /// Returns whether h2 still holds a piece, when both bodies of the stream have ended. If so,
    /// the stream counts as unwritten from now on.
    pub(super) fn are_left(&self) -> bool {
        let shared = self.shared.get().filter(|shared| Arc::strong_count(shared) > 1);
        let Some(shared) = shared.and_then(|shared| shared.get()) else { return false };
        shared.is_left.set(true);
        self.connection.streams.set(self.connection.streams.get() + 1);
        true
    }

    fn share(&self) -> Arc<LoopBound<Shared>> {
        self.connection.took_one.set(Some(turn_time()));
        let new = || {
            let (connection, is_left) = (self.connection.clone(), Cell::new(false));
            Arc::new(LoopBound::new(Shared { connection, is_left }))
        };
        self.shared.get_or_init(new).clone()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.is_left.get() {
            self.connection.wrote_one();
        }
    }
}

/// A piece of a request's body.
pub(super) struct Piece<D> {
    data: Data<D>,
    /// Set with HTTP/2 only.
    _shared: Option<Arc<LoopBound<Shared>>>,
}

impl<D> Piece<D> {
    pub(super) fn new(data: Data<D>, of: Option<&Pieces>) -> Self {
        Self { data, _shared: of.map(Pieces::share) }
    }
}

impl<D: Buf> Buf for Piece<D> {
    #[inline]
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    #[inline]
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(slices)
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        self.data.advance(count);
    }

    #[inline]
    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        self.data.copy_to_bytes(length)
    }
}
