//! The client: a pool for each host.

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use http::{Request, Response};
use wakeful::BelongsToOneLoop_UseOnThisLoop;
use wakeful::task::consume_budget;

use super::body::{OutgoingBody, ResponseBody};
use super::error::ClientError;
use super::host_pool::Host;
use super::settings::{ClientBuilder, ClientCounts};
use super::target::Target;

/// If there are more hosts than this, those without connections are forgotten.
const MANY_HOSTS: usize = 64;

/// An HTTP client for one loop, with its pools of connections. Clones share the pools. Idle
/// connections close when the last clone and all [`Host`]s are dropped.
///
/// # Threads
/// Neither `Send` nor `Sync`: make one on each loop, with a [`PerLoop`](wakeful::PerLoop). In a
/// handler whose future must be `Send`, use it within [`on_this_loop`](wakeful::on_this_loop).
/// Otherwise the compiler's error names [`BelongsToOneLoop_UseOnThisLoop`].
pub struct Client<B: OutgoingBody> {
    _of_one_loop: PhantomData<*const BelongsToOneLoop_UseOnThisLoop>,
    inner: Rc<Inner<B>>,
}

struct Inner<B: OutgoingBody> {
    settings: Rc<ClientBuilder>,
    counts: Arc<ClientCounts>,
    hosts: RefCell<HashMap<Target, Host<B>>>,
}

impl<B: OutgoingBody> Clone for Client<B> {
    fn clone(&self) -> Self {
        Self { _of_one_loop: PhantomData, inner: self.inner.clone() }
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

impl<B: OutgoingBody> Client<B> {
    /// Makes a client with the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::with(ClientBuilder::default())
    }

    pub(super) fn with(settings: ClientBuilder) -> Self {
        let hosts = RefCell::new(HashMap::new());
        Self {
            _of_one_loop: PhantomData,
            inner: Rc::new(Inner { settings: Rc::new(settings), counts: Arc::default(), hosts }),
        }
    }

    /// Returns the pool of connections to `target`. The first call makes the pool, but no
    /// connection.
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

    /// Removes the pool of `target`, which then takes no more requests. Its idle connections close
    /// at once, and the others when the requests on them have ended. Requests that wait for a
    /// connection fail with [`ClientError::Retired`], and so do later requests on an existing
    /// [`Host`] of this pool. The next call of [`host`](Self::host) makes a new pool.
    pub fn retire(&self, target: &Target) {
        let host = self.inner.hosts.borrow_mut().remove(target);
        if let Some(host) = host {
            host.pool.retire();
        }
    }

    /// Sends `request` to the host that its URI names, like [`Host::send`].
    ///
    /// # Cancel safety
    /// The same as for [`Host::send`].
    ///
    /// # Errors
    /// [`ClientError::Target`]: the URI has no host, an invalid port or a user name, or its scheme
    /// is neither `http` nor `https`. Otherwise, the same as for [`Host::send`].
    ///
    /// # Panics
    /// If no loop runs on this thread.
    pub async fn send(&self, request: Request<B>) -> Result<Response<ResponseBody>, ClientError> {
        let target = self.target_of(&request).await?;
        self.host(&target).send(request).await
    }

    /// Sends `request` like [`send`](Self::send), with a body that can be cloned for a retry.
    ///
    /// # Cancel safety
    /// The same as for [`Host::send`].
    ///
    /// # Errors
    /// The same as for [`send`](Self::send).
    ///
    /// # Panics
    /// If no loop runs on this thread.
    pub async fn send_replayable(
        &self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, ClientError>
    where
        B: Clone,
    {
        let target = self.target_of(&request).await?;
        self.host(&target).send_replayable(request).await
    }

    async fn target_of(&self, request: &Request<B>) -> Result<Target, ClientError> {
        let target = Target::of(request.uri(), self.inner.settings.version);
        if target.is_err() {
            // The request may fail at once, and be repeated in a loop.
            consume_budget().await;
        }
        target
    }

    /// Returns the counters of this client and its clones. Any thread may read them.
    #[must_use]
    pub fn counts(&self) -> Arc<ClientCounts> {
        self.inner.counts.clone()
    }
}
