//! Tokio as a guest of a loop, by topic. `docs/contract.md` says which promise is kept by which
//! test. (A child of a fork needs a process of its own: `tokio_fork`.)

#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "../contract/background.rs"]
mod background;

mod ends;
mod fairness;
mod groups;
mod heartbeats;
mod idle;
mod misuse;
mod panics;
#[cfg(feature = "test-util")]
mod paused_clock;
mod runs;
mod silence;
mod wakes;

use std::future::Future;
use std::time::Instant;

use wakeful::time::timeout;
use wakeful::{EventLoop, IdlePolicy};

use self::background::LONG;

/// A loop with a guest. It parks, or `WAKEFUL_TEST_IDLE` says what it does.
fn guest() -> EventLoop {
    let chosen = std::env::var("WAKEFUL_TEST_IDLE");
    let idle = chosen.map_or(IdlePolicy::Park, |name| name.parse().expect("an idle policy"));
    EventLoop::builder().idle(idle).tokio().build().expect("a loop can be built here")
}

/// Waits for what has to come: only what is lost makes it fail. It is the far timer beside which
/// nothing may be late.
async fn soon<F: Future>(future: F) -> F::Output {
    let start = Instant::now();
    let output = timeout(LONG, future).await.expect("a wake was lost");
    // What a lost wake has left lying is found when that timer fires.
    assert!(start.elapsed() < LONG, "a wake came by another timer");
    output
}

/// Runs `test` on a loop with a guest.
fn on_a_guest<F: Future>(test: F) -> F::Output {
    guest().block_on(soon(test)).expect("the kernel lets the loop wait")
}
