//! What a handler answers when it cannot do what it was asked.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

pub enum Failed {
    NotFound,
    Unauthorized,
    Forbidden,
    /// A field, and what is wrong with it.
    Invalid(&'static str, &'static str),
    Internal(String),
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::RowNotFound => Self::NotFound,
            sqlx::Error::Database(refused) => match refused.constraint() {
                Some("users_username_key") => Self::Invalid("username", "has been taken"),
                Some("users_email_key") => Self::Invalid("email", "has been taken"),
                Some("articles_slug_key") => Self::Invalid("title", "has been taken"),
                _ if refused.is_check_violation() => Self::Invalid("body", "is empty"),
                _ => Self::Internal(error.to_string()),
            },
            _ => Self::Internal(error.to_string()),
        }
    }
}

impl From<tokio::task::JoinError> for Failed {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND.into_response(),
            Self::Unauthorized => StatusCode::UNAUTHORIZED.into_response(),
            Self::Forbidden => StatusCode::FORBIDDEN.into_response(),
            Self::Invalid(field, wrong) => {
                let errors = Json(json!({ "errors": { field: [wrong] } }));
                (StatusCode::UNPROCESSABLE_ENTITY, errors).into_response()
            }
            Self::Internal(what) => {
                eprintln!("{what}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}
