//! With HTTP/2: the upgraded streams of a connection.
//!
//! They have no limits of time, until their user has dropped them. What is left then is a response
//! like any other: bytes that wait until the client gives room.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use slab::Slab;

use super::shut_window::ShutWindow;
use crate::limits::MinRate;
use crate::upgrade::StreamLink;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Tunnels {
    open: RefCell<Slab<OpenTunnel>>,
    /// Whether one of them uses what is kept for the connection.
    has_first: Cell<bool>,
}

#[derive(Debug)]
struct OpenTunnel {
    /// The number of its request.
    request: u64,
    is_first: bool,
    link: StreamLink,
    /// Since when checks have seen that its user has dropped it.
    left_since: Option<Instant>,
    shut_window: ShutWindow,
    is_cut: bool,
}

/// A check of what was left, at a tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct Check {
    pub(super) now: Instant,
    /// Since the last check.
    pub(super) passed: Duration,
    /// For how long the process was stopped meanwhile.
    pub(super) stopped: Duration,
    pub(super) rate: MinRate,
    /// The connection sends almost nothing, though it has something to send.
    pub(super) is_stalled: bool,
}

impl Tunnels {
    pub(super) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    pub(super) fn has_first(&self) -> bool {
        self.has_first.get()
    }

    /// Adds a tunnel, and returns its place. `is_first`: it uses what is kept for the connection.
    pub(super) fn add(&self, request: u64, is_first: bool, link: StreamLink) -> usize {
        if is_first {
            self.has_first.set(true);
        }
        let (left_since, shut_window) = (None, ShutWindow::default());
        let is_cut = false;
        let tunnel = OpenTunnel { request, is_first, link, left_since, shut_window, is_cut };
        self.open.borrow_mut().insert(tunnel)
    }

    pub(super) fn remove(&self, place: usize) {
        let tunnel = self.open.borrow_mut().try_remove(place);
        if tunnel.is_some_and(|tunnel| tunnel.is_first) {
            self.has_first.set(false);
        }
    }

    /// Returns those that were left, and that the client takes too slowly. Each is returned once.
    pub(super) fn take_slow(
        &self,
        check: Check,
        sent_without_room: impl Fn(u64) -> Option<u64>,
    ) -> Vec<StreamLink> {
        let mut open = self.open.borrow_mut();
        let left = open.iter_mut().map(|(_, tunnel)| tunnel).filter(|it| it.link.is_left());
        left.filter_map(|tunnel| tunnel.take_if_slow(check, &sent_without_room)).collect()
    }

    /// Returns all of them.
    pub(super) fn all(&self) -> Vec<StreamLink> {
        self.open.borrow().iter().map(|(_, tunnel)| tunnel.link.clone()).collect()
    }
}

impl OpenTunnel {
    fn take_if_slow(
        &mut self,
        check: Check,
        sent_without_room: impl Fn(u64) -> Option<u64>,
    ) -> Option<StreamLink> {
        if self.is_cut {
            return None;
        }
        let Check { now, passed, stopped, rate, is_stalled } = check;
        let since = self.left_since.map_or(now, |since| since + stopped);
        self.left_since = Some(since);
        let waits = now.saturating_duration_since(since);
        let is_shut_too_long = match sent_without_room(self.request) {
            Some(sent) => self.shut_window.is_too_slow(rate, passed, sent),
            None => {
                self.shut_window.is_open();
                false
            }
        };
        self.is_cut = is_shut_too_long || is_stalled && waits >= rate.window;
        self.is_cut.then(|| self.link.clone())
    }
}
