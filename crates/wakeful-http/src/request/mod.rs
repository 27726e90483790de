//! One request, from where hyper calls the service to the last byte of its response.

pub(crate) mod admission;
mod body;
pub(crate) mod in_flight;
pub(crate) mod service;

pub use self::body::RequestBody;
