//! Settings of this service.

use std::time::Duration;

use super::resp::Limits;
use crate::connections::KEEPALIVE;

/// The largest [`KvOptions::max_value`]: 512 MiB.
pub const LARGEST_VALUE: usize = 512 << 20;

/// The default of [`KvOptions::max_value`]: 16 MiB.
pub const DEFAULT_MAX_VALUE: usize = 16 << 20;

/// How many more bytes a command may have than a value.
const COMMAND_BEYOND_VALUE: usize = 1 << 20;
/// The capacity of a buffer of answers that is kept from one write to the next, in bytes.
pub(super) const KEPT: usize = 64 * 1024;

/// The settings of the key-value service.
///
/// | setting | default | beyond it |
/// |---|---|---|
/// | [`max_memory`](Self::max_memory) | 1 GiB | a write that needs more is refused |
/// | [`max_value`](Self::max_value) | 16 MiB | the connection gets an error and is closed |
/// | [`client_query_buffer_limit`](Self::client_query_buffer_limit) | 1 MiB more than `max_value` | the connection is closed |
/// | [`max_memory_clients`](Self::max_memory_clients) | a quarter of `max_memory`, and at least four of the longest commands (256 MiB with the other defaults); none if `max_memory` is none | the connection is closed with an error, or the answer is an error |
/// | [`max_connections`](Self::max_connections) | 10,000 | the connection gets an error and is closed |
/// | [`idle_timeout`](Self::idle_timeout) | none | the connection is closed |
/// | [`stall_timeout`](Self::stall_timeout) | 60 s | the connection is closed |
/// | [`keepalive`](Self::keepalive) | 300 s | the peer is probed |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a setter returns the changed options"]
pub struct KvOptions {
    pub(super) max_memory: Option<usize>,
    pub(super) max_value: usize,
    pub(super) client_query_buffer_limit: Option<usize>,
    pub(super) max_memory_clients: ClientMemory,
    pub(super) max_connections: Option<usize>,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) stall_timeout: Option<Duration>,
    pub(super) keepalive: Option<Duration>,
}

impl KvOptions {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how much memory keys, values and their estimated overhead may use, in bytes, on all
    /// loops together. `None` disables the limit. With 0, every write is refused. Loops that reach
    /// the limit at the same moment may each exceed it by one value. In Redis this is `maxmemory`,
    /// which also counts the buffers of clients.
    pub fn max_memory(mut self, bytes: impl Into<Option<usize>>) -> Self {
        self.max_memory = bytes.into();
        self
    }

    /// Sets the maximum length of a key, a value or any other word of a command, in bytes. More
    /// than [`LARGEST_VALUE`] becomes that. In Redis this is `proto-max-bulk-len`.
    pub fn max_value(mut self, bytes: usize) -> Self {
        self.max_value = bytes;
        self
    }

    /// Sets the maximum length of a command, in bytes, and so the maximum size of a connection's
    /// query buffer. With `None` the limit is 1 MiB more than `max_value`. In Redis this is
    /// `client-query-buffer-limit`.
    pub fn client_query_buffer_limit(mut self, bytes: impl Into<Option<usize>>) -> Self {
        self.client_query_buffer_limit = bytes.into();
        self
    }

    /// Sets how much memory the buffers of all connections together may use, in bytes, in addition
    /// to `max_memory`. `None` disables the limit. The default is a quarter of `max_memory`, but at
    /// least four times the longest command, or no limit if `max_memory` has none. Buffers of up to
    /// 16 KiB are not counted. In Redis this is `maxmemory-clients`.
    pub fn max_memory_clients(mut self, bytes: impl Into<Option<usize>>) -> Self {
        self.max_memory_clients = ClientMemory::Is(bytes.into());
        self
    }

    /// Sets how many connections may be open. A further connection gets an error and is closed. If
    /// the process's limit of descriptors allows fewer connections when the service starts, that
    /// number takes the place of this one. With `None` further connections wait until a descriptor
    /// is free. In Redis this is `maxclients`.
    pub fn max_connections(mut self, connections: impl Into<Option<usize>>) -> Self {
        self.max_connections = connections.into();
        self
    }

    /// Sets how long a connection may be silent between two commands. `None` disables the limit.
    /// This is the default, because clients keep connections in pools. In Redis this is `timeout`.
    pub fn idle_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.idle_timeout = timeout.into();
        self
    }

    /// Sets how long the client may send less than 240 bytes a second in the middle of a command,
    /// or read that little of an answer. `None` disables the limit.
    pub fn stall_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.stall_timeout = timeout.into();
        self
    }

    /// Sets how long a peer may be silent before TCP probes it (keepalive), in whole seconds from 1
    /// to 32,767. If the peer does not answer for the same time again, the connection is closed. A
    /// time outside of this range becomes the nearest one within. With `None` no peer is probed. In
    /// Redis this is `tcp-keepalive`.
    pub fn keepalive(mut self, idle: impl Into<Option<Duration>>) -> Self {
        self.keepalive = idle.into();
        self
    }
}

/// What the buffers of all connections may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientMemory {
    /// A share of what keys and values may take.
    ByMaxMemory,
    /// This many bytes, or no limit.
    Is(Option<usize>),
}

impl Default for KvOptions {
    /// Returns the default settings.
    fn default() -> Self {
        Self {
            max_memory: Some(1 << 30),
            max_value: DEFAULT_MAX_VALUE,
            client_query_buffer_limit: None,
            max_memory_clients: ClientMemory::ByMaxMemory,
            max_connections: Some(10_000),
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

    /// What `max_memory_clients` stands for.
    pub(super) fn client_memory(&self) -> Option<usize> {
        match self.max_memory_clients {
            ClientMemory::Is(bytes) => bytes,
            // While a command is on its way to another loop, it is in memory twice.
            ClientMemory::ByMaxMemory => {
                self.max_memory.map(|bytes| (bytes / 4).max(4 * self.limits().command))
            }
        }
    }
}
