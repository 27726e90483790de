//! A wakeful loop as an event source of calloop.
//!
//! The descriptor is watched level-triggered, and that is the right mode. What `prepare_to_park`
//! promises is a level: readable as long as there is work. A turn takes at most one batch of
//! events, and for those that it leaves to the next turn the kernel reports no new edge: an
//! edge-triggered watch would sleep on them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use calloop::generic::Generic;
use calloop::{EventSource, Interest, Mode, Poll, PostAction, Readiness, Token, TokenFactory};
use wakeful::EventLoop;

/// A wakeful loop that calloop drives. Its event is: a turn was taken; the callback may look what
/// that brought, and queue more.
#[derive(Debug)]
pub(crate) struct Wakeful {
    event_loop: EventLoop,
    /// A duplicate, because calloop wants to own what it watches. It is the same epoll.
    descriptor: Generic<OwnedFd>,
    /// Of the event that stands for work at hand.
    at_hand: Option<Token>,
    /// A turn was taken since calloop's last wait: another one would find little.
    turned: bool,
}

impl Wakeful {
    /// # Errors
    /// No descriptors left.
    pub(crate) fn new(event_loop: EventLoop) -> io::Result<Self> {
        let descriptor = event_loop.as_fd().try_clone_to_owned()?;
        let descriptor = Generic::new(descriptor, Interest::READ, Mode::Level);
        Ok(Self { event_loop, descriptor, at_hand: None, turned: false })
    }
}

impl EventSource for Wakeful {
    type Event = ();
    type Metadata = EventLoop;
    type Ret = ();
    type Error = io::Error;

    const NEEDS_EXTRA_LIFECYCLE_EVENTS: bool = true;

    /// Before each of calloop's waits: may it be long? Each turn ends the permission, so it is
    /// asked for again each time. If it is refused there is work at hand, and calloop is given an
    /// event instead of a sleep.
    fn before_sleep(&mut self) -> calloop::Result<Option<(Readiness, Token)>> {
        self.turned = false;
        if self.event_loop.prepare_to_park()? {
            return Ok(None);
        }
        let readable = Readiness { readable: true, writable: false, error: false };
        Ok(self.at_hand.map(|token| (readable, token)))
    }

    fn process_events<F>(
        &mut self,
        readiness: Readiness,
        token: Token,
        mut callback: F,
    ) -> io::Result<PostAction>
    where
        F: FnMut((), &mut EventLoop),
    {
        let mut readable = self.at_hand == Some(token);
        if !readable {
            self.descriptor.process_events(readiness, token, |_, _| {
                readable = true;
                Ok(PostAction::Continue)
            })?;
        }
        // Work at hand and a readable descriptor may come together.
        if readable && !std::mem::replace(&mut self.turned, true) {
            self.event_loop.turn(Some(Duration::ZERO))?;
            callback((), &mut self.event_loop);
        }
        Ok(PostAction::Continue)
    }

    fn register(&mut self, poll: &mut Poll, tokens: &mut TokenFactory) -> calloop::Result<()> {
        self.at_hand = Some(tokens.token());
        self.descriptor.register(poll, tokens)
    }

    fn reregister(&mut self, poll: &mut Poll, tokens: &mut TokenFactory) -> calloop::Result<()> {
        self.at_hand = Some(tokens.token());
        self.descriptor.reregister(poll, tokens)
    }

    fn unregister(&mut self, poll: &mut Poll) -> calloop::Result<()> {
        self.at_hand = None;
        self.descriptor.unregister(poll)
    }
}
