//! For which loops a layer counts.

use std::sync::Arc;

use wakeful::PerLoop;

/// One account for all loops, or one for each.
#[derive(Debug)]
pub(super) enum Scope<T: 'static> {
    AllLoops(Arc<T>),
    /// Counted as `AllLoops` are, so that what a request holds may be dropped on any thread. No
    /// other loop touches it.
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

    /// The account that this thread counts in.
    #[track_caller]
    pub(super) fn here(&self) -> Arc<T> {
        match self {
            Self::AllLoops(account) => account.clone(),
            Self::EachLoop(accounts) => (*accounts.get()).clone(),
        }
    }
}
