//! One connection while it is served: what is in flight on it, its deadlines, and how it ends.

pub(crate) mod body_progress;
pub(crate) mod deadlines;
pub(crate) mod lingering_close;
pub(crate) mod movable_state;
pub(crate) mod protocol;
mod reads;
pub(crate) mod request_names;
pub(crate) mod requests;
pub(crate) mod timer;
