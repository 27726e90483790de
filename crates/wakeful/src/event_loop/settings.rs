//! The settings of a loop, as its turns read them.

use std::time::Duration;

use crate::heartbeat::Line;
use crate::idle::IdlePolicy;

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) idle: IdlePolicy,
    pub(super) io_batch: usize,
    pub(super) task_budget: u32,
    pub(super) turn_budget: Duration,
    pub(super) timer_budget: u32,
    pub(super) callback_budget: u32,
    pub(super) cooperative_budget: u32,
    pub(super) slow_turn: Duration,
    /// Set if the loop belongs to a group in a worker process.
    pub(super) heartbeat: Option<Line>,
    #[cfg(feature = "tokio")]
    pub(super) tokio: crate::guest::Choice,
    #[cfg(feature = "test-util")]
    pub(super) start_paused: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            idle: IdlePolicy::default(),
            io_batch: 64,
            task_budget: 64,
            turn_budget: Duration::from_micros(500),
            timer_budget: 256,
            callback_budget: 256,
            cooperative_budget: 128,
            slow_turn: Duration::from_millis(1),
            heartbeat: None,
            #[cfg(feature = "tokio")]
            tokio: crate::guest::Choice::None,
            #[cfg(feature = "test-util")]
            start_paused: false,
        }
    }
}
