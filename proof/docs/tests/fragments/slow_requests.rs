//! docs/slow-requests.md

#![allow(clippy::explicit_auto_deref)] // A connection of sqlx itself needs it.

/// In the place of sqlx.
mod sqlx {
    use std::io::Error;
    use std::marker::PhantomData;

    pub(super) mod postgres {
        use std::io::Error;

        pub(crate) struct PgConnection;

        #[derive(Clone)]
        pub(crate) struct PgPool;

        impl PgPool {
            pub(crate) async fn acquire(&self) -> Result<Box<PgConnection>, Error> {
                Ok(Box::new(PgConnection))
            }
        }
    }

    pub(super) struct QueryScalar<T>(PhantomData<T>);

    pub(super) fn query_scalar<T>(sql: &str) -> QueryScalar<T> {
        QueryScalar(PhantomData)
    }

    impl<T> QueryScalar<T> {
        pub(super) fn bind<V>(self, value: V) -> Self {
            self
        }

        pub(super) async fn fetch_optional(
            self,
            connection: &mut postgres::PgConnection,
        ) -> Result<Option<T>, Error> {
            Ok(None)
        }
    }
}

use axum::extract::{Path, State};
use axum::http::StatusCode;
use sqlx::postgres::PgPool;
use tracing::{Instrument, info_span};

async fn note(State(pool): State<PgPool>, Path(id): Path<i64>) -> Result<String, StatusCode> {
    let failed = |_| StatusCode::SERVICE_UNAVAILABLE;
    let mut connection = pool.acquire().instrument(info_span!("pool")).await.map_err(failed)?;
    let note = sqlx::query_scalar("SELECT text FROM notes WHERE id = $1").bind(id);
    let note = note.fetch_optional(&mut *connection).instrument(info_span!("query")).await;
    note.map_err(failed)?.ok_or(StatusCode::NOT_FOUND)
}

fn is_a_handler() -> axum::Router<PgPool> {
    axum::Router::new().route("/notes/{id}", axum::routing::get(note))
}

/// The page names it.
fn log() {
    use tracing_subscriber::fmt::format::FmtSpan;

    tracing_subscriber::fmt().with_span_events(FmtSpan::CLOSE).init();
}
