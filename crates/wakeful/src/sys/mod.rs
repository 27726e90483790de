//! The platform below everything else: clock, threads, forks, limits and signals of this process,
//! panics of user code, and uninitialised memory. Nothing here knows of loops.
//!
//! `unsafe` is allowed file by file, here and in the other rooms that ARCHITECTURE.md names.

#[allow(unsafe_code)]
pub(crate) mod arenas;
pub(crate) mod before_fork;
#[allow(unsafe_code)]
pub(crate) mod clock;
pub(crate) mod closed_in_child;
#[cfg(any(feature = "internals", feature = "tokio"))]
#[allow(unsafe_code)]
pub(crate) mod duplicate;
pub(crate) mod failures;
#[cfg(feature = "faults")]
pub(crate) mod faults;
#[allow(unsafe_code)]
pub(crate) mod fork_check;
#[cfg(all(test, not(wakeful_loom)))]
pub(crate) mod held_log;
pub(crate) mod least_ttl;
#[allow(unsafe_code)]
pub(crate) mod limits;
pub(crate) mod once_per_second;
pub(crate) mod one_loop;
pub(crate) mod open_anew;
pub(crate) mod panics;
pub(crate) mod patience;
#[allow(unsafe_code)]
pub(crate) mod peer_cred;
mod running_handlers;
#[allow(unsafe_code)]
pub(crate) mod shared_words;
#[allow(unsafe_code)]
pub(crate) mod signals;
#[allow(unsafe_code)]
pub(crate) mod socket_options;
pub(crate) mod sync;
#[allow(unsafe_code)]
pub(crate) mod thread;
pub(crate) mod thread_edges;
#[allow(unsafe_code)]
pub(crate) mod uninit;
#[allow(unsafe_code)]
pub(crate) mod unix_message;
#[allow(unsafe_code)]
pub(crate) mod unsent;
#[cfg(feature = "tokio")]
pub(crate) mod watcher;
