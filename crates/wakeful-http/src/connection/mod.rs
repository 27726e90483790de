//! One connection while it is served, whatever its protocol: what is in flight on it, its
//! deadlines, and how it ends.
//!
//! `http1` and `http2` drive hyper's connection, and `request` answers. All of them record events
//! in a [`ConnectionState`], and the drivers ask it what is due. It keeps one invariant: a deadline
//! expires only after the bytes that had arrived before it were read.
//!
//! | file | what it holds |
//! |---|---|
//! | `state` | [`ConnectionState`], and its parts |
//! | `phase` | what the connection waits for, and since when |
//! | `deadlines` | when that takes too long: header, idle, age, close; `timer` is the one timer for all |
//! | `tick` | the look at what is in flight: silent bodies, slow readers, clients that are gone |
//! | `request_limits`, `request_table`, `request_names` | a request in flight and its limits; those of the connection; the one that a poll works on |
//! | `body_progress`, `last_body` | how far a request's body is; what HTTP/1 leaves of it |
//! | `response_writes` | how fast responses are taken |
//! | `open_streams`, `hand_over`, `shut_window` | HTTP/2's streams: their room for responses; which request is which; how long there is none |
//! | `tunnels` | HTTP/2's upgraded streams, and what they leave |
//! | `reset_ration` | HTTP/2: how often a stream may be reset |
//! | `closing` | whether the next response is the last one |
//! | `movable_state` | what goes along to another loop |
//! | `reads` | HTTP/1's bytes on their way through `framing` |
//! | `rewound`, `liveness`, `goodbye` | the io: bytes that were read before, whether the client is gone, and what it is told at the end of an upgrade |
//! | `unasked_answer` | an answer without a request |

mod body_progress;
mod closing;
mod deadlines;
mod goodbye;
mod hand_over;
mod last_body;
mod liveness;
mod movable_state;
mod open_streams;
mod phase;
mod protocol;
mod reads;
mod request_limits;
mod request_names;
mod request_table;
mod reset_ration;
mod response_writes;
mod rewound;
mod shut_window;
mod state;
mod tick;
mod timer;
mod tunnels;
pub(crate) mod unasked_answer;

pub(crate) use self::body_progress::{BodyReads, LastWaker, Progress};
pub(crate) use self::liveness::Liveness;
pub(crate) use self::movable_state::MovableState;
pub(crate) use self::open_streams::OpenStreams;
pub(crate) use self::phase::{Act, Phase};
pub(crate) use self::protocol::{PREFACE, Protocol};
pub(crate) use self::request_limits::{Key, Request, TimeLimits};
pub(crate) use self::reset_ration::{ResetRation, Turn};
pub(crate) use self::rewound::Rewound;
pub(crate) use self::state::ConnectionState;
pub(crate) use self::timer::Timer;
