//! Which loop gets a connection.
//!
//! Why did this connection go to loop 3? `board` knows how busy each loop of a group is, and
//! `activity` decides how many are active. If the active loops are stuck in their turns, `watch`
//! wakes another one, by `alarm`. `siblings` does the same between the workers of a master.
//! `balancer` decides which of the active loops wait in the kernel's list of a shared listener
//! (`share` is one loop's part of that). If one loop accepts for all, `dispatch_placement` chooses
//! the loop instead. `move_plan` decides which open connections move to another loop, and
//! `move_settings` when. `counts` has the counters that these decisions use.

// `internals` makes it public for a simulator.
#[cfg_attr(not(feature = "internals"), allow(unreachable_pub, dead_code))]
pub(crate) mod activity;
mod alarm;
pub(crate) mod balancer;
pub(crate) mod board;
pub(crate) mod counts;
pub(crate) mod dispatch_placement;
mod mends;
mod move_plan;
pub(crate) mod move_settings;
pub(crate) mod recent;
mod share;
pub(crate) mod siblings;
mod watch;
