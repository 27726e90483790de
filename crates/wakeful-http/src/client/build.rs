//! How a client is made of its settings.

use http_body_util::Full;
use hyper::body::Bytes;

use super::body::OutgoingBody;
use super::hosts::Client;
use super::settings::ClientBuilder;

/// Not for every body, because the type of `Client::builder()` could not be inferred then.
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
    /// A client with these settings.
    pub fn build<B: OutgoingBody>(self) -> Client<B> {
        Client::with(self)
    }
}
