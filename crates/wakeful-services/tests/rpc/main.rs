//! gRPC over real sockets: the service, and what `wakeful_http::grpc` does for any.
#![allow(unreachable_pub)]

mod channel;
mod deadlines;
mod draining;
mod echo;
mod limits;
mod other_requests;
mod panics;
mod reflection;
mod watched;
