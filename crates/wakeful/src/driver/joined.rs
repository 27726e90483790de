//! A loop that has joined the list of those that wait for a listener's connections: its membership,
//! and the other loops' memberships.

use std::sync::Arc;

use super::listener_members::ListenerMembers;
use super::membership::Membership;

/// A loop's membership, with access to the others. See the [module](self).
#[derive(Debug)]
pub(crate) struct Joined {
    membership: Arc<Membership>,
    others: Arc<ListenerMembers>,
}

impl Joined {
    pub(super) fn new(membership: Membership, others: &Arc<ListenerMembers>) -> Self {
        let membership = Arc::new(membership);
        others.add(&membership);
        Self { membership, others: others.clone() }
    }

    pub(super) fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    pub(super) fn memberships(&self) -> &Arc<ListenerMembers> {
        &self.others
    }

    /// Called when no task on this loop will ever accept here again. If it was this loop's turn
    /// alone, it is now the turn of all other loops.
    pub(super) fn close(&self, connection: bool) {
        self.membership.turn().close();
        self.leave(connection);
        if !self.is_forked() {
            self.others.open_if_nobody_waits();
        }
    }

    /// Called when no task on this loop accepts here for now. `connection`: the kernel has reported
    /// a connection, and no task took it.
    pub(super) fn leave(&self, connection: bool) {
        let was_there = self.membership.is_wanted();
        // Leaving the kernel's list cannot fail.
        let _ = self.membership.want(false);
        // Another loop may just have passed a connection on to this one, which has not heard of it.
        let passes_on = connection || (was_there && !self.membership.is_backlog_empty());
        if passes_on && !self.is_forked() {
            self.others.pass_on(&self.membership);
        }
    }

    /// Is this a forked child? A child must not change the memberships that it inherited.
    fn is_forked(&self) -> bool {
        self.membership.is_forked()
    }
}
