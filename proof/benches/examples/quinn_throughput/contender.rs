//! A runtime on which quinn runs, on one thread.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use quinn::{Runtime, TokioRuntime};
use wakeful::{EventLoop, IdlePolicy, LoopHandle};

use crate::wakeful_runtime::Wakeful;

#[derive(Clone, Copy)]
pub(crate) enum Contender {
    Wakeful(IdlePolicy),
    Tokio,
}

impl Contender {
    /// Runs, on this thread, the future that `main` makes from quinn's view of the runtime.
    pub(crate) fn block_on<F: Future>(
        self,
        main: impl FnOnce(Arc<dyn Runtime>) -> F,
    ) -> io::Result<F::Output> {
        match self {
            Self::Wakeful(idle) => EventLoop::builder()
                .idle(idle)
                .build()?
                .block_on(async { main(Arc::new(Wakeful(LoopHandle::current()))).await }),
            Self::Tokio => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                Ok(runtime.block_on(async { main(Arc::new(TokioRuntime)).await }))
            }
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wakeful(idle) => write!(f, "wakeful ({idle})"),
            Self::Tokio => f.write_str("tokio (current-thread)"),
        }
    }
}
