//! What ThreadSanitizer runs of the contract (`.ci/sanitizers`): all of it takes long to build.

// What the others use of these.
#![allow(dead_code)]

#[macro_use]
mod backend;
mod background;
mod support;

mod churn;
mod event_loop;
mod handles;
mod lifetime;
mod task_handles;
mod timers;
