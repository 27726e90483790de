//! Relays what another server has. All handlers share one client, whose connections they use in
//! turn; bodies go through as they come.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use reqwest::Client;

#[derive(Clone)]
struct Upstream {
    client: Client,
    url: String,
}

/// What a handler answers when the other server fails.
struct Failed(reqwest::Error);

impl From<reqwest::Error> for Failed {
    fn from(error: reqwest::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let timeout = self.0.is_timeout();
        let status = if timeout { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
        (status, self.0.to_string()).into_response()
    }
}

fn relayed(answer: reqwest::Response) -> Response {
    let status = answer.status();
    (status, Body::from_stream(answer.bytes_stream())).into_response()
}

async fn download(
    State(upstream): State<Upstream>,
    Path(path): Path<String>,
) -> Result<Response, Failed> {
    let url = format!("{}/{path}", upstream.url);
    Ok(relayed(upstream.client.get(url).send().await?))
}

async fn upload(
    State(upstream): State<Upstream>,
    Path(path): Path<String>,
    body: Body,
) -> Result<Response, Failed> {
    let body = reqwest::Body::wrap_stream(body.into_data_stream());
    let url = format!("{}/{path}", upstream.url);
    Ok(relayed(upstream.client.post(url).body(body).send().await?))
}

pub fn router(url: String) -> reqwest::Result<Router> {
    let client = Client::builder().read_timeout(Duration::from_secs(5)).build()?;
    Ok(Router::new()
        .route("/{*path}", get(download).post(upload))
        .with_state(Upstream { client, url }))
}
