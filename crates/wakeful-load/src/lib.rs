//! Open-loop load and honest latency, for any server on Linux.
//!
//! Requests are due on a [`Schedule`](schedule::Schedule) that nothing can move, are sent late
//! rather than skipped, and their times count from when they were due. [`generator::run`] applies a
//! [`Plan`](generator::Plan) from one thread that never sleeps; [`summary`] says whether what it
//! measured may be believed. Around that:
//!
//! | module | for |
//! |---|---|
//! | [`protocol`] | what is said on a connection: HTTP/1.1, HTTP/2, frames, RESP |
//! | [`mod@bench`] | blocks: a quiet machine, a fresh server, its CPU time, again if other programs spoilt it |
//! | [`compare`], [`find_max`], [`floor`] | questions that take several blocks |
//! | [`results`], [`table`], [`report`], [`intervals`] | the answers: JSON, text, HTML, HdrHistogram logs |
//! | [`program`] | programs that measure inside themselves and print what they found |
//! | [`procfs`], [`quiet`], [`gaps`], [`machine`], [`servers`] | the machine and the servers on it |
//! | [`null_server`], [`slow`] | peers with known behaviour |

pub mod affinity;
pub mod bench;
pub mod compare;
pub mod find_max;
pub mod floor;
pub mod format;
pub mod gaps;
pub mod generator;
pub mod intervals;
pub mod machine;
pub mod null_server;
pub mod procfs;
pub mod program;
pub mod progress;
pub mod protocol;
pub mod quiet;
mod recorder;
pub mod report;
pub mod results;
pub mod schedule;
pub mod series;
pub mod servers;
pub mod slow;
pub mod statistics;
pub mod summary;
pub mod table;
pub mod target;
mod threads;

pub use recorder::Recording;
