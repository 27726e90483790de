//! A loop's door to a listener, and the other loops' doors.

use std::sync::Arc;

use super::door::Door;
use super::doors::Doors;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Entrance {
    door: Arc<Door>,
    others: Arc<Doors>,
}

impl Entrance {
    pub(super) fn new(door: Door, others: &Arc<Doors>) -> Self {
        let door = Arc::new(door);
        others.add(&door);
        Self { door, others: others.clone() }
    }

    pub(super) fn door(&self) -> &Arc<Door> {
        &self.door
    }

    pub(super) fn doors(&self) -> &Arc<Doors> {
        &self.others
    }

    /// Nobody will accept here any more. Where this loop was the only one in turn, all others are
    /// from now on.
    pub(super) fn close(&self, connection: bool) {
        self.door.turn().close();
        self.leave(connection);
        if !self.is_forked() {
            self.others.open_if_nobody_waits();
        }
    }

    /// Nobody accepts here for now. `connection`: the kernel has said that there is one, and nobody
    /// took it.
    pub(super) fn leave(&self, connection: bool) {
        // Leaving the kernel's list cannot fail.
        let _ = self.door.want(false);
        if connection && !self.is_forked() {
            self.others.pass_on(&self.door);
        }
    }

    /// A forked child changes nothing at the doors that it inherited.
    fn is_forked(&self) -> bool {
        self.door.is_forked()
    }
}
