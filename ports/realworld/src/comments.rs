//! What readers say below an article.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPool;

use crate::failed::Failed;
use crate::identity::Identity;
use crate::profiles::Profile;

#[derive(Serialize, sqlx::FromRow)]
#[serde(rename_all = "camelCase")]
pub struct Comment {
    id: i64,
    body: String,
    created_at: String,
    updated_at: String,
    #[sqlx(flatten)]
    author: Profile,
}

#[derive(Deserialize)]
pub struct New {
    body: String,
}

#[derive(Deserialize, Serialize)]
pub struct One<T> {
    comment: T,
}

#[derive(Serialize)]
pub struct Many {
    comments: Vec<Comment>,
}

const SELECT: &str = r#"
    SELECT comments.id, comments.body, username, bio, image,
        to_char(comments.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
        to_char(comments.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS updated_at,
        EXISTS (SELECT 1 FROM follows WHERE follower = $1 AND followed = users.id) AS following
    FROM comments JOIN users ON users.id = comments.author
    JOIN articles ON articles.id = comments.article
    WHERE slug = $2 AND ($3::BIGINT IS NULL OR comments.id = $3)
    ORDER BY comments.id
"#;

async fn select(
    viewer: Option<Identity>,
    slug: &str,
    id: Option<i64>,
    pool: &PgPool,
) -> Result<Vec<Comment>, Failed> {
    let comments = sqlx::query_as(SELECT).bind(viewer.map(|viewer| viewer.0)).bind(slug).bind(id);
    Ok(comments.fetch_all(pool).await?)
}

pub async fn list(
    State(pool): State<PgPool>,
    viewer: Option<Identity>,
    Path(slug): Path<String>,
) -> Result<Json<Many>, Failed> {
    Ok(Json(Many { comments: select(viewer, &slug, None, &pool).await? }))
}

pub async fn create(
    State(pool): State<PgPool>,
    author: Identity,
    Path(slug): Path<String>,
    Json(One { comment }): Json<One<New>>,
) -> Result<(StatusCode, Json<One<Comment>>), Failed> {
    let id = sqlx::query_scalar(
        "INSERT INTO comments (article, author, body)
         SELECT id, $1, $2 FROM articles WHERE slug = $3 RETURNING id",
    );
    let id = id.bind(author.0).bind(comment.body).bind(&slug).fetch_one(&pool).await?;
    let comment = select(Some(author), &slug, Some(id), &pool).await?.pop();
    Ok((StatusCode::CREATED, Json(One { comment: comment.ok_or(Failed::NotFound)? })))
}

pub async fn remove(
    State(pool): State<PgPool>,
    author: Identity,
    Path((slug, id)): Path<(String, i64)>,
) -> Result<StatusCode, Failed> {
    let mut transaction = pool.begin().await?;
    let of = sqlx::query_scalar(
        "SELECT comments.author FROM comments JOIN articles ON articles.id = comments.article
         WHERE slug = $1 AND comments.id = $2 FOR UPDATE",
    );
    let of: i64 = of.bind(slug).bind(id).fetch_one(&mut *transaction).await?;
    if of != author.0 {
        return Err(Failed::Forbidden);
    }
    sqlx::query("DELETE FROM comments WHERE id = $1").bind(id).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
