//! Keys and values in memory, for clients of Redis: RESP2 over TCP or a Unix socket.
//!
//! The keys are sharded over the loops by their hash, and a shard is touched by its loop alone: there is no lock. A command goes to the owner of
//! its key as a message, together with what else its connection asks of that loop, unless it is at home already; with one loop nothing is ever sent.
//!
//! # What is promised, and what is not
//!
//! * Answers come in the order of the commands, and commands for one key are done in that order.
//! * One loop does everything in the order in which it came. With several, commands of one pipeline for keys of different loops are done at the same time, and a
//!   command for many keys is not atomic: another connection may see some of an MSET, and one that fails for want of memory may have set some. With one
//!   loop MSET sets all or none, and MGET is atomic as long as its answer has less than 32 KiB; a longer one is written while it is made.
//! * Memory is capped: keys, values, and an estimate of what holds them. Beyond the cap a write is refused; no key is evicted.
//! * The query buffer of one connection and the buffers of all connections together have limits of their own, beside that cap. A command for which there is no room closes its
//!   connection with an error. An answer for which there is no room is an error. A buffer of up to 16 KiB is not counted. So
//!   beside what is counted a connection may keep 16 KiB for its command, 64 KiB for its answers, and 48 KiB for each other loop.
//! * Keys do not expire, and nothing is written to disk.

mod admin;
mod answers;
mod batch;
mod command;
mod connection;
mod input;
mod refusals;
mod reply;
mod resp;
mod service;
mod shard;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use wakeful::accept::{Serving, SharedListener};

use self::resp::Limits;
use self::service::{Local, Running, Service};
use crate::ServeOptions;
use crate::connections::{KEEPALIVE, log};

#[cfg(any(test, fuzzing))]
pub(crate) use self::resp::fuzzing::check as check_resp;

/// The largest [`KvOptions::max_value`]: 512 MiB.
pub const LARGEST_VALUE: usize = 512 << 20;

/// A command may have so many bytes more than a value.
const COMMAND_BEYOND_VALUE: usize = 1 << 20;
/// The capacity of a buffer of answers that is kept from one write to the next, in bytes.
const KEPT: usize = 64 * 1024;

/// Settings of this service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvOptions {
    /// What keys, values and their estimated surroundings may take, in bytes, on all loops together; 0 is no limit. Loops that fill up at the same moment
    /// may go beyond it by a value each. Redis: `maxmemory`, which counts the buffers of clients, too.
    pub max_memory: usize,
    /// The longest key, value or other word of a command, in bytes; at most [`LARGEST_VALUE`]. Redis: `proto-max-bulk-len`.
    pub max_value: usize,
    /// The longest command, in bytes, which is also the largest query buffer of a connection. `None`: 1 MiB more than `max_value`. Redis:
    /// `client-query-buffer-limit`.
    pub client_query_buffer_limit: Option<usize>,
    /// What the buffers of all connections may take together, in bytes, beside `max_memory`; 0 is no limit. `None`: a quarter of `max_memory`, and at least four of the longest
    /// commands; no limit if `max_memory` has none. Redis: `maxmemory-clients`.
    pub max_memory_clients: Option<usize>,
    /// How many connections may be open. A further one is told so and closed; 0 is no limit. Redis: `maxclients`.
    pub max_connections: usize,
    /// How long a connection may be open between two commands. `None`: for ever, as clients keep connections in pools. Redis: `timeout`.
    pub idle_timeout: Option<Duration>,
    /// How long nothing may come of a command that has begun, or be taken of an answer. `None`: for ever.
    pub stall_timeout: Option<Duration>,
    /// After how long a silent peer is probed (TCP keepalive): whole seconds, 1 to 32,767. One that does not answer is gone after as long again. `None`: never. Redis: `tcp-keepalive`.
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
    fn limits(&self) -> Limits {
        let word = self.max_value.min(LARGEST_VALUE);
        let command = self.client_query_buffer_limit.unwrap_or(word + COMMAND_BEYOND_VALUE);
        Limits { word, command }
    }

    /// What `max_memory_clients` stands for. 0 is no limit.
    fn client_memory(&self) -> usize {
        match self.max_memory_clients {
            Some(bytes) => bytes,
            None if self.max_memory == 0 => 0,
            // On its way to another loop a command is there twice.
            None => (self.max_memory / 4).max(4 * self.limits().command),
        }
    }
}

/// Starts the service on `listeners`.
///
/// # Errors
/// The loops cannot be started.
pub fn start(
    options: &ServeOptions,
    kv: KvOptions,
    listeners: Vec<SharedListener>,
) -> io::Result<Serving> {
    let loops = match options.loops {
        0 => thread::available_parallelism()?.get(),
        loops => loops,
    };
    let service = Arc::new(Service::new(loops, kv));
    let joining = service.clone();
    // Every loop owns keys, and is asked for them wherever the connections are.
    let server = options.server(listeners).group(options.group().loops(loops).spread());
    let serving = server.start(move || {
        let local = Local::join(&joining);
        move |connection| {
            let local: Rc<Local> = local.clone();
            async move {
                let peer = connection.peer;
                log(&peer, connection::serve(connection, local).await);
            }
        }
    })?;
    let running = Running { counts: serving.counts(), addrs: serving.local_addrs().to_vec() };
    // Set once, here.
    let _ = service.running.set_blocking(running);
    Ok(serving)
}
