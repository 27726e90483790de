//! What every peer shares, so that peers differ only in the runtime: the flags, the frames of the
//! echo service, the requests of the HTTP service, the listening sockets, and the versions of the
//! runtimes.

pub mod cli;
pub mod frame;
pub mod http;
pub mod listen;
pub mod session;

/// The versions of the runtimes, as `--version` prints them.
pub mod version {
    include!(concat!(env!("OUT_DIR"), "/versions.rs"));
}

pub use cli::{Args, Idle};
pub use listen::{Listen, Socket};
pub use session::{Answer, Service, Session, answer};
