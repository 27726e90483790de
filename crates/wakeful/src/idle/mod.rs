//! What a loop does when it has nothing to do.

mod policy;

pub use policy::{IdlePolicy, UnknownIdlePolicy};
