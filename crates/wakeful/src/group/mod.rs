//! Several loops, one for each CPU, and how many of them are awake to connections.

mod builder;
mod heartbeats;
mod loads;
mod loop_group;
mod watched;
mod worker;

pub use self::builder::LoopGroupBuilder;
pub use self::loads::Loads;
pub use self::loop_group::{LoopGroup, ShutdownError};
pub use crate::balance::activity::Targets;
