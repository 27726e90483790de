//! Items in PostgreSQL. They are read through a cache in Redis, where each stays for some time.

use std::env;
use std::error::Error;
use std::future::Future;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, FromRedisValue, RedisError, RedisResult, Value};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};

/// What answers commands of Redis.
pub trait Cache: Clone + Send + Sync + 'static {
    fn ask(&self, command: Cmd) -> impl Future<Output = RedisResult<Value>> + Send;
}

impl Cache for ConnectionManager {
    async fn ask(&self, command: Cmd) -> RedisResult<Value> {
        command.query_async(&mut self.clone()).await
    }
}

#[derive(Clone)]
struct Catalogue<C> {
    items: PgPool,
    cache: C,
    expiry: Duration,
}

#[derive(Deserialize)]
struct New {
    name: String,
    price: i64,
}

#[derive(Serialize)]
struct Item {
    id: i64,
    name: String,
    price: i64,
}

/// What a handler answers when the database or the cache fails.
struct Failed(StatusCode, String);

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        let status = match error {
            sqlx::Error::RowNotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Self {
        Self(StatusCode::BAD_GATEWAY, error.to_string())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

fn key(id: i64) -> String {
    format!("item:{id}")
}

async fn create<C: Cache>(
    State(catalogue): State<Catalogue<C>>,
    Json(New { name, price }): Json<New>,
) -> Result<Json<Item>, Failed> {
    let id = sqlx::query_scalar("INSERT INTO items (name, price) VALUES ($1, $2) RETURNING id");
    let id = id.bind(&name).bind(price).fetch_one(&catalogue.items).await?;
    Ok(Json(Item { id, name, price }))
}

/// From the cache, and else from the database. A cache that fails has nothing.
async fn read<C: Cache>(
    State(catalogue): State<Catalogue<C>>,
    Path(id): Path<i64>,
) -> Result<impl IntoResponse, Failed> {
    let cached = catalogue.cache.ask(Cmd::get(key(id))).await;
    let cached = cached.and_then(|value| Ok(Option::<String>::from_redis_value(value)?));
    let item = match cached {
        Ok(Some(item)) => item,
        Ok(None) | Err(_) => {
            let row = sqlx::query_as("SELECT name, price FROM items WHERE id = $1");
            let (name, price) = row.bind(id).fetch_one(&catalogue.items).await?;
            let item = serde_json::to_string(&Item { id, name, price }).expect("no map");
            let expiry = catalogue.expiry.as_millis() as u64;
            let _ = catalogue.cache.ask(Cmd::pset_ex(key(id), &item, expiry)).await;
            item
        }
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], item))
}

/// The next one who reads it finds it changed.
async fn change<C: Cache>(
    State(catalogue): State<Catalogue<C>>,
    Path(id): Path<i64>,
    Json(New { name, price }): Json<New>,
) -> Result<Json<Item>, Failed> {
    let id =
        sqlx::query_scalar("UPDATE items SET name = $2, price = $3 WHERE id = $1 RETURNING id")
            .bind(id)
            .bind(&name)
            .bind(price)
            .fetch_one(&catalogue.items)
            .await?;
    catalogue.cache.ask(Cmd::del(key(id))).await?;
    Ok(Json(Item { id, name, price }))
}

/// The database of `DATABASE_URL`.
pub async fn items() -> Result<PgPool, Box<dyn Error>> {
    let options = PgPoolOptions::new().max_connections(6).acquire_timeout(Duration::from_secs(20));
    let pool = options.connect(&env::var("DATABASE_URL")?).await?;
    let table = "CREATE TABLE IF NOT EXISTS items (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name TEXT NOT NULL,
        price BIGINT NOT NULL
    )";
    sqlx::raw_sql(table).execute(&pool).await?;
    Ok(pool)
}

/// The cache of `REDIS_URL`. Its connection is opened by the first request, so it belongs to the
/// thread that serves.
pub async fn cache() -> Result<ConnectionManager, Box<dyn Error>> {
    let client = Client::open(env::var("REDIS_URL")?)?;
    Ok(client.get_connection_manager_lazy(ConnectionManagerConfig::new())?)
}

/// Items stay in the cache for `EXPIRY_MS`, or a minute.
pub fn router(items: PgPool, cache: impl Cache) -> Result<Router, Box<dyn Error>> {
    let expiry = env::var("EXPIRY_MS").unwrap_or("60000".into()).parse()?;
    let expiry = Duration::from_millis(expiry);
    Ok(routes().with_state(Catalogue { items, cache, expiry }))
}

fn routes<C: Cache>() -> Router<Catalogue<C>> {
    Router::new()
        .route("/items", post(create::<C>))
        .route("/items/{id}", get(read::<C>).put(change::<C>))
}
