//! What a connection sent: its bytes, and the commands in them.

use std::io;
use std::pin::Pin;

use wakeful::net::Stream;

use super::KEPT;
use super::resp::{Limits, Parser, ProtocolError, Words};
use crate::connections::read_unless_told;

/// What a connection's buffer begins with.
const BUFFER: usize = 16 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Vec<u8>,
    /// What has been answered ends here,
    start: usize,
    /// and what was read, here.
    end: usize,
    parser: Parser,
}

impl Input {
    pub(super) fn new(limits: Limits) -> Self {
        Self { buffer: vec![0; BUFFER], start: 0, end: 0, parser: Parser::new(limits) }
    }

    /// Is there nothing, not even a part of a command?
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads once. 0: the peer has ended, or `told` was ready and nothing else was.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) async fn read_from(
        &mut self,
        from: &mut Stream,
        told: Option<Pin<&mut impl Future<Output = ()>>>,
    ) -> io::Result<usize> {
        self.make_room();
        let count = read_unless_told(from, &mut self.buffer[self.end..], told).await?;
        self.end += count;
        Ok(count)
    }

    /// The next complete command.
    ///
    /// # Errors
    /// What comes next is none, or too large. Nothing behind it can be understood.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Words<'_>>, ProtocolError> {
        loop {
            let command = self.start;
            let Some(length) = self.parser.parse(&self.buffer[command..self.end])? else {
                return Ok(None);
            };
            self.start += length;
            if self.parser.has_words() {
                return Ok(Some(self.parser.words(&self.buffer[command..self.start])));
            }
        }
    }

    /// Moves what is left to the front, and lets the buffer grow by what has come, not by what was announced.
    fn make_room(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        } else if self.buffer.len() > KEPT && self.end <= BUFFER {
            self.buffer.truncate(BUFFER);
            self.buffer.shrink_to_fit();
        }
        self.parser.shrink();
    }
}
