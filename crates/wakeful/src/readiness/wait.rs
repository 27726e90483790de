use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::driver::interest::Interest;
use crate::driver::registered::Registered;
use crate::driver::seen::{Places, Seen};
use crate::task::coop;

/// Waits until something of an interest is ready. Many tasks may wait at the same time.
pub(crate) struct Wait<'a, T: AsFd> {
    socket: &'a Registered<T>,
    interest: Interest,
    places: Places,
}

impl<'a, T: AsFd> Wait<'a, T> {
    pub(crate) fn new(socket: &'a Registered<T>, interest: Interest) -> Self {
        Self { socket, interest, places: Places::default() }
    }
}

impl<T: AsFd> Future for Wait<'_, T> {
    type Output = io::Result<Seen>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        ready!(coop::poll_proceed(cx));
        let seen = ready!(this.socket.poll_seen(this.interest, &mut this.places, cx));
        coop::made_progress();
        Poll::Ready(seen)
    }
}

impl<T: AsFd> Drop for Wait<'_, T> {
    fn drop(&mut self) {
        self.socket.leave(&mut self.places);
    }
}
