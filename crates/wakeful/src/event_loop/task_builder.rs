//! How a [`Builder`] spawns, and with it a [`Scope`].

use std::future::Future;
use std::panic::Location;

use super::current::expect_current;
use super::handle::{LoopHandle, SendError};
use crate::metrics::named;
use crate::task::{Builder, InScope, JoinHandle, Scope, Spawner};

impl Builder {
    /// Spawns the task on this thread's loop, as [`wakeful::spawn`](crate::spawn) does.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[track_caller]
    pub fn spawn<F: Future + 'static>(self, future: F) -> JoinHandle<F::Output> {
        let place = self.place(Location::caller());
        expect_current().local.spawn_at(place, self.priority, future)
    }

    /// Spawns the future that `make` returns on the loop of `handle`, as [`LoopHandle::spawn`]
    /// does.
    ///
    /// # Errors
    /// The loop has ended, or this process is a fork of the loop's process. The error returns the
    /// closure.
    #[track_caller]
    pub fn spawn_on<M, F>(
        self,
        handle: &LoopHandle,
        make: M,
    ) -> Result<JoinHandle<F::Output>, SendError<M>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        handle.spawn_at(self.place(Location::caller()), self.priority, make)
    }

    /// Spawns the task in a scope, as [`Spawner::spawn`] does.
    ///
    /// If [`shutdown`](Scope::shutdown) has begun, or the scope is gone, the task is cancelled
    /// before its first poll.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[track_caller]
    pub fn spawn_in<F: Future + 'static>(
        self,
        scope: &Spawner,
        future: F,
    ) -> JoinHandle<F::Output> {
        let place = self.place(Location::caller());
        let inner = expect_current();
        let future = InScope::new(scope, future);
        let member = future.member();
        let handle = inner.local.spawn_at(place, self.priority, future);
        scope.know(member, handle.abort_handle());
        handle
    }

    fn place(self, spawned_at: &'static Location<'static>) -> &'static Location<'static> {
        self.name.map_or(spawned_at, |name| named(name, spawned_at))
    }
}

impl Scope {
    /// Spawns a task of the scope on this thread's loop, as [`wakeful::spawn`](crate::spawn) does.
    ///
    /// If [`shutdown`](Self::shutdown) has begun, the task is cancelled before its first poll.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[track_caller]
    pub fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        Builder::new().spawn_in(self.spawner(), future)
    }
}

impl Spawner {
    /// Spawns a task of the scope on this thread's loop, as [`wakeful::spawn`](crate::spawn) does.
    ///
    /// If the scope is gone, or its [`shutdown`](Scope::shutdown) has begun, the task is cancelled
    /// before its first poll.
    ///
    /// # Panics
    /// If no loop runs on this thread.
    #[track_caller]
    pub fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        Builder::new().spawn_in(self, future)
    }
}
