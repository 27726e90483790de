//! The values that each [`PerLoop`](crate::PerLoop) has made on this loop. Each has a place, by its
//! index.
//!
//! When a `PerLoop` is gone, its index is used again, and a loop may still have the old value then.
//! So each value is stored with the number of its `PerLoop`, which is never used again.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::mem;
use std::rc::Rc;

use crate::sys::fork_check::Process;
use crate::sys::panics;

/// The values of one loop.
#[derive(Default)]
pub(crate) struct LoopValues {
    places: RefCell<Vec<Place>>,
    /// How many values were made so far.
    made: Cell<u64>,
    has_ended: Cell<bool>,
}

#[derive(Default)]
enum Place {
    #[default]
    Empty,
    /// The function that makes the value is running.
    Making(u64),
    Made(Made),
}

struct Made {
    /// The number of the value's `PerLoop`.
    number: u64,
    value: Rc<dyn Any>,
    /// How many values of the loop were made before this one.
    place_in_order: u64,
    /// Called at the loop's end.
    ended: Box<dyn FnOnce()>,
}

/// Why a loop does not make a value.
pub(crate) enum Refused {
    /// The function that makes the value asks for the same value.
    IsBeingMade,
    /// The loop's values are gone, because the loop has ended.
    Ended,
}

impl LoopValues {
    /// The value at `index`, if it belongs to the `PerLoop` with this number.
    #[inline]
    pub(crate) fn get(&self, index: usize, number: u64) -> Option<Rc<dyn Any>> {
        match self.places.borrow().get(index) {
            Some(Place::Made(made)) if made.number == number => Some(made.value.clone()),
            _ => None,
        }
    }

    /// Makes the value of the `PerLoop` with this number by `make`, during which nothing is
    /// borrowed. There must be no value yet. `ended` is called when the value is dropped with its
    /// loop.
    pub(crate) fn make<T: 'static>(
        &self,
        index: usize,
        number: u64,
        make: impl FnOnce() -> T,
        ended: impl FnOnce() + 'static,
    ) -> Result<Rc<T>, Refused> {
        if self.has_ended.get() {
            return Err(Refused::Ended);
        }
        let old = {
            let mut places = self.places.borrow_mut();
            if places.len() <= index {
                places.resize_with(index + 1, Place::default);
            }
            if matches!(places[index], Place::Making(of) if of == number) {
                return Err(Refused::IsBeingMade);
            }
            mem::replace(&mut places[index], Place::Making(number))
        };
        // The old value belongs to a `PerLoop` that is gone.
        panics::discard(old);
        // If `make` panics, the drop of `making` empties the place.
        let making = Making { values: self, index, number };
        let value = Rc::new(make());
        mem::forget(making);
        let place_in_order = self.made.get();
        self.made.set(place_in_order + 1);
        let ended = Box::new(ended);
        let made = Place::Made(Made { number, value: value.clone(), place_in_order, ended });
        let place = self.places.borrow_mut().get_mut(index).map(|place| mem::replace(place, made));
        debug_assert!(matches!(place, Some(Place::Making(of)) if of == number));
        Ok(value)
    }

    /// Drops the value at `index`, if it belongs to the `PerLoop` with this number.
    pub(crate) fn remove(&self, index: usize, number: u64) {
        let removed = match self.places.borrow_mut().get_mut(index) {
            Some(place) if place.is_of(number) => mem::take(place),
            _ => return,
        };
        panics::discard(removed);
    }

    /// Drops the values at the end of the loop, the youngest first, because a value may use those
    /// that were made before it. In a forked child of `process` the values leak, as the futures of
    /// the loop's tasks do.
    pub(super) fn end(&self, process: Process) {
        self.has_ended.set(true);
        let mut places = self.places.take();
        places.sort_by_key(|place| match place {
            Place::Made(made) => Reverse(made.place_in_order),
            Place::Empty | Place::Making(_) => Reverse(0),
        });
        process.each_unless_forked(places, |place| {
            if let Place::Made(made) = place {
                (made.ended)();
                panics::discard(made.value);
            }
        });
    }
}

impl Place {
    fn is_of(&self, number: u64) -> bool {
        match self {
            Self::Empty => false,
            Self::Making(of) => *of == number,
            Self::Made(made) => made.number == number,
        }
    }
}

struct Making<'a> {
    values: &'a LoopValues,
    index: usize,
    number: u64,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.values.remove(self.index, self.number);
    }
}
