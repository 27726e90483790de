//! The bytes that have arrived on a connection, and those to be written to it.

use crate::resp::{self, Parsed};
use crate::store::Store;

/// How much room there is to read into, in bytes.
const ROOM: usize = 16 << 10;

/// While more than this waits to be written, nothing is answered: a client that does not read its
/// answers must not fill the memory.
const MOST_WAITING: usize = 1 << 20;

/// The bytes of one connection.
pub struct Buffers {
    /// Always initialised up to its length; `received` of it are bytes.
    input: Vec<u8>,
    received: usize,
    /// Answers. The code that writes them empties it.
    pub output: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { input: vec![0; ROOM], received: 0, output: Vec::new() }
    }
}

impl Buffers {
    /// Returns room to read into, never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.received == self.input.len() {
            self.input.resize(self.input.len() * 2, 0);
        }
        &mut self.input[self.received..]
    }

    /// Reports that `count` bytes were read into it.
    pub fn received(&mut self, count: usize) {
        self.received += count;
    }

    /// Answers all complete requests, until much waits to be written. The rest is answered later.
    /// An error is sent to the client, and ends the connection.
    pub fn answer(&mut self, store: &Store) -> Result<(), &'static str> {
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
}
