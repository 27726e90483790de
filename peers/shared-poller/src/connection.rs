//! One connection: what has arrived, and what is to be written. Whoever holds its lock goes on with it as far as the socket allows.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::resp::{self, Parsed};
use crate::store::Store;

/// Room to read into.
const ROOM: usize = 16 << 10;

/// While more than this waits to be written nothing is read: a client that does not read its answers may not fill the memory.
const MOST_WAITING: usize = 1 << 20;

/// What a connection waits for.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Readable,
    Writable,
    Closed,
}

pub struct Connection {
    stream: OwnedFd,
    /// Always initialised up to its length; `received` of it are bytes.
    input: Vec<u8>,
    received: usize,
    output: Vec<u8>,
    written: usize,
}

impl Connection {
    pub fn new(stream: OwnedFd) -> Self {
        Self { stream, input: vec![0; ROOM], received: 0, output: Vec::new(), written: 0 }
    }

    pub fn stream(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Writes, answers and reads until the socket has no more or takes no more.
    pub fn go_on(&mut self, store: &Store) -> Next {
        let mut is_empty = false;
        loop {
            match self.flush() {
                Ok(true) => {}
                Ok(false) => return Next::Writable,
                Err(_) => return Next::Closed,
            }
            if self.answer(store).is_err() {
                // It is told what was wrong, as far as it listens.
                self.flush().ok();
                return Next::Closed;
            }
            if !self.output.is_empty() {
                continue;
            }
            if is_empty {
                return Next::Readable;
            }
            if self.received == self.input.len() {
                self.input.resize(self.input.len() * 2, 0);
            }
            let space = &mut self.input[self.received..];
            let room = space.len();
            match recv(&self.stream, space, RecvFlags::empty()) {
                Ok((_, 0)) => return Next::Closed,
                Ok((_, count)) => {
                    self.received += count;
                    // A stream socket that gave less than there was room for has no more; if it has by now, the next event says so.
                    is_empty = count < room;
                }
                Err(Errno::AGAIN) => return Next::Readable,
                Err(Errno::INTR) => {}
                Err(_) => return Next::Closed,
            }
        }
    }

    /// Answers what has arrived in full, until much waits to be written: then the rest is for later.
    fn answer(&mut self, store: &Store) -> Result<(), &'static str> {
        let mut taken = 0;
        let outcome = loop {
            if self.output.len() > MOST_WAITING {
                break Ok(());
            }
            match resp::parse(&self.input[taken..self.received]) {
                Ok(Parsed::Command { words, length }) => {
                    store.answer(&words, &mut self.output);
                    taken += length;
                }
                Ok(Parsed::Incomplete) => break Ok(()),
                Err(wrong) => {
                    self.output.extend_from_slice(b"-ERR Protocol error: ");
                    self.output.extend_from_slice(wrong.as_bytes());
                    self.output.extend_from_slice(b"\r\n");
                    break Err(wrong);
                }
            }
        };
        self.input.copy_within(taken..self.received, 0);
        self.received -= taken;
        outcome
    }

    /// Whether all is written.
    fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.output.len() {
            match send(&self.stream, &self.output[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(true)
    }
}
