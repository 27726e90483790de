//! Settings for spawning a task.

use crate::priority::Priority;

/// Spawns a task that has a name, a [`Priority`], or both.
///
/// The name says what the task is for. A loop reports it, together with the line that spawned the
/// task, in the report of a [slow turn](crate::EventLoopBuilder::slow_turn) and in
/// [`LoopMetrics::longest_poll`](crate::LoopMetrics::longest_poll). Names distinguish tasks that
/// one line spawns, for example in a library. To name work that changes from task to task or from
/// poll to poll, such as a request, use [`name_slow_work`](crate::metrics::name_slow_work).
///
/// The polls of a named task cost nothing extra. The spawn searches the names of the process, and
/// allocates at the first spawn of this name from this source line. That allocation is never freed,
/// so use few names, all known at compile time.
///
/// There is a method for each way to spawn: [`spawn`](Self::spawn) on this thread's loop,
/// [`spawn_on`](Self::spawn_on) on any loop, [`spawn_in`](Self::spawn_in) in a
/// [`Scope`](super::Scope). A [`JoinSet`](super::JoinSet::insert) takes the handle.
///
/// # Threads
/// `Copy`, `Send` and `Sync`.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use wakeful::{LoopHandle, task};
///
/// wakeful::block_on(async {
///     let blocks = async { std::thread::sleep(Duration::from_millis(20)) };
///     let task = task::Builder::new().name("thumbnails").spawn(blocks);
///     task.await.expect("no panic");
///     let longest = LoopHandle::current().metrics().longest_poll.expect("there was a poll");
///     assert_eq!(longest.name, Some("thumbnails"));
/// });
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "a builder does nothing until it spawns"]
pub struct Builder {
    pub(crate) name: Option<&'static str>,
    pub(crate) priority: Priority,
}

impl Builder {
    /// Makes a builder of tasks without a name and with normal priority.
    pub const fn new() -> Self {
        Self { name: None, priority: Priority::Normal }
    }

    /// Gives the task a name.
    pub const fn name(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Sets the task's [`Priority`].
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}
