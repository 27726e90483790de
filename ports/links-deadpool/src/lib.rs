//! Short links. The pool of tokio-postgres connects when a handler asks for its first connection.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use deadpool_postgres::{Manager, Pool, PoolError, Runtime};
use tokio::sync::OnceCell;
use tokio_postgres::NoTls;

/// What a handler answers when the database fails.
struct Failed(String);

impl From<PoolError> for Failed {
    fn from(error: PoolError) -> Self {
        Self(error.to_string())
    }
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        Self(error.to_string())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, self.0).into_response()
    }
}

#[derive(Clone)]
pub struct Database {
    pool: Pool,
    schema: &'static OnceCell<()>,
}

impl Database {
    async fn client(&self) -> Result<deadpool_postgres::Client, Failed> {
        let client = self.pool.get().await?;
        let schema = self.schema.get_or_try_init(async || {
            let table = "CREATE TABLE IF NOT EXISTS links (
                id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                target TEXT NOT NULL,
                followed BIGINT NOT NULL DEFAULT 0
            )";
            client.batch_execute(table).await
        });
        schema.await?;
        Ok(client)
    }
}

async fn shorten(State(database): State<Database>, target: String) -> Result<String, Failed> {
    let client = database.client().await?;
    let insert = "INSERT INTO links (target) VALUES ($1) RETURNING id";
    let insert = client.prepare_cached(insert).await?;
    let id: i64 = client.query_one(&insert, &[&target]).await?.get(0);
    Ok(format!("/{id:x}"))
}

async fn follow(
    State(database): State<Database>,
    Path(id): Path<String>,
) -> Result<Response, Failed> {
    let Ok(id) = i64::from_str_radix(&id, 16) else {
        return Ok(StatusCode::NOT_FOUND.into_response());
    };
    let client = database.client().await?;
    let read = client.prepare_cached("SELECT target FROM links WHERE id = $1").await?;
    let count = "UPDATE links SET followed = followed + 1 WHERE id = $1";
    let count = client.prepare_cached(count).await?;
    // Both are sent before the first is answered.
    let asked = async { client.query_opt(&read, &[&id]).await };
    let counted = async { client.execute(&count, &[&id]).await };
    let (target, _) = tokio::try_join!(asked, counted)?;
    Ok(match target {
        Some(row) => Redirect::temporary(row.get(0)).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    })
}

/// All links, as PostgreSQL sends them.
async fn export(State(database): State<Database>) -> Result<Body, Failed> {
    let client = database.client().await?;
    let copy = "COPY (SELECT id, target, followed FROM links ORDER BY id) TO STDOUT (FORMAT csv)";
    Ok(Body::from_stream(client.copy_out(copy).await?))
}

/// Connects to nothing yet.
pub fn database(url: &str) -> Result<Database, Box<dyn std::error::Error>> {
    let pool = Pool::builder(Manager::new(url.parse()?, NoTls))
        .max_size(6)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(Duration::from_secs(20)))
        .create_timeout(Some(Duration::from_secs(10)))
        .build()?;
    static SCHEMA: OnceCell<()> = OnceCell::const_new();
    Ok(Database { pool, schema: &SCHEMA })
}

pub fn router(database: Database) -> Router {
    Router::new()
        .route("/", post(shorten))
        .route("/{id}", get(follow))
        .route("/export.csv", get(export))
        .with_state(database)
}
