//! One connection: its socket, its conversation, and the buffered bytes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::protocol::{Answer, AnyConversation, Conversation, Draw};
use crate::recorder::Request;

/// The size of a read buffer to begin with.
const INITIAL_BUFFER: usize = 16 << 10;

/// The most reads in one go, so that a peer that sends faster than we read cannot hold up the
/// generator.
const READS: usize = 16;

/// A connection takes no request while more bytes than this wait to be sent. So large requests do
/// not fill the memory, however many may be in flight, and a turn of the generator copies few.
const MOST_UNSENT: usize = 1 << 20;

/// A connection is given up if more bytes of replies than this wait to be sent. The peer then makes
/// the protocol reply, and does not take the replies.
const MOST_REPLIES: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Connection {
    fd: Option<OwnedFd>,
    conversation: AnyConversation,
    in_flight: VecDeque<(u64, Request)>,
    output: Vec<u8>,
    /// How much of the output the kernel has taken.
    written: usize,
    /// How many of the unsent bytes may be the protocol's replies: an upper bound.
    replies: usize,
    /// The whole buffer is initialised. Its first `received` bytes came from the peer.
    input: Vec<u8>,
    received: usize,
    /// The kernel has announced the end of the peer's side. It sends no further event for it.
    ends: bool,
    /// Goes up with each new socket, so that an event of an earlier socket can be recognised.
    pub(crate) generation: u32,
    /// Whether the connection is in the generator's list of connections that may send.
    pub(crate) is_listed: bool,
}

/// The result of reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Everything that had arrived was read.
    Drained,
    /// As much was read as is allowed in one go. There may be more.
    More,
    /// The peer has closed its side.
    Closed,
}

impl Connection {
    pub(crate) fn new(conversation: AnyConversation) -> Self {
        Self {
            fd: None,
            conversation,
            in_flight: VecDeque::with_capacity(64),
            output: Vec::with_capacity(4096),
            written: 0,
            replies: 0,
            input: vec![0; INITIAL_BUFFER],
            received: 0,
            ends: false,
            generation: 0,
            is_listed: false,
        }
    }

    /// Starts again on another socket.
    pub(crate) fn open(&mut self, fd: OwnedFd, conversation: AnyConversation) {
        self.generation = self.generation.wrapping_add(1);
        self.conversation = conversation;
        self.output.clear();
        self.written = 0;
        self.replies = 0;
        self.received = 0;
        self.ends = false;
        self.in_flight.clear();
        self.conversation.open(&mut self.output);
        self.fd = Some(fd);
    }

    pub(crate) fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    /// Closes the socket, and returns the requests that were in flight.
    pub(crate) fn close(&mut self) -> impl Iterator<Item = Request> + '_ {
        self.fd = None;
        self.in_flight.drain(..).map(|(_, request)| request)
    }

    /// Whether one more request may be sent, with at most `limit` at a time.
    pub(crate) fn may_request(&self, limit: usize) -> bool {
        self.fd.is_some()
            && self.in_flight.len() < limit
            && self.unsent() <= MOST_UNSENT
            && !self.conversation.is_closing()
            && self.conversation.may_request()
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.conversation.is_closing() && self.in_flight.is_empty()
    }

    /// Puts the next request into the output; [`flush`](Self::flush) sends it.
    pub(crate) fn request(&mut self, request: Request, draw: Draw) {
        let key = self.conversation.request_drawn(draw, &mut self.output);
        self.in_flight.push_back((key, request));
    }

    /// Sends as much as the socket takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(fd) = &self.fd else { return Ok(()) };
        while self.written < self.output.len() {
            match send(fd, &self.output[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.written += count;
                    // The sent part is dropped if it is the larger one. So a byte is moved less
                    // than once on average.
                    if self.written > self.output.len() / 2 {
                        self.output.drain(..self.written);
                        self.written = 0;
                    }
                }
                // The socket is full or not connected yet. An event says when to continue.
                Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Notes that the kernel has announced the end of the peer's side, so that a read looks for it.
    pub(crate) fn ends(&mut self) {
        self.ends = true;
    }

    /// Reads what has arrived. Finished answers are appended to `answers`.
    pub(crate) fn read(&mut self, answers: &mut Vec<Answer>) -> io::Result<Reading> {
        let Some(fd) = &self.fd else { return Ok(Reading::Drained) };
        for _ in 0..READS {
            if self.received == self.input.len() {
                self.input.resize(self.input.len() * 2, 0);
            }
            let space = &mut self.input[self.received..];
            let room = space.len();
            let count = match recv(fd, space, RecvFlags::empty()) {
                Ok((_, 0)) => {
                    self.conversation.close(answers);
                    return Ok(Reading::Closed);
                }
                Ok((_, count)) => count,
                Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(Reading::Drained),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            self.received += count;
            let (unsent, bodies) = (self.unsent(), self.conversation.bodies());
            let taken = self
                .conversation
                .receive(&self.input[..self.received], &mut self.output, answers)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let appended = self.unsent() - unsent;
            let bodies = self.conversation.bodies() - bodies;
            // No more replies are unsent than bytes are.
            self.replies = self.replies.min(unsent) + (appended - bodies);
            if self.replies > MOST_REPLIES {
                return Err(io::Error::other("the server does not take what it asked for"));
            }
            self.input.copy_within(taken..self.received, 0);
            self.received -= taken;
            // If a stream socket gave fewer bytes than there was room for, it is empty.
            if count < room && !self.ends {
                return Ok(Reading::Drained);
            }
        }
        Ok(Reading::More)
    }

    /// Returns the request that an answer belongs to.
    pub(crate) fn finish(&mut self, key: u64) -> Option<Request> {
        // The first request is nearly always the right one, because only HTTP/2 answers out of
        // order.
        let index = self.in_flight.iter().position(|(known, _)| *known == key)?;
        self.in_flight.remove(index).map(|(_, request)| request)
    }

    /// Whether the connection may be used: it is not closed, and the server has said how many
    /// requests it takes.
    pub(crate) fn is_open(&self) -> bool {
        self.fd.is_some() && (self.conversation.may_request() || !self.in_flight.is_empty())
    }

    /// How many bytes the kernel has not taken yet.
    pub(crate) fn unsent(&self) -> usize {
        self.output.len() - self.written
    }

    /// How many bytes have arrived, here and in the kernel, that do not make up a whole answer.
    pub(crate) fn unread(&self) -> u64 {
        let in_kernel = self.fd.as_ref().and_then(|fd| rustix::io::ioctl_fionread(fd).ok());
        self.received as u64 + in_kernel.unwrap_or(0)
    }

    /// The requests that are still in flight.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &Request> {
        self.in_flight.iter().map(|(_, request)| request)
    }
}

#[cfg(test)]
mod tests;
