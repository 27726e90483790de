//! Who asks: tokens, and the hashes of passwords.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use axum::extract::{FromRef, FromRequestParts, OptionalFromRequestParts};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use jsonwebtoken::{DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde::{Deserialize, Serialize};

use crate::failed::Failed;

const VALID_FOR: Duration = Duration::from_secs(14 * 24 * 3600);

pub struct Keys {
    sign: EncodingKey,
    verify: DecodingKey,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    user: i64,
    exp: u64,
}

impl Keys {
    pub fn new(secret: &str) -> Self {
        let secret = secret.as_bytes();
        Self { sign: EncodingKey::from_secret(secret), verify: DecodingKey::from_secret(secret) }
    }

    pub fn token(&self, user: i64) -> Result<String, Failed> {
        let until = SystemTime::now() + VALID_FOR;
        let exp = until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let token = encode(&Header::default(), &Claims { user, exp }, &self.sign);
        token.map_err(|error| Failed::Internal(error.to_string()))
    }
}

/// The number of the user whose token a request shows.
#[derive(Clone, Copy)]
pub struct Identity(pub i64);

impl<S> FromRequestParts<S> for Identity
where
    S: Send + Sync,
    Arc<Keys>: FromRef<S>,
{
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failed> {
        let shown = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token =
            shown.and_then(|value| value.strip_prefix("Token ")).ok_or(Failed::Unauthorized)?;
        let keys = Arc::<Keys>::from_ref(state);
        let claims = decode::<Claims>(token, &keys.verify, &Validation::default());
        Ok(Self(claims.map_err(|_| Failed::Unauthorized)?.claims.user))
    }
}

impl<S> OptionalFromRequestParts<S> for Identity
where
    S: Send + Sync,
    Arc<Keys>: FromRef<S>,
{
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Option<Self>, Failed> {
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Ok(None);
        }
        <Self as FromRequestParts<S>>::from_request_parts(parts, state).await.map(Some)
    }
}

/// The least that is recommended: 19 MiB of memory, twice.
fn argon2() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::default())
}

/// On a thread that may compute for long.
pub async fn hash(password: String) -> Result<String, Failed> {
    let hash = move || {
        let salt = SaltString::generate(&mut OsRng);
        argon2().hash_password(password.as_bytes(), &salt).map(|hash| hash.to_string())
    };
    let hash = tokio::task::spawn_blocking(hash).await?;
    hash.map_err(|error| Failed::Internal(error.to_string()))
}

pub async fn verify(password: String, hash: String) -> Result<(), Failed> {
    let verified = move || {
        let hash = PasswordHash::new(&hash)?;
        argon2().verify_password(password.as_bytes(), &hash)
    };
    let verified = tokio::task::spawn_blocking(verified).await?;
    verified.map_err(|_| Failed::Unauthorized)
}
