//! An HTTP/1.1 and HTTP/2 client on a loop. Connections are pooled per host and loop, so the client
//! needs no locks and no messages between threads.
//!
//! ```
//! use http::Request;
//! use http_body_util::{BodyExt, Empty};
//! use hyper::body::Bytes;
//! use wakeful_http::client::Client;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::<Empty<Bytes>>::new();
//! let request = Request::get("http://127.0.0.1:8080/healthz").body(Empty::new())?;
//! let response = client.send(request).await?;
//! assert!(response.status().is_success());
//! println!("{:?}", response.into_body().collect().await?.to_bytes());
//! # Ok(())
//! # }
//! ```
//!
//! For repeated requests to the same server, keep its [`Host`]: the client then need not look up
//! the pool for each request. hyper implements the protocols.
//!
//! # What is sent again
//! A request is retried on another connection, at most [`ClientBuilder::retries`] times, if the
//! server cannot have acted on it, or may safely act on it twice. (An attempt on a pooled
//! connection that had already ended does not count.) These are the cases:
//! * the request never reached the connection, or no byte of it was written;
//! * an HTTP/2 server reported that it did not process the request: `REFUSED_STREAM`, or a `GOAWAY`
//!   whose last stream is lower than the request's;
//! * the connection closed before any response byte, and the method is idempotent (RFC 9110,
//!   9.2.2). Over HTTP/1.1 the retry then gets a new connection, if `max_connections` allows
//!   another one: other pooled connections may be about to close, too.
//!
//! If a connection closes under its first request, the request itself may be the cause. So after
//! that a request is sent once more at most, and not if it was repeated before.
//! ([`Host::send_with`] gives it back instead: another server may answer. The request carries a
//! mark, so that the client recognises it there.)
//!
//! A server may end an HTTP/2 connection before it has handled all requests that share it. The
//! client sends the unhandled requests again, on another connection. The first eight of these
//! repeats of a request do not count as retries. (If `retries` is 0, such a request fails instead.)
//!
//! If a request cannot be retried (its method is not idempotent, or its body is not kept), the
//! client checks before the write whether the pooled connection has ended. Over HTTP/1.1 this is
//! one system call for each such request. If the server closes the connection after that check, the
//! request fails.
//!
//! A retry also needs a body that can be sent again: one that is empty from the start, one that was
//! not polled, or one that can be cloned ([`Host::send_replayable`]).

// `hosts` has a pool for each host (`host_pool`, which decides which connection a request gets).
// `address` puts a request into its form, and `retry` decides what is sent again, by what `attempt`
// knows of a failure and `repeated` of the request. `connect` makes a connection, `look_up` asks
// for a name once for all that wait, and `transport` carries the bytes. `http1` and `http2` drive
// hyper's connections, `upgrade` asks for another protocol on a new connection. `body` is the body
// of a response, and `upload` watches the request's body on an HTTP/1.1 connection. `unused` ends a
// connection that nothing uses. `until_head` bounds what is read before a response's head, and
// `ambiguity` says which responses end their connection. `tasks` has the tasks of an HTTP/2
// connection, which end together. `unwritten` counts the streams whose request body h2 still holds,
// and `limit_watch` says when the server may allow more streams. `grpc` has gRPC clients over a
// host.
mod address;
mod ambiguity;
mod attempt;
mod body;
mod build;
mod connect;
mod error;
mod grpc;
mod host_pool;
mod hosts;
mod http1;
mod http2;
mod limit_watch;
mod local_port;
mod look_up;
mod repeated;
mod retry;
mod settings;
mod target;
mod tasks;
mod time_limits;
mod transport;
mod until_head;
mod unused;
mod unwritten;
mod upgrade;
mod upload;

pub use self::body::{OutgoingBody, ResponseBody, SendBody};
pub use self::error::{ClientError, InvalidTarget};
pub use self::grpc::GrpcService;
pub use self::host_pool::Host;
pub use self::hosts::Client;
pub use self::retry::{Awaited, SendFailure};
pub use self::settings::{ClientBuilder, ClientCounts};
pub use self::target::{HttpVersion, Target};
pub use self::upgrade::UpgradeAnswer;
