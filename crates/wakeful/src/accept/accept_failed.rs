//! What a server does when it cannot accept.
//!
//! | the kernel says | what it is | what happens |
//! |---|---|---|
//! | `EMFILE`, `ENFILE` | no descriptors are left | the loop retries every 50 ms; connections wait in the backlog. After 60 failed tries (3 s) the waiting connections are accepted and closed, with a descriptor that was reserved for this, unless a sibling accepts |
//! | `ENOBUFS`, `ENOMEM` | no memory left | the loop retries every 50 ms |
//! | `ENOSPC` | `max_user_watches`: the connection is accepted, but cannot be watched | it goes to another loop ([`Dispatch`](super::AcceptStrategy::Dispatch)), or is closed; then as above |
//! | `ECONNABORTED` and the like | the connection is gone | the next one is taken |
//! | `EBADF`, `EINVAL`, `ENOTSOCK` | other code closed the listener or shut it down | it ends, with an error in the log; the other listeners continue. After the last one, [`Serving::failure`](super::Serving::failure) completes |
//! | anything else | | the loop retries every 50 ms |
//!
//! Why close waiting connections? A client whose connection is in the backlog is connected, as far
//! as it knows, and waits for an answer. A short shortage is over before the client notices, and
//! nothing is lost. In a long shortage it is better to tell the client. Otherwise the backlog would
//! also fill with connections whose clients have gone, and these would be served first after the
//! shortage. Siblings share the backlog, and may have descriptors. So waiting connections are left
//! to them as long as one accepts. While the server drains, waiting connections have the whole
//! grace period instead (`drain_backlog`).

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::loop_server::LoopServer;
use crate::balance::counts::LoopCounts;
use crate::balance::siblings::OurTurn;
use crate::net::Listener;
use crate::sys::limits::{code, is_shortage};
use crate::sys::panics;
use crate::time::sleep;

/// How long a loop leaves a listener alone after a failed accept.
const BACK_OFF: Duration = Duration::from_millis(50);

/// The same while the server drains.
const BACK_OFF_IN_DRAIN: Duration = Duration::from_millis(5);

/// After this many failed tries for want of descriptors (3 s), waiting connections are closed,
/// unless a sibling accepts. Tries are counted, because a process that was stopped for a while
/// (SIGSTOP) should still get all of them.
const PATIENCE: u32 = 60;

/// From then on, at most this many connections are closed between two pauses.
const AT_ONCE: u32 = 64;

/// A failure this long after the previous one belongs to another shortage.
const ANOTHER: Duration = Duration::from_secs(10);

/// The failures of a listener are logged again after this time.
const LOG_AGAIN: Duration = Duration::from_secs(60);

/// The failed accepts of one listener on one loop.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// The failed tries since the last connection.
    tries: u32,
    last: Option<Instant>,
    logged: Option<Instant>,
    /// Whether connections are closed in this shortage.
    closes: bool,
}

impl Backoff {
    /// A connection was accepted.
    pub(super) fn reset(&mut self) {
        (self.tries, self.closes) = (0, false);
    }

    /// Waits after a failed accept on `listener` until another try makes sense. `Break`: the
    /// listener is broken, so no try makes sense.
    pub(super) async fn after<H>(
        &mut self,
        error: &io::Error,
        listener: &Listener,
        server: &LoopServer<H>,
    ) -> ControlFlow<()> {
        self.note(error, listener, server)?;
        let last = self.last.replace(Instant::now());
        if last.is_some_and(|last| last.elapsed() > ANOTHER) {
            self.reset();
        }
        self.tries = self.tries.saturating_add(1);
        let balancer = &server.shared.balancer;
        // This comes before the look at the siblings. So of several that are out of descriptors at
        // the same time, one sees that none is left that accepts.
        let _full = balancer.full();
        let is_left_to_siblings = || balancer.turn().is_some_and(OurTurn::do_siblings_accept);
        if self.tries > PATIENCE && lacks_descriptors(error) && !is_left_to_siblings() {
            let counts = server.counts();
            let closed = server.reserve.lend(|| close_what_waits(listener, counts, AT_ONCE));
            let closed = closed.unwrap_or(0);
            if !std::mem::replace(&mut self.closes, true) {
                panics::log!(
                    warn,
                    closed,
                    "out of descriptors for too long: closing the connections that wait. Raise \
                     RLIMIT_NOFILE (ulimit -n)"
                );
            }
        }
        sleep(BACK_OFF).await;
        ControlFlow::Continue(())
    }

    /// Like [`after`](Self::after), while the server drains. It closes no connection, because the
    /// grace period is not over, and its pauses are shorter, because descriptors come back one by
    /// one.
    pub(super) async fn after_in_drain<H>(
        &mut self,
        error: &io::Error,
        listener: &Listener,
        server: &LoopServer<H>,
    ) -> ControlFlow<()> {
        self.note(error, listener, server)?;
        sleep(BACK_OFF_IN_DRAIN).await;
        ControlFlow::Continue(())
    }

    /// `Break`: the listener is broken.
    fn note<H>(
        &mut self,
        error: &io::Error,
        listener: &Listener,
        server: &LoopServer<H>,
    ) -> ControlFlow<()> {
        server.counts().count_failed();
        if is_broken(error) {
            let fd = listener.raw_fd();
            panics::log!(error, %error, fd, "other code has closed or shut down a listener; it accepts no more");
            return ControlFlow::Break(());
        }
        if self.logged.is_none_or(|at| at.elapsed() > LOG_AGAIN) {
            let shortage = is_shortage(error);
            panics::log!(error, %error, shortage, "accept failed; trying again until it works");
            self.logged = Some(Instant::now());
        }
        ControlFlow::Continue(())
    }
}

/// Closes up to `most` connections of the backlog. Returns how many it closed.
pub(super) fn close_what_waits(listener: &Listener, counts: &LoopCounts, most: u32) -> u32 {
    let mut closed = 0;
    while closed < most
        && let Ok(Some(_connection)) = listener.try_accept_detached()
    {
        // The count comes before the close, so that a client that sees the close finds it counted.
        counts.count_turned_away();
        closed += 1;
    }
    closed
}

/// Is the listener itself broken, according to accept(2), so that trying again does not help?
fn is_broken(error: &io::Error) -> bool {
    has_code(error, &[Errno::BADF, Errno::INVAL, Errno::NOTSOCK])
}

pub(super) fn lacks_descriptors(error: &io::Error) -> bool {
    has_code(error, &[Errno::MFILE, Errno::NFILE])
}

fn has_code(error: &io::Error, codes: &[Errno]) -> bool {
    code(error).is_some_and(|code| codes.contains(&code))
}
