//! Names of tasks. A task without a name costs nothing extra.
//!
//! Everything that is queued on a loop has a `&'static Location` that says where it was spawned. A
//! task with a name has its own copy of the location, which belongs to this name and this line
//! only. So code that passes the reference on passes the name on, too, and only code that reports
//! it looks the name up.
//!
//! The copies are in a list with one entry for each pair of a name and a line. Entries are never
//! removed. Any thread adds to it and reads it without a lock, so that no loop waits for another
//! thread here.

use std::panic::Location;
use std::ptr;

use crossbeam_utils::atomic::AtomicCell;

static NAMES: Names = Names::new();

/// The place of tasks with this name that are spawned at `spawned_at`. The first call for a pair of
/// both allocates. Each call searches the list of names.
pub(crate) fn named(
    name: &'static str,
    spawned_at: &'static Location<'static>,
) -> &'static Location<'static> {
    NAMES.place(name, spawned_at)
}

/// The name of the tasks of this place, if they have one.
pub(crate) fn name_of(place: &'static Location<'static>) -> Option<&'static str> {
    NAMES.name_of(place)
}

struct Names {
    last: AtomicCell<Last>,
}

struct Named {
    place: Location<'static>,
    spawned_at: &'static Location<'static>,
    name: &'static str,
    before: Last,
}

#[derive(Clone, Copy)]
struct Last(Option<&'static Named>);

impl PartialEq for Last {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Some(one), Some(other)) => ptr::eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Last {}

const _: () = assert!(AtomicCell::<Last>::is_lock_free());

impl Names {
    const fn new() -> Self {
        Self { last: AtomicCell::new(Last(None)) }
    }

    fn place(
        &self,
        name: &'static str,
        spawned_at: &'static Location<'static>,
    ) -> &'static Location<'static> {
        let of_both = |named: &&Named| ptr::eq(named.spawned_at, spawned_at) && named.name == name;
        loop {
            let last = self.last.load();
            if let Some(named) = all(last).find(of_both) {
                return &named.place;
            }
            let named = Named { place: *spawned_at, spawned_at, name, before: last };
            let named: &'static Named = Box::leak(Box::new(named));
            // If another thread has added a name meanwhile, which may be this one, the search
            // starts again.
            if self.last.compare_exchange(last, Last(Some(named))).is_ok() {
                return &named.place;
            }
        }
    }

    fn name_of(&self, place: &'static Location<'static>) -> Option<&'static str> {
        all(self.last.load()).find(|named| ptr::eq(&raw const named.place, place)).map(|it| it.name)
    }
}

fn all(last: Last) -> impl Iterator<Item = &'static Named> {
    std::iter::successors(last.0, |named| named.before.0)
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    #[test]
    fn each_name_at_each_place_has_one_place_which_says_the_same_line() {
        static OWN: Names = Names::new();
        let [one, other] = [here(), here()];
        assert_eq!(OWN.name_of(one), None);
        let named = OWN.place("reader", one);
        assert_eq!(named, one);
        assert!(ptr::eq(OWN.place("reader", one), named));
        assert!(!ptr::eq(OWN.place("writer", one), named));
        assert!(!ptr::eq(OWN.place("reader", other), named));
        assert_eq!(OWN.name_of(OWN.place("writer", one)), Some("writer"));
        assert_eq!((OWN.name_of(named), OWN.name_of(one)), (Some("reader"), None));
        assert_eq!(all(OWN.last.load()).count(), 3);
    }

    #[test]
    fn names_that_several_threads_add_at_once_are_all_there() {
        static OWN: Names = Names::new();
        const ALL: [&str; 4] = ["one", "two", "three", "four"];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for name in ALL {
                        assert_eq!(OWN.name_of(OWN.place(name, here())), Some(name));
                    }
                });
            }
        });
        assert_eq!(all(OWN.last.load()).count(), ALL.len());
    }
}
