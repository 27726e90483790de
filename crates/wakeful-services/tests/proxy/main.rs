//! The proxy between real sockets: what goes through, what backends may do to it, and what waits in
//! it.

mod buffering;
mod closed_early;
mod common;
mod early_answers;
mod failures;
mod forwarding;
mod http2;
mod interim;
mod limits;
mod many_headers;
mod no_connection;
mod streaming;
mod tunnels_end;
mod tunnels_tls;
mod upgrades;
mod upgrades_http2;
