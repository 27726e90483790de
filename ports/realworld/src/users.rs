//! Accounts.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPool;

use crate::failed::Failed;
use crate::identity::{Identity, Keys, hash, verify};

#[derive(Deserialize, Serialize)]
pub struct Body<T> {
    user: T,
}

#[derive(Deserialize)]
pub struct Registration {
    username: String,
    email: String,
    password: String,
}

#[derive(Deserialize)]
pub struct Login {
    email: String,
    password: String,
}

#[derive(Deserialize)]
pub struct Update {
    username: Option<String>,
    email: Option<String>,
    password: Option<String>,
    bio: Option<String>,
    image: Option<String>,
}

#[derive(Serialize)]
pub struct Account {
    username: String,
    email: String,
    bio: String,
    image: Option<String>,
    token: String,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: i64,
    username: String,
    email: String,
    password_hash: String,
    bio: String,
    image: Option<String>,
}

type Answer = Result<Json<Body<Account>>, Failed>;

fn account(row: Row, keys: &Keys) -> Answer {
    let token = keys.token(row.id)?;
    let Row { username, email, bio, image, .. } = row;
    Ok(Json(Body { user: Account { username, email, bio, image, token } }))
}

pub async fn register(
    State(pool): State<PgPool>,
    State(keys): State<Arc<Keys>>,
    Json(Body { user }): Json<Body<Registration>>,
) -> Result<(StatusCode, Json<Body<Account>>), Failed> {
    if user.username.is_empty() {
        return Err(Failed::Invalid("username", "is empty"));
    }
    let hash = hash(user.password).await?;
    let row = sqlx::query_as(
        "INSERT INTO users (username, email, password_hash) VALUES ($1, $2, $3) RETURNING *",
    );
    let row = row.bind(user.username).bind(user.email).bind(hash).fetch_one(&pool).await?;
    Ok((StatusCode::CREATED, account(row, &keys)?))
}

pub async fn log_in(
    State(pool): State<PgPool>,
    State(keys): State<Arc<Keys>>,
    Json(Body { user }): Json<Body<Login>>,
) -> Answer {
    let row = sqlx::query_as("SELECT * FROM users WHERE email = $1").bind(user.email);
    let row: Option<Row> = row.fetch_optional(&pool).await?;
    let row = row.ok_or(Failed::Unauthorized)?;
    verify(user.password, row.password_hash.clone()).await?;
    account(row, &keys)
}

pub async fn current(
    State(pool): State<PgPool>,
    State(keys): State<Arc<Keys>>,
    Identity(id): Identity,
) -> Answer {
    let row = sqlx::query_as("SELECT * FROM users WHERE id = $1").bind(id);
    account(row.fetch_optional(&pool).await?.ok_or(Failed::Unauthorized)?, &keys)
}

pub async fn update(
    State(pool): State<PgPool>,
    State(keys): State<Arc<Keys>>,
    Identity(id): Identity,
    Json(Body { user }): Json<Body<Update>>,
) -> Answer {
    let hash = match user.password {
        Some(password) => Some(hash(password).await?),
        None => None,
    };
    let row = sqlx::query_as(
        "UPDATE users SET username = coalesce($2, username), email = coalesce($3, email),
         password_hash = coalesce($4, password_hash), bio = coalesce($5, bio), image = coalesce($6, image)
         WHERE id = $1 RETURNING *",
    );
    let row = row.bind(id).bind(user.username).bind(user.email).bind(hash).bind(user.bio);
    account(row.bind(user.image).fetch_one(&pool).await?, &keys)
}
