//! The key-value service, which keeps keys and values in memory for Redis clients. It speaks RESP2
//! over TCP or a Unix socket.
//!
//! The keys are sharded over the loops by their hash. Only one loop uses each shard, so there is no
//! lock. If the key of a command belongs to another loop, the command goes to that loop in a
//! message, together with the connection's other commands for the same loop. With one loop there
//! are no messages.
//!
//! # Guarantees and limits
//!
//! * A connection's answers come in the order of its commands, and its commands for one key run in
//!   that order.
//! * With one loop all commands run in the order of their arrival. MSET sets all keys or none. DEL
//!   and EXISTS are atomic for up to 16,384 keys, and MGET if its answer has less than 32 KiB:
//!   beyond that, other commands may run in between.
//! * With several loops, commands of one pipeline run at the same time if their keys belong to
//!   different loops. A command for many keys is not atomic: another connection may see a part of
//!   an MSET, and an MSET that fails for lack of memory may have set some keys.
//! * Memory is limited: the limit counts keys, values, and their estimated overhead. Beyond the
//!   limit a write is refused. No key is evicted.
//! * The query buffer of one connection has a limit, and so have the buffers of all connections
//!   together. If there is no room for a command, its connection is closed with an error. If there
//!   is no room for an answer, the client gets an error instead. Buffers of up to 16 KiB are not
//!   counted. So a connection may use, without being counted, 16 KiB for its command, 64 KiB for
//!   its answers, and 96 KiB for each other loop. While it is idle, those are 16 KiB, and 1 KiB for
//!   each loop, for all other loops together.
//! * Memory is counted as free when a key is removed. If it is more than 4 MiB (DEL and FLUSHALL),
//!   a thread frees it a little later.
//! * Keys do not expire, and nothing is written to disk.

mod admin;
mod answers;
mod batch;
mod command;
mod connection;
mod input;
mod options;
mod places;
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

use self::places::Places;
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
    let places = Places::within_descriptors(&kv, loops);
    let service = Arc::new(Service::new(loops, kv, places, linger(options)));
    let joining = service.clone();
    // Every loop owns keys, and gets commands for them wherever the connections are, so all loops
    // are active.
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
    // This is the only place that sets it.
    let _ = service.running.set_blocking(running);
    Ok(serving)
}
