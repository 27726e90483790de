//! What the echo comparisons share.
//!
//! The peers (`echo-tokio`, `echo-epoll`) use [`frame`], so that they differ
//! only in how they wait for and talk to sockets. The load client and the
//! comparison use [`load`]; the comparison alone uses [`server`],
//! [`schedule`] and [`stats`].

pub mod affinity;
pub mod cli;
pub mod frame;
pub mod load;
pub mod schedule;
pub mod server;
pub mod stats;
