//! Articles, those who like them, and their tags.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPool;

use crate::failed::Failed;
use crate::identity::Identity;
use crate::profiles::Profile;

#[derive(Serialize, sqlx::FromRow)]
#[serde(rename_all = "camelCase")]
pub struct Article {
    slug: String,
    title: String,
    description: String,
    body: String,
    tag_list: Vec<String>,
    created_at: String,
    updated_at: String,
    favorited: bool,
    favorites_count: i64,
    #[sqlx(flatten)]
    author: Profile,
}

#[derive(Deserialize, Serialize)]
pub struct One<T> {
    article: T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Many {
    articles_count: usize,
    articles: Vec<Article>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct New {
    title: String,
    description: String,
    body: String,
    #[serde(default)]
    tag_list: Vec<String>,
}

#[derive(Deserialize)]
pub struct Update {
    title: Option<String>,
    description: Option<String>,
    body: Option<String>,
}

#[derive(Default, Deserialize)]
pub struct Filter {
    tag: Option<String>,
    author: Option<String>,
    favorited: Option<String>,
    #[serde(skip)]
    slug: Option<String>,
    /// Only of those whom the viewer follows.
    #[serde(skip)]
    followed: bool,
    limit: Option<i64>,
    offset: Option<i64>,
}

const SELECT: &str = r#"
    SELECT slug, title, description, body, tags AS tag_list, favorited, favorites_count,
        to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at,
        to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS updated_at,
        username, bio, image, following
    FROM articles JOIN users ON users.id = articles.author,
    LATERAL (
        SELECT count(*) AS favorites_count, coalesce(bool_or(reader = $1), false) AS favorited
        FROM favorites WHERE article = articles.id
    ) AS favorites,
    LATERAL (
        SELECT count(*) > 0 AS following FROM follows WHERE follower = $1 AND followed = users.id
    ) AS follows
    WHERE ($2::TEXT IS NULL OR $2 = ANY (tags))
        AND ($3::TEXT IS NULL OR username = $3)
        AND ($4::TEXT IS NULL OR EXISTS (
            SELECT 1 FROM favorites JOIN users AS readers ON readers.id = reader
            WHERE article = articles.id AND readers.username = $4
        ))
        AND ($5::TEXT IS NULL OR slug = $5)
        AND (NOT $6 OR following)
    ORDER BY articles.created_at DESC, articles.id DESC
    LIMIT $7 OFFSET $8
"#;

async fn select(
    viewer: Option<Identity>,
    filter: Filter,
    pool: &PgPool,
) -> Result<Vec<Article>, Failed> {
    let articles = sqlx::query_as(SELECT)
        .bind(viewer.map(|viewer| viewer.0))
        .bind(filter.tag)
        .bind(filter.author)
        .bind(filter.favorited)
        .bind(filter.slug)
        .bind(filter.followed)
        .bind(filter.limit.unwrap_or(20))
        .bind(filter.offset.unwrap_or(0));
    Ok(articles.fetch_all(pool).await?)
}

type Answer = Result<Json<One<Article>>, Failed>;

async fn by_slug(viewer: Option<Identity>, slug: String, pool: &PgPool) -> Answer {
    let filter = Filter { slug: Some(slug), ..Filter::default() };
    let article = select(viewer, filter, pool).await?.pop().ok_or(Failed::NotFound)?;
    Ok(Json(One { article }))
}

fn slug(title: &str) -> String {
    let words = title.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

pub async fn list(
    State(pool): State<PgPool>,
    viewer: Option<Identity>,
    Query(filter): Query<Filter>,
) -> Result<Json<Many>, Failed> {
    let articles = select(viewer, filter, &pool).await?;
    Ok(Json(Many { articles_count: articles.len(), articles }))
}

pub async fn feed(
    pool: State<PgPool>,
    viewer: Identity,
    Query(filter): Query<Filter>,
) -> Result<Json<Many>, Failed> {
    list(pool, Some(viewer), Query(Filter { followed: true, ..filter })).await
}

pub async fn read(
    State(pool): State<PgPool>,
    viewer: Option<Identity>,
    Path(slug): Path<String>,
) -> Answer {
    by_slug(viewer, slug, &pool).await
}

pub async fn create(
    State(pool): State<PgPool>,
    author: Identity,
    Json(One { article }): Json<One<New>>,
) -> Result<(StatusCode, Json<One<Article>>), Failed> {
    let slug = slug(&article.title);
    let insert = sqlx::query(
        "INSERT INTO articles (author, slug, title, description, body, tags)
         VALUES ($1, $2, $3, $4, $5, $6)",
    );
    let insert = insert.bind(author.0).bind(&slug).bind(article.title).bind(article.description);
    insert.bind(article.body).bind(article.tag_list).execute(&pool).await?;
    Ok((StatusCode::CREATED, by_slug(Some(author), slug, &pool).await?))
}

/// Is it there, and this user's?
async fn check_author(author: Identity, slug: &str, pool: &PgPool) -> Result<(), Failed> {
    let id = sqlx::query_scalar("SELECT author FROM articles WHERE slug = $1").bind(slug);
    let id: i64 = id.fetch_one(pool).await?;
    if id == author.0 { Ok(()) } else { Err(Failed::Forbidden) }
}

pub async fn update(
    State(pool): State<PgPool>,
    author: Identity,
    Path(old_slug): Path<String>,
    Json(One { article }): Json<One<Update>>,
) -> Answer {
    check_author(author, &old_slug, &pool).await?;
    let new_slug = article.title.as_deref().map_or_else(|| old_slug.clone(), slug);
    let update = sqlx::query(
        "UPDATE articles SET slug = $2, title = coalesce($3, title),
         description = coalesce($4, description), body = coalesce($5, body), updated_at = now()
         WHERE slug = $1",
    );
    let update = update.bind(old_slug).bind(&new_slug).bind(article.title);
    update.bind(article.description).bind(article.body).execute(&pool).await?;
    by_slug(Some(author), new_slug, &pool).await
}

pub async fn remove(
    State(pool): State<PgPool>,
    author: Identity,
    Path(slug): Path<String>,
) -> Result<StatusCode, Failed> {
    check_author(author, &slug, &pool).await?;
    sqlx::query("DELETE FROM articles WHERE slug = $1").bind(slug).execute(&pool).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn favorite(
    State(pool): State<PgPool>,
    reader: Identity,
    Path(slug): Path<String>,
) -> Answer {
    let favorite = sqlx::query(
        "INSERT INTO favorites SELECT $1, id FROM articles WHERE slug = $2 ON CONFLICT DO NOTHING",
    );
    favorite.bind(reader.0).bind(&slug).execute(&pool).await?;
    by_slug(Some(reader), slug, &pool).await
}

pub async fn unfavorite(
    State(pool): State<PgPool>,
    reader: Identity,
    Path(slug): Path<String>,
) -> Answer {
    let unfavorite = sqlx::query(
        "DELETE FROM favorites WHERE reader = $1
         AND article = (SELECT id FROM articles WHERE slug = $2)",
    );
    unfavorite.bind(reader.0).bind(&slug).execute(&pool).await?;
    by_slug(Some(reader), slug, &pool).await
}

#[derive(Serialize)]
pub struct Tags {
    tags: Vec<String>,
}

pub async fn tags(State(pool): State<PgPool>) -> Result<Json<Tags>, Failed> {
    let tags = sqlx::query_scalar("SELECT DISTINCT unnest(tags) AS tag FROM articles ORDER BY tag");
    Ok(Json(Tags { tags: tags.fetch_all(&pool).await? }))
}
