//! What others see of a user, and who follows whom.

use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use sqlx::postgres::PgPool;

use crate::failed::Failed;
use crate::identity::Identity;

#[derive(Serialize, sqlx::FromRow)]
pub struct Profile {
    pub username: String,
    pub bio: String,
    pub image: Option<String>,
    pub following: bool,
}

#[derive(Serialize)]
pub struct Body {
    profile: Profile,
}

type Answer = Result<Json<Body>, Failed>;

async fn seen_by(viewer: Option<i64>, username: &str, pool: &PgPool) -> Answer {
    let profile = sqlx::query_as(
        "SELECT username, bio, image,
         EXISTS (SELECT 1 FROM follows WHERE follower = $1 AND followed = id) AS following
         FROM users WHERE username = $2",
    );
    let profile = profile.bind(viewer).bind(username).fetch_one(pool).await?;
    Ok(Json(Body { profile }))
}

pub async fn profile(
    State(pool): State<PgPool>,
    viewer: Option<Identity>,
    Path(username): Path<String>,
) -> Answer {
    seen_by(viewer.map(|viewer| viewer.0), &username, &pool).await
}

pub async fn follow(
    State(pool): State<PgPool>,
    Identity(viewer): Identity,
    Path(username): Path<String>,
) -> Answer {
    let follow = sqlx::query(
        "INSERT INTO follows SELECT $1, id FROM users WHERE username = $2 ON CONFLICT DO NOTHING",
    );
    follow.bind(viewer).bind(&username).execute(&pool).await?;
    seen_by(Some(viewer), &username, &pool).await
}

pub async fn unfollow(
    State(pool): State<PgPool>,
    Identity(viewer): Identity,
    Path(username): Path<String>,
) -> Answer {
    let unfollow = sqlx::query(
        "DELETE FROM follows WHERE follower = $1
         AND followed = (SELECT id FROM users WHERE username = $2)",
    );
    unfollow.bind(viewer).bind(&username).execute(&pool).await?;
    seen_by(Some(viewer), &username, &pool).await
}
