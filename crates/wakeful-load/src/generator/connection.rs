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

/// At most so many reads in one go: a peer that sends faster than we read must not keep the
/// generator.
const READS: usize = 16;

/// A peer that makes the protocol reply, and does not take the replies, is given up beyond this
/// many bytes.
const MOST_OUTPUT: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Connection {
    fd: Option<OwnedFd>,
    conversation: AnyConversation,
    in_flight: VecDeque<(u64, Request)>,
    output: Vec<u8>,
    /// How much of the output the kernel has taken.
    written: usize,
    /// Always initialised up to its length; `received` of it are bytes.
    input: Vec<u8>,
    received: usize,
    /// Counts up with each socket, so that an event for an earlier one is known.
    pub(crate) generation: u32,
    /// Whether the generator has it in its list of those that may send.
    pub(crate) is_listed: bool,
}

/// What came of reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// All that had arrived was taken.
    Drained,
    /// As much as is read in one go; there may be more.
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
            input: vec![0; INITIAL_BUFFER],
            received: 0,
            generation: 0,
            is_listed: false,
        }
    }

    /// Begins anew on another socket.
    pub(crate) fn open(&mut self, fd: OwnedFd, conversation: AnyConversation) {
        self.generation = self.generation.wrapping_add(1);
        self.conversation = conversation;
        self.output.clear();
        self.written = 0;
        self.received = 0;
        self.in_flight.clear();
        self.conversation.open(&mut self.output);
        self.fd = Some(fd);
    }

    pub(crate) fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    /// Closes the socket; what was in flight is handed out.
    pub(crate) fn close(&mut self) -> impl Iterator<Item = Request> + '_ {
        self.fd = None;
        self.in_flight.drain(..).map(|(_, request)| request)
    }

    /// Whether one more request may be sent, with at most `limit` at a time.
    pub(crate) fn may_request(&self, limit: usize) -> bool {
        self.fd.is_some()
            && self.in_flight.len() < limit
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

    /// Sends what the socket takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(fd) = &self.fd else { return Ok(()) };
        while self.written < self.output.len() {
            match send(fd, &self.output[self.written..], SendFlags::NOSIGNAL) {
                Ok(count) => self.written += count,
                // Full, or not connected yet: an event says when to go on.
                Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
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
            let taken = self
                .conversation
                .receive(&self.input[..self.received], &mut self.output, answers)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if self.output.len() - self.written > MOST_OUTPUT {
                return Err(io::Error::other("the server does not take what it asked for"));
            }
            self.input.copy_within(taken..self.received, 0);
            self.received -= taken;
            // A stream socket that gave less than there was room for is empty.
            if count < room {
                return Ok(Reading::Drained);
            }
        }
        Ok(Reading::More)
    }

    /// The request that an answer belongs to.
    pub(crate) fn finish(&mut self, key: u64) -> Option<Request> {
        // In order but for HTTP/2: the first is nearly always the one.
        let index = self.in_flight.iter().position(|(known, _)| *known == key)?;
        self.in_flight.remove(index).map(|(_, request)| request)
    }

    /// Whether it may be used: it is not closed, and the server has said what it takes.
    pub(crate) fn is_open(&self) -> bool {
        self.fd.is_some() && (self.conversation.may_request() || !self.in_flight.is_empty())
    }

    /// How many bytes the kernel has not taken.
    pub(crate) fn unsent(&self) -> usize {
        self.output.len() - self.written
    }

    /// How many bytes have come that are no whole answer, here and in the kernel.
    pub(crate) fn unread(&self) -> u64 {
        let in_kernel = self.fd.as_ref().and_then(|fd| rustix::io::ioctl_fionread(fd).ok());
        self.received as u64 + in_kernel.unwrap_or(0)
    }

    /// What is still in flight.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &Request> {
        self.in_flight.iter().map(|(_, request)| request)
    }
}
