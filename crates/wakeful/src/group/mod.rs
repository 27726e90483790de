//! Several loops, usually one for each CPU. Under light load only some of them accept connections.

mod builder;
pub(crate) mod early_end;
mod heartbeats;
mod loads;
mod loop_group;
mod watched;
mod worker;

pub use self::builder::LoopGroupBuilder;
pub use self::loads::Loads;
pub use self::loop_group::{LoopGroup, ShutdownError};
pub use crate::balance::activity::Targets;
