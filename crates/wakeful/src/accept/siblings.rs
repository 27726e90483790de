//! A worker hears of its siblings: that it may be its turn to wait for connections, that one of
//! them is stuck, or that the master is gone.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::balance::balancer::Balancer;
use crate::balance::siblings::OurTurn;
use crate::event_loop::spawn;
use crate::readiness::AsyncFd;
use crate::supervise::supervise;
use crate::sys::fork_check::Process;

/// Listens to the siblings on this thread's loop, as long as the loop runs.
///
/// # Errors
/// No descriptors left; the loop cannot watch more.
pub(super) fn hear(turn: &OurTurn, balancer: &Arc<Balancer>) -> io::Result<()> {
    let bell = Rc::new(AsyncFd::new(turn.bell()?)?);
    let lifeline = Rc::new(AsyncFd::new(turn.lifeline()?)?);
    let balancer = balancer.clone();
    let ends = EndsWithLoop { balancer: balancer.clone(), process: Process::current()? };
    let ends = Rc::new(ends);
    let hear = move || {
        let (bell, lifeline, balancer) = (bell.clone(), lifeline.clone(), balancer.clone());
        let ends = ends.clone();
        async move {
            let _ends = ends;
            while poll_fn(|cx| rings(&bell, &lifeline, cx)).await {
                balancer.see_whose_turn_it_is();
                balancer.pass_on_from_sibling();
            }
            // Without the master nobody would report the death of a sibling.
            balancer.is_alone();
            std::future::pending::<()>().await;
        }
    };
    spawn(supervise("hearing of the other workers", hear)).detach();
    Ok(())
}

/// Without this loop no task in this process hears of the siblings, so they take over. At the
/// latest this is dropped when the server ends.
struct EndsWithLoop {
    balancer: Arc<Balancer>,
    process: Process,
}

impl Drop for EndsWithLoop {
    fn drop(&mut self) {
        if !self.process.is_forked() {
            self.balancer.ends();
        }
    }
}

/// Waits until the bell rings. `false`: the master is gone, so the bell never rings again.
fn rings(bell: &AsyncFd<OwnedFd>, lifeline: &AsyncFd<OwnedFd>, cx: &mut Context<'_>) -> Poll<bool> {
    // Nobody writes to the lifeline. It is readable only when the master's end is closed.
    if lifeline.poll_readable(cx).is_ready() {
        return Poll::Ready(false);
    }
    loop {
        // An error means that the loop ends.
        let Ok(mut ready) = ready!(bell.poll_readable(cx)) else { return Poll::Ready(false) };
        if ready.try_io(|bell| Ok(rustix::io::read(bell, &mut [0; 8])?)).is_ok() {
            return Poll::Ready(true);
        }
    }
}
