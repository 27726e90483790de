//! The backends of the driver, and what a test needs of each. Binaries whose tests need a process
//! of their own share this file by `#[path]`.

#![allow(dead_code, reason = "not every binary needs all of it")]

#[path = "descriptors.rs"]
pub(crate) mod descriptors;
#[path = "driven.rs"]
pub(crate) mod driven;

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use wakeful::{EventLoop, EventLoopBuilder, IdlePolicy, LoopGroup, LoopGroupBuilder};

/// A way for a loop to reach the kernel.
pub(crate) trait Backend: 'static {
    /// The settings of a loop on this backend.
    fn builder() -> EventLoopBuilder;

    /// The settings of a group whose loops are on this backend.
    fn group() -> LoopGroupBuilder;

    /// A loop on this backend.
    fn event_loop() -> EventLoop {
        Self::builder().build().expect("a loop can be built here")
    }

    /// A loop whose turns are bounded in number only: a stall of the machine leaves nothing over.
    fn unhurried() -> EventLoop {
        Self::builder().turn_budget(Duration::MAX).build().expect("a loop can be built here")
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
        with_guest(EventLoop::builder().idle(idle()))
    }

    fn group() -> LoopGroupBuilder {
        LoopGroup::builder().event_loop(Self::builder())
    }
}

/// Loops park, because what is shown by counting is shown by counting parks; unless
/// `WAKEFUL_TEST_IDLE` names another policy, with which all but those tests pass.
fn idle() -> IdlePolicy {
    let chosen = std::env::var("WAKEFUL_TEST_IDLE");
    chosen.map_or(IdlePolicy::Park, |name| name.parse().expect("an idle policy"))
}

/// With `WAKEFUL_TEST_TOKIO=1`, Tokio is each loop's guest (feature `tokio`). What cannot be so is
/// skipped, and says why ([`driven`]).
fn with_guest(settings: EventLoopBuilder) -> EventLoopBuilder {
    #[cfg(feature = "tokio")]
    if driven::has_guest() {
        return settings.tokio();
    }
    settings
}

/// This machine, and a port that the kernel chooses. With `WAKEFUL_TEST_IPV6=1`, over IPv6.
pub(crate) fn localhost() -> SocketAddr {
    if std::env::var_os("WAKEFUL_TEST_IPV6").is_some() {
        (Ipv6Addr::LOCALHOST, 0).into()
    } else {
        (Ipv4Addr::LOCALHOST, 0).into()
    }
}

/// Makes a test of each function, on each backend.
macro_rules! on_every_backend {
    ($($(#[$attribute:meta])* $test:ident),* $(,)?) => {
        mod epoll {
            $(
                #[test]
                $(#[$attribute])*
                fn $test() {
                    $crate::backend::driven::unless_skipped(concat!(module_path!(), "::", stringify!($test)), || {
                        $crate::backend::descriptors::kept_if_alone(super::$test::<$crate::backend::Epoll>);
                    });
                }
            )*
        }
    };
}
