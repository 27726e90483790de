//! Passes all requests on to another server, through one pool of connections for all of them.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, uri::PathAndQuery};
use axum::response::{IntoResponse, Response};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;

#[derive(Clone)]
struct Upstream {
    client: Client<HttpConnector, Body>,
    authority: String,
}

async fn pass_on(State(upstream): State<Upstream>, mut request: Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let Ok(uri) = format!("http://{}{path}", upstream.authority).parse::<Uri>() else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    *request.uri_mut() = uri;
    match upstream.client.request(request).await {
        Ok(response) => response.into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

pub fn router(upstream: String) -> Router {
    let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    Router::new().fallback(pass_on).with_state(Upstream { client, authority: upstream })
}
