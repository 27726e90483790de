//! The task that runs on this thread.

use super::id::Id;
use super::local;

/// Returns the id of the task that runs on this thread.
///
/// # Panics
/// If no task of a loop runs on this thread. See [`try_id`].
#[must_use]
#[track_caller]
pub fn id() -> Id {
    // This is no closure, because a closure would be the caller that a panic names.
    let Some(id) = try_id() else {
        panic!(
            "no task runs here: call `task::id` within a future that was spawned. The future of `block_on`, \
             callbacks and closures are not tasks; `task::try_id` says so without a panic"
        )
    };
    id
}

/// Returns the id of the task that runs on this thread, if there is one. A task runs during its
/// polls, and while its future is dropped.
///
/// The future of [`block_on`](crate::block_on), callbacks, closures that were sent to a loop, and
/// blocking work are not tasks.
///
/// ```
/// wakeful::block_on(async {
///     assert_eq!(wakeful::task::try_id(), None);
/// });
/// ```
#[must_use]
pub fn try_id() -> Option<Id> {
    local::with_current_if_any(|local| local?.running())
}
