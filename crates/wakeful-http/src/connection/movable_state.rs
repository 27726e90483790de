//! The state that moves with a connection to another loop: its age, how many requests it had, and
//! its place in its peer's account.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use crate::limits::MaxAge;
use crate::limits::peers::Place;

/// The state on its way between two loops.
#[derive(Debug)]
pub(crate) struct PackedState {
    expires: Option<Instant>,
    served: u64,
    place: Option<Place>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct MovableState {
    /// The times as this loop sees them.
    arrived: Instant,
    expires: Option<Instant>,
    served: Cell<u64>,
    place: RefCell<Option<Place>>,
    gives_way: Cell<bool>,
}

impl MovableState {
    /// The state of a new connection.
    pub(crate) fn new(max_age: Option<MaxAge>, place: Option<Place>) -> Self {
        let arrived = wakeful::time::now();
        let expires = max_age.and_then(|MaxAge { age, jitter, .. }| {
            let age = age.checked_add(age.mul_f64(jitter * fastrand::f64()))?;
            arrived.checked_add(age)
        });
        Self::with(arrived, PackedState { expires, served: 0, place })
    }

    /// The state of a connection that has come from another loop.
    pub(crate) fn unpack(carried: PackedState) -> Self {
        Self::with(wakeful::time::now(), carried)
    }

    fn with(arrived: Instant, PackedState { expires, served, place }: PackedState) -> Self {
        let (served, place) = (Cell::new(served), RefCell::new(place));
        Self { arrived, expires, served, place, gives_way: Cell::default() }
    }

    /// Packs the state for another loop. If the move fails, it must be [put back](Self::put_back).
    pub(crate) fn pack(&self) -> PackedState {
        PackedState { expires: self.expires, served: self.served.get(), place: self.place.take() }
    }

    /// Puts the state back after a failed move.
    pub(crate) fn put_back(&self, carried: PackedState) {
        self.place.replace(carried.place);
    }

    /// When the connection came to this loop.
    pub(crate) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// When the connection is too old.
    pub(crate) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// The number of requests so far.
    pub(crate) fn served(&self) -> u64 {
        self.served.get()
    }

    /// Counts one more request, and returns the new number.
    pub(crate) fn one_more(&self) -> u64 {
        self.served.set(self.served.get() + 1);
        self.served.get()
    }

    /// The server has asked the connection for its place before a request came on this loop. So the
    /// connection closes after that request, if one comes.
    pub(crate) fn give_way(&self) {
        self.gives_way.set(true);
    }

    /// Was it asked for its place?
    pub(crate) fn gives_way(&self) -> bool {
        self.gives_way.get()
    }

    /// May the peer send one more request? If not, returns after how many nanoseconds it may.
    pub(crate) fn ask_peer(&self) -> Result<(), u64> {
        self.place.borrow().as_ref().map_or(Ok(()), Place::request)
    }
}
