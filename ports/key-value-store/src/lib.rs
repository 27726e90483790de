//! Bytes by name. tower and tower-http bound how many requests read at once, for how long, and how
//! much a client may send.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::error_handling::HandleErrorLayer;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{StatusCode, header::AUTHORIZATION};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{BoxError, Router};
use tokio::sync::Notify;
use tower::ServiceBuilder;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::trace::TraceLayer;

#[derive(Default)]
struct Store {
    values: RwLock<HashMap<String, Bytes>>,
    changed: Notify,
}

type Shared = State<Arc<Store>>;

async fn read(State(store): Shared, Path(key): Path<String>) -> Result<Bytes, StatusCode> {
    store.values.read().unwrap().get(&key).cloned().ok_or(StatusCode::NOT_FOUND)
}

/// Answers as soon as there is a value.
async fn wait(State(store): Shared, Path(key): Path<String>) -> Bytes {
    loop {
        let changed = store.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if let Some(value) = store.values.read().unwrap().get(&key) {
            return value.clone();
        }
        changed.await;
    }
}

async fn write(State(store): Shared, Path(key): Path<String>, value: Bytes) -> StatusCode {
    store.values.write().unwrap().insert(key, value);
    store.changed.notify_waiters();
    StatusCode::NO_CONTENT
}

async fn keys(State(store): Shared) -> String {
    let mut keys: Vec<_> = store.values.read().unwrap().keys().cloned().collect();
    keys.sort();
    keys.join("\n")
}

async fn clear(State(store): Shared) {
    store.values.write().unwrap().clear();
}

async fn remove(State(store): Shared, Path(key): Path<String>) -> StatusCode {
    match store.values.write().unwrap().remove(&key) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

async fn only_admins(request: Request, next: Next) -> Response {
    match request.headers().get(AUTHORIZATION) {
        Some(token) if token == "Bearer secret" => next.run(request).await,
        _ => StatusCode::UNAUTHORIZED.into_response(),
    }
}

async fn refused(error: BoxError) -> StatusCode {
    if error.is::<tower::timeout::error::Elapsed>() {
        StatusCode::GATEWAY_TIMEOUT
    } else if error.is::<tower::load_shed::error::Overloaded>() {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    }
}

/// At most `waiting` requests wait for a key at once, each for at most `patience`.
pub fn router(waiting: usize, patience: Duration) -> Router {
    let waiters = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(refused))
        .load_shed()
        .concurrency_limit(waiting)
        .timeout(patience);
    let admin = Router::new()
        .route("/keys", delete(clear))
        .route("/keys/{key}", delete(remove))
        .layer(middleware::from_fn(only_admins));
    Router::new()
        .route("/keys", get(keys))
        .route("/wait/{key}", get(wait).layer(waiters))
        .route("/{key}", get(read).put(write))
        .nest("/admin", admin)
        .layer(
            ServiceBuilder::new()
                .layer(SetSensitiveRequestHeadersLayer::new([AUTHORIZATION]))
                .layer(TraceLayer::new_for_http())
                .layer(RequestBodyLimitLayer::new(5 << 20)),
        )
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::default())
}
