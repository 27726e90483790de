//! Which heartbeats fit a group.

use std::io;

use super::LoopGroupBuilder;
use crate::heartbeat::{Heartbeats, Watchdog};

impl Watchdog {
    /// Makes the heartbeats of a group, and watches them from now on. Call it before the fork of
    /// the worker, with the settings from which the worker will build its group. The worker gives
    /// the result to [`LoopGroupBuilder::heartbeats`].
    ///
    /// # Errors
    /// No descriptor is left (it needs one, and one for each loop that has Tokio as its guest), or
    /// no memory; memfd_create(2) is refused; or [`LoopGroupBuilder::loop_count`] fails.
    pub fn heartbeats_for(&mut self, group: &LoopGroupBuilder) -> io::Result<Heartbeats> {
        let loops = group.loop_count()?;
        self.page(loops, if group.has_guests() { loops } else { 0 })
    }
}
