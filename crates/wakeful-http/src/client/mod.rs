//! An HTTP/1.1 and HTTP/2 client on a loop: connections are pooled for each host and loop, so nothing is locked and nothing is sent between threads.
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
//! Who talks to the same server again and again keeps its [`Host`], which needs no look-up by name. hyper does the protocols; this module has what is around them:
//! `host` decides which connection a request gets, `http1` and `http2` are a connection of each kind, `exchange` sends a request and repeats it where that is safe, `connect` makes connections, `body` is
//! what a response is read by, `upgrade` asks for another protocol than HTTP, `grpc` lets clients that tonic generated run over it.
//!
//! # What is sent again
//! A request is repeated, on another connection and at most [`ClientBuilder::retries`] times (kept connections that had ended before it got to them do not count), if the server cannot have acted on it, or may act on it twice:
//! * it never got to the connection, or not a byte of it was written;
//! * an HTTP/2 server said that it was not processed: `REFUSED_STREAM`, or `GOAWAY` with a lower stream;
//! * the connection had been used before and closed without a byte of an answer, and the method is idempotent (RFC 9110, 9.2.2).
//!
//! A connection of HTTP/2 that ends before it got to a request, which many may share, costs none of the retries up to eight times (unless there are to be none).
//!
//! And only if there is a body to send again: one that is empty from the start, one that was not looked at, or one that can be cloned ([`Host::send_replayable`]).

mod body;
mod connect;
mod error;
mod exchange;
mod grpc;
mod host;
mod http1;
mod http2;
mod look_up;
mod settings;
mod target;
mod tasks;
mod upgrade;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Bytes;

pub use self::body::ResponseBody;
pub use self::error::ClientError;
pub use self::exchange::SendFailure;
pub use self::grpc::{GrpcBody, GrpcService};
pub use self::host::Host;
pub use self::settings::{ClientBuilder, ClientCounts};
pub use self::target::{HttpVersion, InvalidTarget, Target};
pub use self::upgrade::UpgradeAnswer;
use crate::BoxError;

/// What a request's body has to be: any [`Body`] that is `Unpin` and whose pieces are `Send` (hyper asks for it; nothing is sent anywhere).
pub trait OutgoingBody: Body<Data: Send, Error: Into<BoxError>> + Unpin + 'static {}

impl<B: Body<Data: Send, Error: Into<BoxError>> + Unpin + 'static> OutgoingBody for B {}

/// Beyond so many hosts those without connections are forgotten.
const MANY_HOSTS: usize = 64;

/// A client with its pools, of one loop. Clones share them; when the last one and all [`Host`]s are gone, idle connections close.
///
/// *Threads*: neither `Send` nor `Sync`. Make one on each loop.
pub struct Client<B: OutgoingBody> {
    inner: Rc<Inner<B>>,
}

struct Inner<B: OutgoingBody> {
    settings: Rc<ClientBuilder>,
    counts: Arc<ClientCounts>,
    hosts: RefCell<HashMap<Target, Host<B>>>,
}

impl<B: OutgoingBody> Clone for Client<B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<B: OutgoingBody> Default for Client<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: OutgoingBody> std::fmt::Debug for Client<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("hosts", &self.inner.hosts.borrow().len())
            .finish_non_exhaustive()
    }
}

/// Not for every body, because the type of `Client::builder()` could not be inferred then.
impl Client<Full<Bytes>> {
    /// Returns the default settings, to be changed. [`ClientBuilder::build`] makes a client for any type of body.
    ///
    /// ```
    /// use http_body_util::Empty;
    /// use hyper::body::Bytes;
    /// use wakeful_http::client::Client;
    ///
    /// # wakeful::block_on(async {
    /// let client = Client::builder().retries(0).build::<Empty<Bytes>>();
    /// # drop(client);
    /// # });
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}

impl<B: OutgoingBody> Client<B> {
    /// With the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::with(ClientBuilder::default())
    }

    fn with(settings: ClientBuilder) -> Self {
        let hosts = RefCell::new(HashMap::new());
        Self {
            inner: Rc::new(Inner { settings: Rc::new(settings), counts: Arc::default(), hosts }),
        }
    }

    /// The pool of connections to `target`, which it makes if there is none. No connection is made yet.
    pub fn host(&self, target: &Target) -> Host<B> {
        let mut hosts = self.inner.hosts.borrow_mut();
        if let Some(host) = hosts.get(target) {
            return host.clone();
        }
        if hosts.len() >= MANY_HOSTS {
            hosts.retain(|_, host| host.is_in_use());
        }
        let host =
            Host::new(target.clone(), self.inner.settings.clone(), self.inner.counts.clone());
        hosts.insert(target.clone(), host.clone());
        host
    }

    /// Sends `request` to the host that its URI names, as [`Host::send`] does.
    ///
    /// # Errors
    /// The URI has no host, or its scheme is neither `http` nor `https`; or those of [`Host::send`].
    pub async fn send(&self, request: Request<B>) -> Result<Response<ResponseBody>, ClientError> {
        let target = Target::of(request.uri(), self.inner.settings.version)?;
        self.host(&target).send(request).await
    }

    /// As [`send`](Self::send), with a body that can be cloned to be sent again.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn send_replayable(
        &self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, ClientError>
    where
        B: Clone,
    {
        let target = Target::of(request.uri(), self.inner.settings.version)?;
        self.host(&target).send_replayable(request).await
    }

    /// What this client counted; may be read from any thread.
    #[must_use]
    pub fn counts(&self) -> Arc<ClientCounts> {
        self.inner.counts.clone()
    }
}
