//! The open streams, by their numbers.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::protocol::Outcome;

/// One request under way.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    /// How many bytes of the body the peer takes. It is negative after the peer has made its window
    /// smaller.
    pub(super) window: i64,
    /// How much of the body is still to be sent.
    pub(super) unsent: usize,
    /// How many bytes of the answer's body have come since the peer was last given room.
    pub(super) received: u32,
    /// What the answer's head said, once it has come.
    pub(super) outcome: Option<Outcome>,
    /// Whether the answer's `grpc-status` was 0, once it has come.
    pub(super) grpc_ok: Option<bool>,
}

/// The map keeps its room, so that a steady number of streams allocates nothing.
pub(super) type Streams = HashMap<u32, Stream, BuildHasherDefault<Spread>>;

/// A hasher for stream numbers. The numbers are our own and consecutive, so nobody can choose them
/// so that they collide.
#[derive(Debug, Clone, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        // The lowest bit is always set. The factor is that of Fibonacci hashing.
        self.0 = (self.0 ^ u64::from(number >> 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
