//! Keys and values in memory, for clients of Redis: RESP2 over TCP or a Unix socket.
//!
//! The keys are sharded over the loops by their hash, and a shard is touched by its loop alone:
//! there is no lock. A command goes to the owner of its key as a message, together with what else
//! its connection asks of that loop, unless it is at home already; with one loop nothing is ever
//! sent.
//!
//! # What is promised, and what is not
//!
//! * Answers come in the order of the commands, and commands for one key are done in that order.
//! * One loop does everything in the order in which it came. With several, commands of one pipeline
//!   for keys of different loops are done at the same time, and a command for many keys is not
//!   atomic: another connection may see some of an MSET, and one that fails for want of memory may
//!   have set some. With one loop MSET sets all or none, and MGET is atomic as long as its answer
//!   has less than 32 KiB; a longer one is written while it is made.
//! * Memory is capped: keys, values, and an estimate of what holds them. Beyond the cap a write is
//!   refused; no key is evicted.
//! * The query buffer of one connection and the buffers of all connections together have limits of
//!   their own, beside that cap. A command for which there is no room closes its connection with an
//!   error. An answer for which there is no room is an error. A buffer of up to 16 KiB is not
//!   counted. So beside what is counted a connection may keep 16 KiB for its command, 64 KiB for
//!   its answers, and 48 KiB for each other loop.
//! * Keys do not expire, and nothing is written to disk.

mod admin;
mod answers;
mod batch;
mod command;
mod connection;
mod input;
mod options;
mod refusals;
mod reply;
mod resp;
mod service;
mod shard;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use wakeful::accept::{Serving, SharedListener};

use self::service::{Local, Running, Service};
use crate::ServeOptions;
use crate::connections::{linger, log};

pub use self::options::{DEFAULT_MAX_VALUE, KvOptions, LARGEST_VALUE};

#[cfg(any(test, fuzzing))]
pub(crate) use self::resp::fuzzing::check as check_resp;

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
        None => thread::available_parallelism()?.get(),
        Some(loops) => loops.max(1),
    };
    let service = Arc::new(Service::new(loops, kv, linger(options)));
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
