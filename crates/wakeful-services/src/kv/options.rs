//! Settings of this service.

use std::time::Duration;

use super::resp::Limits;
use crate::connections::KEEPALIVE;

/// The largest [`KvOptions::max_value`]: 512 MiB.
pub const LARGEST_VALUE: usize = 512 << 20;

/// A command may have so many bytes more than a value.
const COMMAND_BEYOND_VALUE: usize = 1 << 20;
/// The capacity of a buffer of answers that is kept from one write to the next, in bytes.
pub(super) const KEPT: usize = 64 * 1024;

/// Settings of this service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvOptions {
    /// What keys, values and their estimated surroundings may take, in bytes, on all loops
    /// together; 0 is no limit. Loops that fill up at the same moment may go beyond it by a value
    /// each. Redis: `maxmemory`, which counts the buffers of clients, too.
    pub max_memory: usize,
    /// The longest key, value or other word of a command, in bytes; at most [`LARGEST_VALUE`].
    /// Redis: `proto-max-bulk-len`.
    pub max_value: usize,
    /// The longest command, in bytes, which is also the largest query buffer of a connection.
    /// `None`: 1 MiB more than `max_value`. Redis: `client-query-buffer-limit`.
    pub client_query_buffer_limit: Option<usize>,
    /// What the buffers of all connections may take together, in bytes, beside `max_memory`; 0 is
    /// no limit. `None`: a quarter of `max_memory`, and at least four of the longest commands; no
    /// limit if `max_memory` has none. Redis: `maxmemory-clients`.
    pub max_memory_clients: Option<usize>,
    /// How many connections may be open. A further one is told so and closed; 0 is no limit. Redis:
    /// `maxclients`.
    pub max_connections: usize,
    /// How long a connection may be open between two commands. `None`: for ever, as clients keep
    /// connections in pools. Redis: `timeout`.
    pub idle_timeout: Option<Duration>,
    /// How long nothing may come of a command that has begun, or be taken of an answer. `None`: for
    /// ever.
    pub stall_timeout: Option<Duration>,
    /// After how long a silent peer is probed (TCP keepalive): whole seconds, 1 to 32,767. One that
    /// does not answer is gone after as long again. `None`: never. Redis: `tcp-keepalive`.
    pub keepalive: Option<Duration>,
}

impl Default for KvOptions {
    /// 1 GiB in all, 16 MiB for a value, 10,000 connections, a minute for one that stalls.
    fn default() -> Self {
        Self {
            max_memory: 1 << 30,
            max_value: 16 << 20,
            client_query_buffer_limit: None,
            max_memory_clients: None,
            max_connections: 10_000,
            idle_timeout: None,
            stall_timeout: Some(Duration::from_secs(60)),
            keepalive: Some(KEEPALIVE),
        }
    }
}

impl KvOptions {
    pub(super) fn limits(&self) -> Limits {
        let word = self.max_value.min(LARGEST_VALUE);
        let command = self.client_query_buffer_limit.unwrap_or(word + COMMAND_BEYOND_VALUE);
        Limits { word, command }
    }

    /// What `max_memory_clients` stands for. 0 is no limit.
    pub(super) fn client_memory(&self) -> usize {
        match self.max_memory_clients {
            Some(bytes) => bytes,
            None if self.max_memory == 0 => 0,
            // On its way to another loop a command is there twice.
            None => (self.max_memory / 4).max(4 * self.limits().command),
        }
    }
}
