//! One request, from where hyper calls the service to the last byte of its response.
//!
//! [`ConnectionService`] is what hyper calls, for both protocols. It keeps one invariant: each
//! request that begins also ends. An admitted request holds an `InFlight`, which moves from the
//! service's future into the response's body, and releases everything when the body is dropped.
//!
//! `admission` refuses before the service is called, `refused` is what is answered then, `body` has
//! the bodies on their way through the limits, `received` hyper's body, whose lock a forked child
//! must find free, and `unread` the rest of one that nobody needs. The limits of what is in flight
//! are `connection`'s.

mod admission;
mod body;
mod close_header;
mod in_flight;
mod kept_panic;
mod received;
mod refused;
mod service;
mod unread;

pub use self::body::RequestBody;
pub(crate) use self::service::ConnectionService;
