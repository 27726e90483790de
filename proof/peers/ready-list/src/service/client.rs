//! The clients: one thread, with one request in flight on each connection, until the time is over.
//! It checks every reply.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::retry_on_intr;

use super::{BYTES, Message};

/// If there is no reply for this long, something is wrong.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

pub struct Loaded {
    pub replies: u64,
    pub seconds: f64,
}

pub fn load(mut clients: Vec<UnixStream>, duration: Duration) -> Result<Loaded> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    for (index, client) in clients.iter().enumerate() {
        epoll::add(&epoll, client, EventData::new_u64(index as u64), EventFlags::IN)?;
    }
    let mut sent: Vec<Message> =
        (0..clients.len()).map(|index| [index.to_le_bytes()[0]; BYTES]).collect();
    let start = Instant::now();
    for (client, message) in clients.iter_mut().zip(&sent) {
        client.write_all(message)?;
    }
    let mut events = Vec::with_capacity(clients.len());
    let mut replies = 0;
    while start.elapsed() < duration {
        events.clear();
        retry_on_intr(|| epoll::wait(&epoll, spare_capacity(&mut events), Some(&PATIENCE)))?;
        ensure!(!events.is_empty(), "no reply within 10 s: a wake was lost");
        for event in &events {
            let index = usize::try_from(event.data.u64())?;
            let mut reply = [0; BYTES];
            let read = clients[index].read(&mut reply)?;
            // A socket pair does not split messages as short as these.
            ensure!(read == BYTES, "a reply of {read} bytes");
            ensure!(reply[0] == sent[index][0].wrapping_add(1), "another connection's reply");
            replies += 1;
            sent[index] = reply;
            clients[index].write_all(&reply)?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    // Closing ends the server.
    for client in clients {
        client.shutdown(std::net::Shutdown::Both).or_else(|error| match error.kind() {
            io::ErrorKind::NotConnected => Ok(()),
            _ => Err(error),
        })?;
    }
    Ok(Loaded { replies, seconds })
}
