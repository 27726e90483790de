//! Whether a layer counts for all loops together, or for each loop.

use std::sync::Arc;

use wakeful::PerLoop;

/// One account for all loops, or one for each.
#[derive(Debug)]
pub(super) enum Scope<T: 'static> {
    AllLoops(Arc<T>),
    /// This is an `Arc` like that of `AllLoops`, so that what a request holds may be dropped on any
    /// thread. No other loop uses it.
    EachLoop(PerLoop<Arc<T>>),
}

impl<T> Clone for Scope<T> {
    fn clone(&self) -> Self {
        match self {
            Self::AllLoops(account) => Self::AllLoops(account.clone()),
            Self::EachLoop(accounts) => Self::EachLoop(accounts.clone()),
        }
    }
}

impl<T> Scope<T> {
    pub(super) fn all(account: T) -> Self {
        Self::AllLoops(Arc::new(account))
    }

    pub(super) fn each(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Self::EachLoop(PerLoop::new(move || Arc::new(make())))
    }

    /// The account in which this thread counts.
    #[track_caller]
    pub(super) fn here(&self) -> Arc<T> {
        match self {
            Self::AllLoops(account) => account.clone(),
            Self::EachLoop(accounts) => (*accounts.get()).clone(),
        }
    }
}
