//! A simulator of the idle governor. It replays arrival traces through
//! [`Governor`](wakeful::internals::Governor) and through fixed windows for one loop. It also
//! simulates groups of loops that have the governor.
//!
//! | module | for |
//! |---|---|
//! | [`trace`] | when requests arrive: made up, or recorded |
//! | [`policy`] | what a loop does when it has nothing to do |
//! | [`costs`] | what things take on one machine |
//! | `one_loop` | the model: a loop that waits and answers |
//! | [`mod@replay`] | a trace, a policy and costs give responses and CPU: an [`outcome`] |
//! | [`verdict`] | is the governor beaten by a fixed window? |
//! | [`holds`] | the same for loops that hold: a fixed silence? At which price of held time? |
//! | [`group`] | the same for several loops: where connections are, and which loops are active |
//! | [`measure`], [`calibrate`], [`check`] | the real server on this machine: what things take there, and whether the model is right |
//! | [`record`] | when the requests of a real server arrive |
//! | [`report`] | the answers as tables and JSON |
//!
//! Nothing in the runtime depends on it.

pub mod calibrate;
pub mod check;
pub mod costs;
pub mod group;
pub mod holds;
pub mod measure;
mod one_loop;
pub mod outcome;
pub mod policy;
pub mod record;
pub mod replay;
pub mod report;
pub mod trace;
pub mod verdict;
