//! Counters, queues and news in Redis. All handlers share one connection for what is answered at
//! once, and a pool for what waits.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{Stream, StreamExt};
use redis::aio::ConnectionManager;
use redis::{AsyncCommands, Client, RedisError};

type Pool = bb8::Pool<Client>;

#[derive(Clone, FromRef)]
struct Connections {
    client: Client,
    shared: ConnectionManager,
    pool: Pool,
}

/// What a handler answers when Redis fails.
struct Failed(String);

impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Self {
        Self(error.to_string())
    }
}

impl From<bb8::RunError<RedisError>> for Failed {
    fn from(error: bb8::RunError<RedisError>) -> Self {
        Self(error.to_string())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::BAD_GATEWAY, self.0).into_response()
    }
}

type Shared = State<ConnectionManager>;

async fn count(State(mut redis): Shared, Path(name): Path<String>) -> Result<String, Failed> {
    let count: i64 = redis.incr(format!("counter:{name}"), 1).await?;
    Ok(count.to_string())
}

async fn counted(State(mut redis): Shared, Path(name): Path<String>) -> Result<String, Failed> {
    let count: Option<i64> = redis.get(format!("counter:{name}")).await?;
    Ok(count.unwrap_or(0).to_string())
}

/// To the end of the queue.
async fn push(
    State(mut redis): Shared,
    Path(queue): Path<String>,
    item: String,
) -> Result<(), Failed> {
    Ok(redis.rpush(format!("queue:{queue}"), item).await?)
}

/// The first of the queue, as soon as there is one. It waits on a connection of its own.
async fn pop(
    State(pool): State<Pool>,
    Path(queue): Path<String>,
) -> Result<(StatusCode, String), Failed> {
    let mut redis = pool.get().await?;
    redis.set_response_timeout(Duration::from_secs(10));
    let item: Option<(String, String)> = redis.blpop(format!("queue:{queue}"), 5.0).await?;
    Ok(match item {
        Some((_, item)) => (StatusCode::OK, item),
        None => (StatusCode::NO_CONTENT, String::new()),
    })
}

async fn publish(
    State(mut redis): Shared,
    Path(channel): Path<String>,
    news: String,
) -> Result<String, Failed> {
    let subscribers: i64 = redis.publish(channel, news).await?;
    Ok(subscribers.to_string())
}

async fn subscribe(
    State(client): State<Client>,
    Path(channel): Path<String>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Failed> {
    let mut news = client.get_async_pubsub().await?;
    news.subscribe(channel).await?;
    let news = news.into_on_message();
    Ok(Sse::new(
        news.map(
            |news| Ok(Event::default().data(news.get_payload::<String>().unwrap_or_default())),
        ),
    ))
}

pub async fn router(url: &str) -> Result<Router, RedisError> {
    let client = Client::open(url)?;
    let shared = client.get_connection_manager().await?;
    let pool = Pool::builder().max_size(8).build(client.clone()).await?;
    Ok(Router::new()
        .route("/counters/{name}", get(counted).post(count))
        .route("/queues/{queue}", get(pop).post(push))
        .route("/channels/{channel}", post(publish).get(subscribe))
        .with_state(Connections { client, shared, pool }))
}
