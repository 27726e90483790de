//! Protocols without I/O: a [`Conversation`] turns requests into bytes, and bytes into answers.
//!
//! The generator owns the sockets, the clock and the schedule. A conversation knows only its
//! protocol, so tests can use byte strings.

mod any;
mod conversation;
mod frames;
mod http1;
mod http2;
mod mix;
mod names;
mod requests;
mod resp;
mod template;
#[cfg(test)]
mod tests;

pub use any::AnyConversation;
pub use conversation::{Answer, Conversation, Outcome, ProtocolError};
pub use frames::Frames;
pub(crate) use frames::MAX_LENGTH as LARGEST_FRAME;
pub use http1::Http1;
pub use http2::Http2;
pub use mix::Draw;
pub(crate) use mix::{Drawing, Kind};
pub use names::Protocol;
pub use requests::Requests;
pub use resp::Resp;
pub use template::{InvalidTemplate, Template};

use conversation::InOrder;
