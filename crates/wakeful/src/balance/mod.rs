//! Which loop gets a connection.
//!
//! Why did this connection go to loop 3? `board` knows how busy each loop of a group is, and
//! `activity` how many are active; `watch` has another one woken, by `alarm`, when those do not
//! come back from their turns. `siblings` is the same between the workers of a master. Of the
//! active ones, `balancer` decides who waits in the kernel's list of a shared listener (`share` is
//! one loop's part of that), or `dispatch_placement` chooses for a listener that one loop accepts
//! from for all. `move_plan` says which open connections go on to another loop (`move_settings`:
//! and when). `counts` is what all of that goes by.

// A simulator reaches it by `internals`.
#[cfg_attr(not(feature = "internals"), allow(unreachable_pub, dead_code))]
pub(crate) mod activity;
mod alarm;
pub(crate) mod balancer;
pub(crate) mod board;
pub(crate) mod counts;
pub(crate) mod dispatch_placement;
mod move_plan;
pub(crate) mod move_settings;
pub(crate) mod recent;
mod share;
pub(crate) mod siblings;
mod watch;
