//! Open-loop load and honest latency.

pub mod protocol;
pub mod results;
