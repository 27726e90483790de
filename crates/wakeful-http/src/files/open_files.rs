//! How many files may be open at a time.

use std::fs::File;
use std::time::Duration;

use super::beneath::Root;
use crate::layers::bound::{Bound, Held};

/// What stays open while the body is sent: one of the files.
const OF_A_BODY: usize = 1;
/// How long a request waits. Most clients that read nothing lose their responses before that
/// ([`MinRate`](crate::MinRate)).
const PATIENCE: Duration = Duration::from_secs(30);

/// A bound that the clones of a service share.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenFiles(
    /// The bound, and what a request opens at most, for a moment. `None`: there is no bound.
    Option<(Bound, usize)>,
);

impl OpenFiles {
    /// `most` says how many files may be open.
    pub(super) fn of(root: &Root, most: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        let of_a_request = root.opens_at_most();
        Self(Some((Bound::new(of_a_request, most), of_a_request)))
    }

    /// Returns a place for a request's files, if there is room and nobody waits.
    pub(super) fn try_enter(&self) -> Option<Place> {
        match &self.0 {
            None => Some(Place(None)),
            Some((bound, count)) => bound.try_take(*count).map(|held| Place(Some(held))),
        }
    }

    /// Waits for a place, in the order of arrival. `None`: it took too long.
    pub(super) async fn enter(self) -> Option<Place> {
        let Some((bound, count)) = self.0 else { return Some(Place(None)) };
        bound.take(count, PATIENCE).await.map(|held| Place(Some(held)))
    }
}

/// The right to open files for one request. It ends when it is dropped, on any thread.
#[derive(Debug)]
pub(super) struct Place(
    /// `None`: there is no bound, or the right belongs to a file.
    Option<Held>,
);

impl Place {
    /// Only one file of the request is open any more.
    pub(super) fn found(&mut self) {
        if let Some(held) = &mut self.0 {
            held.keep(OF_A_BODY);
        }
    }

    /// The place of a file that the request has opened.
    pub(super) fn take(&mut self) -> Self {
        Self(self.0.take())
    }
}

/// A file, and its place. The file closes first.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) _place: Place,
}

#[cfg(test)]
mod tests {
    use super::super::beneath::Way;
    use super::*;

    #[test]
    fn a_request_has_room_for_all_that_it_opens() {
        let tree = tempfile::tempdir().unwrap();
        for (way, most) in [(Way::Openat2, 3), (Way::Trusted, 3), (Way::EachName, 4)] {
            let root = Root::with_way(tree.path(), way).unwrap();
            // One file fewer than two requests need.
            let files = OpenFiles::of(&root, move || 2 * most - 1);
            let mut one = files.try_enter().unwrap();
            assert!(files.try_enter().is_none(), "{way:?}");
            one.found();
            assert!(files.try_enter().is_some(), "{way:?}");
        }
    }
}
