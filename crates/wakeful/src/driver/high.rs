//! The sockets of [`Priority::High`](crate::Priority::High): an epoll of their own, within the loop's.
//!
//! The kernel reports what is ready in the order in which it became so, a batch at a time: behind 10,000 sockets the next one is
//! 157 turns away. A high socket is watched by a second epoll, whose descriptor the loop's epoll watches level-triggered. So its event
//! ends every wait of the loop, and the loop asks the second one whenever it may have something: when it is among the events of the first, or when
//! their batch is full, so that it may stand behind them. A loop that never had a high socket has no second epoll, and a light load costs no second question.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;

use rustix::event::epoll::{Event, EventFlags};

use super::epoll::{Epoll, Timeout};
use super::{Token, limits};

pub(super) struct High {
    pub(super) epoll: Epoll,
    /// Fetched, and not dispatched yet.
    pub(super) events: RefCell<Vec<Event>>,
}

impl High {
    pub(super) fn within(outer: &Epoll, batch: usize) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        outer.add(epoll.as_fd(), EventFlags::IN, Token::HIGH.0).map_err(limits::explain)?;
        Ok(Self { epoll, events: RefCell::new(Vec::with_capacity(batch)) })
    }

    /// The loop's epoll gave `events`, of at most `batch`.
    #[cold]
    pub(super) fn fetch(&self, events: &[Event], batch: usize) -> rustix::io::Result<()> {
        let is_reported = |event: &Event| Token(event.data.u64()) == Token::HIGH;
        if events.len() < batch && !events.iter().any(is_reported) {
            return Ok(());
        }
        let mut fetched = self.events.borrow_mut();
        fetched.clear();
        self.epoll.wait(&mut fetched, batch, Timeout::Zero)
    }
}
