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
//! * Memory is capped: keys, values and an estimate of what holds them. Beyond it what would take more is refused, and nothing is evicted. Buffers of connections are not
//!   counted; each holds a command of the longest that is allowed at most, and the answers to it in pieces.
//! * Keys do not expire, and nothing is written to disk.

mod admin;
mod answers;
mod batch;
mod command;
mod connection;
mod input;
mod reply;
mod resp;
mod service;
mod shard;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use wakeful::accept::{Serving, SharedListener};

use self::resp::Limits;
use self::service::{Local, Running, Service};
use crate::ServeOptions;
use crate::connections::log;

#[cfg(any(test, fuzzing))]
pub(crate) use self::resp::fuzzing::check as check_resp;

/// The largest [`KvOptions::max_value`]: 512 MiB.
pub const LARGEST_VALUE: usize = 512 << 20;

/// A command may have so many bytes more than a value.
const COMMAND_BEYOND_VALUE: usize = 1 << 20;
/// The capacity of a buffer that is kept from one read to the next, in bytes.
const KEPT: usize = 64 * 1024;

/// Settings of this service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvOptions {
    /// What keys, values and their estimated surroundings may take, in bytes, on all loops together. Loops that fill up at the same moment may go beyond it by a value each.
    pub max_memory: usize,
    /// The longest key, value or other word of a command, in bytes; at most [`LARGEST_VALUE`]. A command may be 1 MiB longer in all.
    pub max_value: usize,
}

impl Default for KvOptions {
    /// 1 GiB in all, 16 MiB for a value.
    fn default() -> Self {
        Self { max_memory: 1 << 30, max_value: 16 << 20 }
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
    let value = kv.max_value.min(LARGEST_VALUE);
    let limits = Limits { word: value, command: value + COMMAND_BEYOND_VALUE };
    let service = Arc::new(Service::new(loops, kv.max_memory, limits));
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
