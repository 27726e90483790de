//! Memberships that the kernel refused, because it had no room for another watch
//! (`max_user_watches`). A task of the membership's loop tries again until the kernel agrees.
//!
//! The reviews of the group try as well, but only a loop that is awake reviews. If all loops sleep,
//! the loop that was refused may be the only one that a connection could wake.
//!
//! A membership also tells here that the kernel has woken its loop for a connection that no loop of
//! this process takes. A sibling then looks for it.

use std::io;
use std::sync::Weak;
use std::time::Duration;

use super::balancer::Balancer;
use crate::driver::membership::{Membership, Mender};
use crate::event_loop::spawn;
use crate::supervise::supervise;
use crate::sys::once_per_second::OncePerSecond;
use crate::sys::panics;
use crate::time::sleep;

/// How often a loop tries to get back its place at a listener.
const MEND_EVERY: Duration = Duration::from_millis(10);

/// Looks after a loop's memberships.
#[derive(Debug)]
struct OfLoop {
    balance: Weak<Balancer>,
    number: usize,
}

impl Mender for OfLoop {
    fn refused(&self, error: &io::Error) {
        if let Some(balance) = self.balance.upgrade() {
            balance.mend_in_time(self.number, Some(error));
        }
    }

    fn nobody_takes_one(&self) {
        if let Some(balance) = self.balance.upgrade()
            && let Some(turn) = balance.turn()
        {
            turn.others_take_over();
        }
    }
}

impl Balancer {
    /// From now on a membership of loop `number` is also mended if a loop that leaves the listener
    /// to it finds it refused.
    pub(super) fn is_mended(&self, number: usize, membership: &Membership) {
        membership.is_mended_by(Box::new(OfLoop { balance: self.this.clone(), number }));
    }

    /// Lets loop `number` into a listener's list, or takes it out.
    pub(super) fn set_inside(&self, number: usize, listener: usize, inside: bool) {
        self.mend_after(number, self.shares[number].set_inside(listener, inside));
    }

    /// Sends loop `number` to the end of the kernel's list of this listener.
    pub(super) fn go_to_the_end(&self, number: usize, listener: usize) {
        self.mend_after(number, self.shares[number].go_to_the_end(listener));
    }

    #[inline]
    pub(super) fn mend_after(&self, number: usize, changed: io::Result<()>) {
        if let Err(error) = changed {
            self.mend_in_time(number, Some(&error));
        }
    }

    /// Tries for all loops. The loop that the kernel still refuses tries again itself, because
    /// there may be no other review for long.
    pub(super) fn mend_all(&self) {
        for (number, share) in self.shares.iter().enumerate() {
            if !share.mend() && share.is_shut_out() {
                self.mend_in_time(number, None);
            }
        }
    }

    #[cold]
    fn mend_in_time(&self, number: usize, error: Option<&io::Error>) {
        if !self.shares[number].begin_mending() {
            return;
        }
        let (balance, error) = (self.this.clone(), error.map(ToString::to_string));
        // The task ends with the loop, and so do the loop's listeners.
        let _ = self.loops[number].post(move || {
            let mend = move || mend(balance.clone(), number);
            spawn(supervise("watching a listener again", mend)).detach();
            log(error);
        });
    }
}

/// Runs on the loop that gets no connections, which no other thread waits for. The thread that was
/// refused may be one that others rely on, and a subscriber may block.
fn log(error: Option<String>) {
    static LIMIT: OncePerSecond = OncePerSecond::new();
    if let Some(count) = LIMIT.pass() {
        let error = error.map(tracing::field::display);
        panics::log!(
            warn,
            error,
            count,
            "a loop gets no connections until it can watch its listener again"
        );
    }
}

/// Without listeners there is nothing to repair, so this ends with them.
async fn mend(balance: Weak<Balancer>, number: usize) {
    while let Some(balance) = balance.upgrade() {
        if balance.shares[number].end_mending() {
            // The siblings may accept in this worker's place until they hear of it.
            balance.look_for_room();
            return;
        }
        drop(balance);
        sleep(MEND_EVERY).await;
    }
}
