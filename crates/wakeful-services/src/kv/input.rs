//! The bytes that a connection sent, and the commands in them.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use super::resp::{Limits, NO_MEMORY_FOR_WORDS, Parser, ProtocolError, Words};
use super::service::Local;
use crate::buffers::{Charge, FREE};
use crate::patience::PatientStream;

/// The size of a connection's buffer at first, and as soon as a read has filled it. Most clients
/// send a short command at a time.
const FIRST: usize = 4 * 1024;
const BUFFER: usize = FREE;

const NO_ROOM: &str = "OOM command not read when client buffers > 'maxmemory-clients'.";
const NO_MEMORY: &str = "OOM command not read: no memory left for it";

/// The input of one connection. See the module.
#[derive(Debug)]
pub(super) struct Input {
    /// Made by the first [`make_room`](Self::make_room), which can fail.
    buffer: Vec<u8>,
    /// The end of the bytes that were answered,
    start: usize,
    /// and of those that were read.
    end: usize,
    parser: Parser,
    /// A longer command is refused, so no larger buffer is ever needed.
    largest: usize,
    /// The memory of the buffer and of the parser.
    charge: Charge,
}

impl Input {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            parser: Parser::new(limits),
            largest: limits.command.max(BUFFER),
            charge: Charge::default(),
        }
    }

    /// Is there nothing, not even a part of a command?
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Has it given any command since [`make_room`](Self::make_room)?
    #[inline]
    pub(super) fn has_given_any(&self) -> bool {
        self.start > 0
    }

    /// Reads once, after [`make_room`](Self::make_room). 0: the peer has ended, or `told` was ready
    /// and nothing else was. `told` is given between two commands.
    ///
    /// # Errors
    /// The kernel's. `TimedOut`: between two commands nothing came for `limit`; within one too
    /// little came.
    pub(super) async fn read_from(
        &mut self,
        from: &mut PatientStream,
        told: Option<Pin<&mut impl Future<Output = ()>>>,
        limit: Option<Duration>,
    ) -> io::Result<usize> {
        let space = &mut self.buffer[self.end..];
        let count = match told {
            Some(told) => from.read_unless_told(space, told, limit).await?,
            None => from.read_on(space).await?,
        };
        self.end += count;
        Ok(count)
    }

    /// The next complete command. It may have no words.
    ///
    /// # Errors
    /// The next bytes are no command, or it is too large. Nothing after it can be understood.
    #[inline]
    pub(super) fn next(&mut self, local: &Local) -> Result<Option<Words<'_>>, ProtocolError> {
        let command = self.start;
        let length = self.parser.parse(&self.buffer[command..self.end])?;
        let held = self.parser.held();
        if held > 0 && !local.shard.borrow_mut().spare().lasts(held) {
            return Err(ProtocolError::new(NO_MEMORY_FOR_WORDS));
        }
        let Some(length) = length else { return Ok(None) };
        self.start += length;
        Ok(Some(self.parser.words(&self.buffer[command..self.start])))
    }

    /// Moves the rest to the front, and lets the buffer grow by what has come, and not by what was
    /// announced.
    ///
    /// # Errors
    /// `budget` has no room for more, or there is no memory. The text is for the client.
    pub(super) fn make_room(&mut self, local: &Local) -> Result<(), &'static str> {
        let budget = local.service.meters.buffers();
        let size = self.buffer.len();
        let was_full = self.end == size;
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let larger = match was_full {
            true if self.end == size => (2 * size).clamp(FIRST, self.largest),
            // There may be more to read.
            true => size.max(BUFFER),
            false => size,
        };
        if larger > size {
            if !self.charge.cover(budget, larger + self.parser.held()) {
                return Err(NO_ROOM);
            }
            let (mut shard, more) = (local.shard.borrow_mut(), larger - size);
            if shard.spare().lends(larger, || self.buffer.try_reserve_exact(more)) {
                self.buffer.resize(larger, 0);
            } else if self.end == size {
                return Err(NO_MEMORY);
            }
        } else if self.buffer.len() > BUFFER && self.end < BUFFER {
            self.buffer.truncate(BUFFER);
            self.buffer.shrink_to_fit();
        }
        self.parser.shrink();
        let size = self.buffer.len() + self.parser.held();
        self.charge.shrink_to(size);
        if self.charge.cover(budget, size) { Ok(()) } else { Err(NO_ROOM) }
    }
}
