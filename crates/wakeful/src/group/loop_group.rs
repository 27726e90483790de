//! The group as a value.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::loads::Loads;
use super::worker::Worker;
use crate::balance::board::Board;
use crate::event_loop::LoopHandle;
use crate::sys::patience::Patience;

/// A group of loops, each on its own thread.
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let group = wakeful::LoopGroup::builder().loops(2).build()?;
/// let tasks: Vec<_> = group
///     .handles()
///     .iter()
///     .map(|handle| handle.spawn(|| async { std::thread::current().name().map(str::to_owned) }))
///     .collect::<Result<_, _>>()?;
/// let names = wakeful::block_on(async {
///     let mut names = Vec::new();
///     for task in tasks {
///         names.extend(task.await.expect("no panic"));
///     }
///     names
/// });
/// assert_eq!(names, ["wakeful-0", "wakeful-1"]);
/// group.shutdown(Duration::from_secs(1))?;
/// # Ok(())
/// # }
/// ```
///
/// Dropping the group stops its loops at once and waits for their threads (except the thread on
/// which it is dropped). In a forked child process, dropping it has no effect.
///
/// # Threads
/// `Send`, not `Sync`. Dropping the group and [`shutdown`](Self::shutdown) block: do neither on one
/// of its loops.
#[derive(Debug)]
pub struct LoopGroup {
    pub(super) workers: Vec<Worker>,
    pub(super) handles: Vec<LoopHandle>,
    pub(super) board: Arc<Board>,
}

impl LoopGroup {
    /// Returns the loops' handles, in the order of the loops' numbers.
    #[must_use]
    pub fn handles(&self) -> &[LoopHandle] {
        &self.handles
    }

    /// Returns how busy the loops are, and how many of them are active.
    #[must_use]
    pub fn loads(&self) -> Loads {
        Loads::new(self.board.clone())
    }

    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Waits, for up to `grace`, until no loop has a task left. Then stops the loops, drops the
    /// remaining tasks, and waits for the threads. Blocks the calling thread: do not call it on one
    /// of the group's loops.
    ///
    /// The call does not ask tasks to finish. Do that before.
    ///
    /// # Errors
    /// [`ShutdownError`], which says what happened:
    /// * A loop's thread did not end within a second after it was stopped, because a task or a
    ///   callback blocks it, or because dropping its tasks takes longer. The call does not wait for
    ///   that thread, which ends when it can.
    /// * A loop had ended with an error before.
    /// * This process is a fork of the process that built the group, and has none of its threads.
    pub fn shutdown(mut self, grace: Duration) -> Result<(), ShutdownError> {
        if let Err(error) = self.check_home() {
            return Err(ShutdownError(vec![error.to_string()]));
        }
        let mut patience = Patience::new(grace);
        // The last task of one loop may have spawned a task on a loop that was idle. So this
        // repeats until a whole round finds no task.
        let mut had_tasks = true;
        while had_tasks {
            had_tasks = false;
            for worker in &self.workers {
                had_tasks |= worker.wait_until_idle(&mut patience);
            }
        }
        let workers = std::mem::take(&mut self.workers);
        workers.iter().for_each(Worker::stop);
        let mut patience = Patience::new(Duration::from_secs(1));
        let join = |worker: Worker| worker.join_within(&mut patience).err();
        let failures: Vec<_> = workers.into_iter().filter_map(join).collect();
        if failures.is_empty() { Ok(()) } else { Err(ShutdownError(failures)) }
    }

    fn check_home(&self) -> io::Result<()> {
        self.handles.first().map_or(Ok(()), |handle| handle.process().check_quickly())
    }
}

impl Drop for LoopGroup {
    fn drop(&mut self) {
        if self.check_home().is_err() {
            // A forked child has none of the threads. Joining one would wait for ever, and
            // detaching one would touch a stack that is gone.
            self.workers.drain(..).for_each(std::mem::forget);
            return;
        }
        self.workers.iter().for_each(Worker::stop);
        for worker in self.workers.drain(..) {
            worker.join();
        }
    }
}

/// The error of [`LoopGroup::shutdown`]: a loop could not be ended cleanly.
#[derive(Debug, thiserror::Error)]
#[error("the group did not end in order: {}", .0.join("; "))]
pub struct ShutdownError(Vec<String>);

impl From<ShutdownError> for io::Error {
    fn from(error: ShutdownError) -> Self {
        Self::other(error)
    }
}
