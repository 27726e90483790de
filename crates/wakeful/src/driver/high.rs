//! The sockets of [`Priority::High`](crate::Priority::High): an epoll of their own, within the
//! loop's.
//!
//! The kernel reports ready sockets in the order in which they became ready, a batch at a time:
//! after 10,000 ready sockets the next one is 157 turns away. A high-priority socket is watched by
//! a second epoll, whose descriptor the loop's epoll watches level-triggered. So its event ends
//! every wait of the loop. The loop asks the second epoll whenever it may have events: when it is
//! among the events of the first epoll, or when the batch of these is full, so that it may come
//! after them. A loop that never had a high-priority socket has no second epoll, and a light load
//! costs no second system call.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;

use rustix::event::epoll::{Event, EventFlags};

use super::epoll::{Epoll, Timeout};
use super::token::Token;
use crate::sys::limits;

pub(super) struct High {
    pub(super) epoll: Epoll,
    /// The last batch of each epoll, as the kernel gave it. The buffer's capacity limits a batch.
    high: RefCell<Vec<Event>>,
    normal: RefCell<Vec<Event>>,
}

impl High {
    pub(super) fn within(outer: &Epoll, batch: usize) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        outer
            .add(epoll.as_fd(), EventFlags::IN, Token::HIGH.0)
            .map_err(limits::explain_call("epoll_ctl"))?;
        let room = || RefCell::new(Vec::with_capacity(batch));
        Ok(Self { epoll, high: room(), normal: room() })
    }

    /// Asks the loop's epoll, and this one if it may have events. Appends up to `batch` events of
    /// high-priority sockets to the empty `events`, and then up to `batch` other events.
    #[inline(never)]
    pub(super) fn wait(
        &self,
        outer: &Epoll,
        events: &mut Vec<Event>,
        batch: usize,
        timeout: Timeout,
    ) -> rustix::io::Result<()> {
        let mut normal = self.normal.borrow_mut();
        normal.clear();
        outer.wait(&mut normal, batch, timeout)?;
        let is_reported = |event: &Event| Token(event.data.u64()) == Token::HIGH;
        if normal.len() < batch && !normal.iter().any(is_reported) {
            events.extend_from_slice(&normal);
            return Ok(());
        }
        let mut high = self.high.borrow_mut();
        high.clear();
        let asked = self.epoll.wait(&mut high, batch, Timeout::Zero);
        events.extend_from_slice(&high);
        events.extend_from_slice(&normal);
        asked
    }
}
