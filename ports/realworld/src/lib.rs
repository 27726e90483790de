//! The backend of a blog, with the routes and the JSON of the RealWorld specification.

mod articles;
mod comments;
mod failed;
mod identity;
mod profiles;
mod users;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use identity::Keys;

/// What all handlers share.
#[derive(Clone, FromRef)]
struct App {
    pool: PgPool,
    keys: Arc<Keys>,
}

pub async fn pool(url: &str) -> sqlx::Result<PgPool> {
    let pool = PgPoolOptions::new().max_connections(10).connect(url).await?;
    sqlx::raw_sql(include_str!("schema.sql")).execute(&pool).await?;
    Ok(pool)
}

pub fn router(pool: PgPool, secret: &str) -> Router {
    let api = Router::new()
        .route("/users", post(users::register))
        .route("/users/login", post(users::log_in))
        .route("/user", get(users::current).put(users::update))
        .route("/profiles/{username}", get(profiles::profile))
        .route("/profiles/{username}/follow", post(profiles::follow).delete(profiles::unfollow))
        .route("/articles", get(articles::list).post(articles::create))
        .route("/articles/feed", get(articles::feed))
        .route(
            "/articles/{slug}",
            get(articles::read).put(articles::update).delete(articles::remove),
        )
        .route("/articles/{slug}/favorite", post(articles::favorite).delete(articles::unfavorite))
        .route("/articles/{slug}/comments", get(comments::list).post(comments::create))
        .route("/articles/{slug}/comments/{id}", delete(comments::remove))
        .route("/tags", get(articles::tags));
    let patience = Duration::from_secs(30);
    Router::new()
        .nest("/api", api)
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, patience))
        .layer(CorsLayer::permissive())
        .layer(TraceLayer::new_for_http())
        .with_state(App { pool, keys: Arc::new(Keys::new(secret)) })
}
