//! The service on a hand-written epoll loop. Any of the lists carries the replies. A list carries
//! the number of a connection. The reply itself is in a buffer of the connection, which has one
//! request in flight.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::retry_on_intr;

use super::workers::{Request, Workers};
use super::{BYTES, Message};
use crate::list::{Consumer, Producer, ReadyList};

const BELL: u64 = u64::MAX;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The pool of each producer, if the list has pools: one node for each possible connection.
const POOL: usize = 1024;

type Reply = Mutex<Message>;

/// Serves, and returns how often the bell was rung.
pub fn serve<L: ReadyList>(connections: &[UnixStream], workers: usize) -> Result<u64> {
    ensure!(!L::Producer::COALESCES, "a list that adds values up cannot carry connections");
    let (producers, mut consumer) = L::build(workers, POOL)?;
    let replies: Arc<[Reply]> = connections.iter().map(|_| Mutex::new([0; BYTES])).collect();
    let posts = producers.into_iter().map(|mut producer| {
        let replies = replies.clone();
        move |connection: usize, message| {
            *replies[connection].lock().unwrap_or_else(PoisonError::into_inner) = message;
            producer.push(connection as u64 + 1);
        }
    });
    let workers = Workers::start(posts.collect());
    let bell = consumer.bell().context("this list has no bell")?.clone();
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
    for (index, connection) in connections.iter().enumerate() {
        epoll::add(&epoll, connection, EventData::new_u64(index as u64), EventFlags::IN)?;
    }
    let mut open = connections.len();
    let mut events = Vec::with_capacity(connections.len() + 1);
    while open > 0 {
        consumer.take(|value| answer(connections, &replies, value));
        // Events that come just as the consumer goes to sleep are taken without asking the kernel,
        // as in wakeful's loop. But this does not happen twice in a row.
        let timeout = if consumer.arm() {
            None
        } else {
            consumer.take(|value| answer(connections, &replies, value));
            if consumer.arm() { None } else { Some(&NOW) }
        };
        events.clear();
        retry_on_intr(|| epoll::wait(&epoll, spare_capacity(&mut events), timeout))?;
        for event in events.iter().filter(|event| event.data.u64() != BELL) {
            let index = usize::try_from(event.data.u64())?;
            let mut message = [0; BYTES];
            match (&connections[index]).read(&mut message) {
                Ok(BYTES) => workers.send(index, Request { message, reply_to: index })?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The end, or a reset by a client that left before its reply.
                Ok(_) | Err(_) => {
                    epoll::delete(&epoll, &connections[index])?;
                    open -= 1;
                }
            }
        }
    }
    drop(workers);
    Ok(bell.rings())
}

fn answer(connections: &[UnixStream], replies: &[Reply], value: u64) {
    let index = usize::try_from(value - 1).expect("a connection's number");
    let message = *replies[index].lock().unwrap_or_else(PoisonError::into_inner);
    // This fails if the client has left, and then the read also reports it.
    let _ = (&connections[index]).write_all(&message);
}
