//! The worker threads. Each takes requests from its own channel, and calls back with the reply.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::Result;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::Message;

/// A request on its way, with its connection and what else the reply needs.
pub struct Request<T> {
    pub message: Message,
    pub reply_to: T,
}

/// The threads, and the sending ends of their channels. The threads end when this is dropped.
pub struct Workers<T> {
    senders: Vec<Sender<Request<T>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<T: Send + 'static> Workers<T> {
    /// Starts a worker for each of `posts`. The worker calls it with every reply.
    pub fn start<P>(posts: Vec<P>) -> Self
    where
        P: FnMut(T, Message) + Send + 'static,
    {
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for post in posts {
            let (sender, receiver) = channel();
            senders.push(sender);
            threads.push(thread::spawn(move || {
                run_anywhere();
                work(&receiver, post);
            }));
        }
        Self { senders, threads }
    }

    /// Sends a request to the worker of this connection.
    pub fn send(&self, connection: usize, request: Request<T>) -> Result<()> {
        let sent = self.senders[connection % self.senders.len()].send(request);
        sent.map_err(|_| anyhow::anyhow!("a worker is gone"))
    }
}

impl<T> Drop for Workers<T> {
    fn drop(&mut self) {
        self.senders.clear();
        for thread in self.threads.drain(..) {
            // Its panic was printed.
            let _ = thread.join();
        }
    }
}

/// Unpins the thread: it starts with its parent's CPUs, and the loop has only one.
fn run_anywhere() {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // The kernel ignores CPUs that do not exist, or leaves the set unchanged.
    let _ = sched_setaffinity(None, &all);
}

fn work<T>(requests: &Receiver<Request<T>>, mut post: impl FnMut(T, Message)) {
    for Request { mut message, reply_to } in requests {
        for byte in &mut message {
            *byte = byte.wrapping_add(1);
        }
        post(reply_to, message);
    }
}
