//! A server: its settings, its start and its end, and each of its connections from the first byte.

mod caller;
mod connection;
mod detect;
mod first_request;
mod running;
mod settings;
mod tls_connection;

pub use self::caller::Caller;
pub use self::running::Running;
pub use self::settings::Server;
