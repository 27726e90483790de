//! The backends of the driver, and what a test needs of each.

use std::future::Future;

use wakeful::{EventLoop, EventLoopBuilder};

/// A way for a loop to reach the kernel.
pub(crate) trait Backend: 'static {
    /// The settings of a loop on this backend.
    fn builder() -> EventLoopBuilder;

    /// A loop on this backend.
    fn event_loop() -> EventLoop {
        Self::builder().build().expect("a loop can be built here")
    }

    /// Runs `future` on a loop of its own.
    fn block_on<F: Future>(future: F) -> F::Output {
        Self::event_loop().block_on(future).expect("the kernel lets the loop wait")
    }
}

/// `epoll(7)`.
pub(crate) struct Epoll;

impl Backend for Epoll {
    fn builder() -> EventLoopBuilder {
        EventLoop::builder()
    }
}

/// Makes a test of each function, on each backend.
macro_rules! on_every_backend {
    ($($test:ident),* $(,)?) => {
        mod epoll {
            $(
                #[test]
                fn $test() {
                    super::$test::<$crate::backend::Epoll>();
                }
            )*
        }
    };
}
