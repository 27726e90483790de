//! Who logs in gets a token, and who shows one is let in.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{FromRef, FromRequestParts, State};
use axum::http::{StatusCode, request::Parts};
use axum::routing::{get, post};
use axum::{Json, Router};
use axum_extra::TypedHeader;
use axum_extra::headers::Authorization;
use axum_extra::headers::authorization::Bearer;
use jsonwebtoken::{DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde::{Deserialize, Serialize};

#[derive(Clone)]
struct Keys(Arc<(EncodingKey, DecodingKey)>);

#[derive(Deserialize)]
struct Credentials {
    name: String,
    password: String,
}

/// What a token says. As an argument of a handler it is a login.
#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    exp: u64,
}

#[derive(Serialize)]
struct Token {
    token: String,
    kind: &'static str,
}

impl<S> FromRequestParts<S> for Claims
where
    S: Send + Sync,
    Keys: FromRef<S>,
{
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let shown = TypedHeader::<Authorization<Bearer>>::from_request_parts(parts, state).await;
        let TypedHeader(shown) = shown.map_err(|_| (StatusCode::UNAUTHORIZED, "no token"))?;
        let keys = Keys::from_ref(state);
        let token = decode::<Self>(shown.token(), &keys.0.1, &Validation::default());
        Ok(token.map_err(|_| (StatusCode::UNAUTHORIZED, "not a token of ours"))?.claims)
    }
}

async fn log_in(
    State(keys): State<Keys>,
    Json(credentials): Json<Credentials>,
) -> Result<Json<Token>, StatusCode> {
    if credentials.password != format!("the password of {}", credentials.name) {
        return Err(StatusCode::FORBIDDEN);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let until = now + Duration::from_secs(600);
    let claims = Claims { sub: credentials.name, exp: until.as_secs() };
    // A signature takes CPU time, for which there are threads.
    let token = tokio::task::spawn_blocking(move || encode(&Header::default(), &claims, &keys.0.0));
    match token.await {
        Ok(Ok(token)) => Ok(Json(Token { token, kind: "Bearer" })),
        _ => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

async fn account(claims: Claims) -> String {
    format!("the account of {}", claims.sub)
}

pub fn router(secret: &[u8]) -> Router {
    let keys = (EncodingKey::from_secret(secret), DecodingKey::from_secret(secret));
    Router::new()
        .route("/login", post(log_in))
        .route("/account", get(account))
        .with_state(Keys(Arc::new(keys)))
}
