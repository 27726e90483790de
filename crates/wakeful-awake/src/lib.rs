#![doc = include_str!("../README.md")]

mod cpuidle;
pub mod latency_device;
mod machine;
mod probe;
mod wake_cost;

pub use cpuidle::{IdleDriver, IdleState};
pub use machine::{LargeMachine, check_share};
pub use probe::Probe;
pub use wake_cost::{Gain, wake_cost};
