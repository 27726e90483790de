//! Builds a client from its settings.

use http_body_util::Full;
use hyper::body::Bytes;

use super::body::OutgoingBody;
use super::hosts::Client;
use super::settings::ClientBuilder;

/// Defined for one type of body only, so that `Client::builder()` needs no type annotation.
impl Client<Full<Bytes>> {
    /// Returns a builder with the default settings. [`ClientBuilder::build`] makes a client for any
    /// type of body.
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

impl ClientBuilder {
    /// Makes a client with these settings.
    pub fn build<B: OutgoingBody>(self) -> Client<B> {
        Client::with(self)
    }
}
