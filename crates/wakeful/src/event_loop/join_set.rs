//! How a [`JoinSet`] spawns on this thread's loop.

use std::future::Future;

use super::current::expect_current;
use crate::priority::Priority;
use crate::task::{AbortHandle, AbortsOnDrop, JoinSet, spawn_blocking};

impl<T: 'static> JoinSet<T> {
    /// Spawns a task of the set on this thread's loop, as [`wakeful::spawn`](crate::spawn) does.
    /// Returns a handle that can abort it.
    ///
    /// For a task with a [`Priority`], or on another loop, see [`insert`](Self::insert).
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[track_caller]
    pub fn spawn<F: Future<Output = T> + 'static>(&mut self, future: F) -> AbortHandle {
        self.insert(expect_current().spawn(Priority::Normal, future))
    }

    /// Runs `f` on a thread that may block, as [`spawn_blocking`] does, and adds a task to the set
    /// that waits for it.
    ///
    /// Aborting that task removes `f` from the queue, unless a thread has begun to run it. In that
    /// case `f` continues, and its output is dropped.
    ///
    /// ```
    /// use wakeful::task::JoinSet;
    ///
    /// wakeful::block_on(async {
    ///     let mut set = JoinSet::new();
    ///     for name in ["comm", "cmdline"] {
    ///         set.spawn_blocking(move || std::fs::read(format!("/proc/self/{name}")));
    ///     }
    ///     for file in set.join_all().await {
    ///         assert!(!file.expect("readable").is_empty());
    ///     }
    /// });
    /// ```
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        let inner = expect_current();
        let work = AbortsOnDrop(spawn_blocking(f));
        self.insert_blocking(inner.spawn(Priority::Normal, work))
    }
}

/// Spawns each of the futures with [`JoinSet::spawn`], which panics if no loop runs on this thread.
///
/// ```
/// use wakeful::task::JoinSet;
///
/// wakeful::block_on(async {
///     let set: JoinSet<u32> = (1..=3).map(|number| async move { number }).collect();
///     assert_eq!(set.join_all().await, [1, 2, 3]);
/// });
/// ```
impl<T: 'static, F: Future<Output = T> + 'static> FromIterator<F> for JoinSet<T> {
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        set.extend(futures);
        set
    }
}

/// Spawns each of the futures with [`JoinSet::spawn`], which panics if no loop runs on this thread.
impl<T: 'static, F: Future<Output = T> + 'static> Extend<F> for JoinSet<T> {
    fn extend<I: IntoIterator<Item = F>>(&mut self, futures: I) {
        for future in futures {
            self.spawn(future);
        }
    }
}
