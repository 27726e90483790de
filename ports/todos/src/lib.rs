//! A list of things to do, by REST: all handlers share it through a lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, patch};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

#[derive(Clone, Debug, Serialize)]
struct Todo {
    id: u64,
    text: String,
    done: bool,
}

#[derive(Default)]
struct Todos {
    next_id: AtomicU64,
    by_id: RwLock<BTreeMap<u64, Todo>>,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct New {
    text: String,
}

#[derive(Deserialize)]
struct Change {
    text: Option<String>,
    done: Option<bool>,
}

type Shared = State<Arc<Todos>>;

async fn list(State(todos): Shared, Query(page): Query<Page>) -> Json<Vec<Todo>> {
    let todos = todos.by_id.read().unwrap();
    let page = todos.values().skip(page.offset).take(page.limit.unwrap_or(usize::MAX));
    Json(page.cloned().collect())
}

async fn create(State(todos): Shared, Json(new): Json<New>) -> (StatusCode, Json<Todo>) {
    let id = todos.next_id.fetch_add(1, Ordering::Relaxed);
    let todo = Todo { id, text: new.text, done: false };
    todos.by_id.write().unwrap().insert(id, todo.clone());
    (StatusCode::CREATED, Json(todo))
}

async fn change(
    State(todos): Shared,
    Path(id): Path<u64>,
    Json(change): Json<Change>,
) -> Result<Json<Todo>, StatusCode> {
    let mut todos = todos.by_id.write().unwrap();
    let todo = todos.get_mut(&id).ok_or(StatusCode::NOT_FOUND)?;
    if let Some(text) = change.text {
        todo.text = text;
    }
    todo.done = change.done.unwrap_or(todo.done);
    Ok(Json(todo.clone()))
}

async fn remove(State(todos): Shared, Path(id): Path<u64>) -> StatusCode {
    match todos.by_id.write().unwrap().remove(&id) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

/// Answers when another task has changed the list, or not in time.
async fn when_done(State(todos): Shared, Path(id): Path<u64>) -> Result<Json<Todo>, StatusCode> {
    loop {
        let todo = todos.by_id.read().unwrap().get(&id).cloned().ok_or(StatusCode::NOT_FOUND)?;
        if todo.done {
            return Ok(Json(todo));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Who waits for longer than `patience` gets 408.
pub fn router(patience: Duration) -> Router {
    Router::new()
        .route("/todos", get(list).post(create))
        .route("/todos/{id}", patch(change).delete(remove))
        .route("/todos/{id}/done", get(when_done))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, patience))
        .layer(TraceLayer::new_for_http())
        .with_state(Arc::default())
}
