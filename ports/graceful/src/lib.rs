//! Slow requests, which are answered also when the service is told to end meanwhile, and ones that
//! would never be answered, which do not hold it up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

type Begun = Arc<AtomicUsize>;

async fn slow(State(begun): State<Begun>) -> &'static str {
    begun.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Of this runtime, or of its end.
    tokio::spawn(async { "slow, and answered" }).await.unwrap_or("its task was dropped")
}

async fn forever(State(begun): State<Begun>) {
    begun.fetch_add(1, Ordering::Relaxed);
    std::future::pending::<()>().await;
}

async fn begun(State(begun): State<Begun>) -> String {
    begun.load(Ordering::Relaxed).to_string()
}

pub fn router() -> Router {
    Router::new()
        .route("/slow", get(slow))
        .route("/forever", get(forever))
        .route("/begun", get(begun))
        .layer((
            TraceLayer::new_for_http(),
            TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(3)),
        ))
        .with_state(Begun::default())
}
