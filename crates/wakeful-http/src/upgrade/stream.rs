//! The upgrade of an HTTP/2 stream, for any number of waiters. hyper's own future wakes only the
//! task that polled it last.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use http::Extensions;
use hyper::upgrade::OnUpgrade;

use super::error::UpgradeError;
use super::stream_io::StreamIo;
use super::stream_link::StreamLink;
use super::upgraded::Upgraded;
use crate::foreign_code;

/// The offer among a request's extensions. When the upgrade is complete, the first waiter that
/// polls gets the stream.
#[derive(Debug, Clone)]
pub(super) struct StreamOffer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `None`: a waiter has taken the result.
    theirs: Mutex<Option<OnUpgrade>>,
    waiting: Arc<Waiting>,
    link: StreamLink,
}

#[derive(Debug, Default)]
struct Waiting(Mutex<Wakers>);

#[derive(Debug, Default)]
struct Wakers {
    next: u32,
    wakers: Vec<(u32, Waker)>,
}

impl Wakers {
    fn take(&mut self, number: u32) -> Option<Waker> {
        let at = self.wakers.iter().position(|(known, _)| *known == number)?;
        Some(self.wakers.swap_remove(at).1)
    }
}

impl Waiting {
    fn with<R>(&self, f: impl FnOnce(&mut Wakers) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = self.with(|waiting| std::mem::take(&mut waiting.wakers));
        wakers.into_iter().for_each(|(_, waker)| foreign_code::wake(waker));
    }
}

/// Adds a [`StreamOffer`] to the extensions, if they have hyper's offer. Returns what its user will
/// share with the task that sends the stream's bytes.
#[inline]
pub(crate) fn offer_stream(extensions: &mut Extensions) -> Option<StreamLink> {
    let theirs = extensions.get::<OnUpgrade>()?.clone();
    let link = StreamLink::default();
    extensions.insert(StreamOffer::new(theirs, link.clone()));
    Some(link)
}

impl StreamOffer {
    fn new(theirs: OnUpgrade, link: StreamLink) -> Self {
        let theirs = Mutex::new(Some(theirs));
        Self(Arc::new(Shared { theirs, waiting: Arc::default(), link }))
    }

    /// For a request of a server that is not one of ours.
    pub(super) fn of_other(theirs: OnUpgrade) -> Self {
        Self::new(theirs, StreamLink::default())
    }
}

/// A waiter for the upgrade.
#[derive(Debug)]
pub(super) struct StreamUpgrade {
    offer: StreamOffer,
    number: u32,
}

impl StreamUpgrade {
    pub(super) fn new(offer: StreamOffer) -> Self {
        let number = offer.0.waiting.with(|waiting| {
            waiting.next += 1;
            waiting.next
        });
        Self { offer, number }
    }
}

impl Future for StreamUpgrade {
    type Output = Result<Upgraded, UpgradeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Shared { theirs, waiting, link } = &*self.offer.0;
        // The clone and the drop of a waker may run user code, so nothing is locked meanwhile.
        let new = (self.number, cx.waker().clone());
        let old = waiting.with(|waiting| {
            let old = waiting.take(self.number);
            waiting.wakers.push(new);
            old
        });
        foreign_code::discard(old);
        let waker = Waker::from(waiting.clone());
        let ended = {
            let mut theirs = theirs.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(upgrade) = &mut *theirs else {
                return Poll::Ready(Err(UpgradeError::Refused));
            };
            let polled = Pin::new(upgrade).poll(&mut Context::from_waker(&waker));
            if polled.is_ready() {
                *theirs = None;
            }
            polled
        };
        let Poll::Ready(ended) = ended else { return Poll::Pending };
        foreign_code::discard(waiting.with(|waiting| waiting.take(self.number)));
        // This wakes waiters that came meanwhile.
        waker.wake();
        let upgraded = ended.map(|io| Upgraded::new(StreamIo::new(io, link.clone())));
        Poll::Ready(upgraded.map_err(UpgradeError::Http2))
    }
}
