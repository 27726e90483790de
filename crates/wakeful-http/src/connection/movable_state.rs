//! What a connection has behind it: it goes along when the connection moves to another loop.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use crate::limits::MaxAge;
use crate::limits::peers::Place;

/// What goes along.
#[derive(Debug)]
pub(crate) struct Carried {
    expires: Option<Instant>,
    served: u64,
    place: Option<Place>,
}

/// A connection's life, on its loop.
#[derive(Debug)]
pub(crate) struct Life {
    /// On this loop.
    arrived: Instant,
    expires: Option<Instant>,
    served: Cell<u64>,
    place: RefCell<Option<Place>>,
}

impl Life {
    /// It begins.
    pub(crate) fn new(max_age: Option<MaxAge>, place: Option<Place>) -> Self {
        let arrived = Instant::now();
        let expires = max_age.and_then(|MaxAge { age, jitter, .. }| {
            let age = age.checked_add(age.mul_f64(jitter * fastrand::f64()))?;
            arrived.checked_add(age)
        });
        Self::with(arrived, Carried { expires, served: 0, place })
    }

    /// It goes on here.
    pub(crate) fn unpack(carried: Carried) -> Self {
        Self::with(Instant::now(), carried)
    }

    fn with(arrived: Instant, Carried { expires, served, place }: Carried) -> Self {
        Self { arrived, expires, served: Cell::new(served), place: RefCell::new(place) }
    }

    /// It goes on elsewhere, unless that fails.
    pub(crate) fn pack(&self) -> Carried {
        Carried { expires: self.expires, served: self.served.get(), place: self.place.take() }
    }

    /// It stays.
    pub(crate) fn put_back(&self, carried: Carried) {
        self.place.replace(carried.place);
    }

    /// When it came to this loop.
    pub(crate) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// When it is too old.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// Requests so far.
    pub(crate) fn served(&self) -> u64 {
        self.served.get()
    }

    /// One more request; returns how many there are with it.
    pub(crate) fn one_more(&self) -> u64 {
        self.served.set(self.served.get() + 1);
        self.served.get()
    }

    /// May its peer send one more request? If not, in how many nanoseconds.
    pub(crate) fn ask_peer(&self) -> Result<(), u64> {
        self.place.borrow().as_ref().map_or(Ok(()), Place::request)
    }
}
