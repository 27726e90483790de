//! Notes in PostgreSQL. All handlers share one pool of connections.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{Stream, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgListener, PgPool, PgPoolOptions};

#[derive(Serialize)]
struct Note {
    id: i64,
    text: String,
    likes: i64,
}

impl From<(i64, String, i64)> for Note {
    fn from((id, text, likes): (i64, String, i64)) -> Self {
        Self { id, text, likes }
    }
}

#[derive(Deserialize)]
struct New {
    text: String,
}

/// What a handler answers when the database fails.
struct Failed(sqlx::Error);

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self(error)
    }
}

impl axum::response::IntoResponse for Failed {
    fn into_response(self) -> axum::response::Response {
        let status = match self.0 {
            sqlx::Error::RowNotFound => StatusCode::NOT_FOUND,
            sqlx::Error::PoolTimedOut => StatusCode::SERVICE_UNAVAILABLE,
            sqlx::Error::Database(_) => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.0.to_string()).into_response()
    }
}

type Answer<T> = Result<Json<T>, Failed>;

async fn create(State(pool): State<PgPool>, Json(new): Json<New>) -> Answer<Note> {
    let created = sqlx::query_as("INSERT INTO notes (text) VALUES ($1) RETURNING id, text, likes");
    let created: (i64, String, i64) = created.bind(new.text).fetch_one(&pool).await?;
    Ok(Json(created.into()))
}

/// All of them, or none.
async fn create_many(State(pool): State<PgPool>, Json(new): Json<Vec<New>>) -> Answer<Vec<i64>> {
    let mut transaction = pool.begin().await?;
    let mut ids = Vec::with_capacity(new.len());
    for note in new {
        let id = sqlx::query_scalar("INSERT INTO notes (text) VALUES ($1) RETURNING id");
        ids.push(id.bind(note.text).fetch_one(&mut *transaction).await?);
    }
    transaction.commit().await?;
    Ok(Json(ids))
}

async fn list(State(pool): State<PgPool>) -> Answer<Vec<Note>> {
    let notes = sqlx::query_as("SELECT id, text, likes FROM notes ORDER BY id").fetch(&pool);
    let notes = notes.map_ok(|row: (i64, String, i64)| Note::from(row));
    Ok(Json(notes.try_collect().await?))
}

async fn read(State(pool): State<PgPool>, Path(id): Path<i64>) -> Answer<Note> {
    let note = sqlx::query_as("SELECT id, text, likes FROM notes WHERE id = $1");
    let note: (i64, String, i64) = note.bind(id).fetch_one(&pool).await?;
    Ok(Json(note.into()))
}

/// Those who follow the news hear of it.
async fn like(State(pool): State<PgPool>, Path(id): Path<i64>) -> Answer<i64> {
    let mut transaction = pool.begin().await?;
    let likes =
        sqlx::query_scalar("UPDATE notes SET likes = likes + 1 WHERE id = $1 RETURNING likes");
    let likes: i64 = likes.bind(id).fetch_one(&mut *transaction).await?;
    let notify = sqlx::query("SELECT pg_notify('likes', $1)").bind(format!("{id} {likes}"));
    notify.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(Json(likes))
}

async fn news(
    State(pool): State<PgPool>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Failed> {
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen("likes").await?;
    let news = listener.into_stream().filter_map(async |news| news.ok());
    let news = news.map(|news| Ok(Event::default().data(news.payload())));
    Ok(Sse::new(news).keep_alive(KeepAlive::new()))
}

/// A query that takes `milliseconds`.
async fn slow(State(pool): State<PgPool>, Path(milliseconds): Path<i32>) -> Answer<i32> {
    let slept = sqlx::query_scalar("SELECT $1 FROM pg_sleep($1 / 1000.0)");
    Ok(Json(slept.bind(milliseconds).fetch_one(&pool).await?))
}

pub async fn pool(url: &str) -> sqlx::Result<PgPool> {
    let options = PgPoolOptions::new().max_connections(6).acquire_timeout(Duration::from_secs(20));
    let pool = options.connect(url).await?;
    let table = "CREATE TABLE IF NOT EXISTS notes (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        text TEXT NOT NULL CHECK (text <> ''),
        likes BIGINT NOT NULL DEFAULT 0
    )";
    sqlx::raw_sql(table).execute(&pool).await?;
    Ok(pool)
}

pub fn router(pool: PgPool) -> Router {
    Router::new()
        .route("/notes", get(list).post(create))
        .route("/notes/many", post(create_many))
        .route("/notes/{id}", get(read))
        .route("/notes/{id}/likes", post(like))
        .route("/news", get(news))
        .route("/slow/{milliseconds}", get(slow))
        .with_state(pool)
}
