//! The check that heartbeats fit a group.

use std::io;

use super::LoopGroupBuilder;
use crate::heartbeat::{Heartbeats, Watchdog};

impl Watchdog {
    /// Makes the heartbeats of a group, and watches them from now on. Call it before the worker is
    /// forked, with the settings of the group that the worker will build. The worker passes the
    /// result to [`LoopGroupBuilder::heartbeats`].
    ///
    /// # Errors
    /// No descriptors are left (the call needs one, and one more for each loop that has Tokio as a
    /// guest); no memory is left; memfd_create(2) is forbidden; or [`LoopGroupBuilder::loop_count`]
    /// fails.
    pub fn heartbeats_for(&mut self, group: &LoopGroupBuilder) -> io::Result<Heartbeats> {
        let loops = group.loop_count()?;
        self.page(loops, if group.has_guests() { loops } else { 0 })
    }
}
