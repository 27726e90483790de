//! The proxy between real sockets: what goes through, what backends may do to it, and what waits in it.

mod buffering;
mod common;
mod failures;
mod forwarding;
mod http2;
mod limits;
