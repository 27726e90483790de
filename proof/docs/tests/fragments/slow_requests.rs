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

use tracing_subscriber::fmt::format::FmtSpan;
use wakeful::log::LossyWriter;
use wakeful_http::access_log::AccessLog;
use wakeful_http::observe::{Observe, RequestIds};

fn start_log(log: LossyWriter) {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .log_internal_errors(false)
        .with_env_filter("info,wakeful_http::request=debug")
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || log.clone())
        .init();
}

fn observe(requests: AccessLog) -> Observe {
    Observe::new().access_log(requests).request_ids(RequestIds::Replace)
}

mod tests {
    use std::fs::{self, File};
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use wakeful::log::LossyWriter;
    use wakeful_http::Server;
    use wakeful_http::access_log::{AccessLog, Destination, Format, Query};

    /// For a test that waits in vain.
    const GUARD: Duration = Duration::from_secs(60);

    #[test]
    fn the_line_of_a_wait_has_the_id_of_its_request() {
        let folder = tempfile::tempdir().unwrap();
        let (lines, requests) = (folder.path().join("log"), folder.path().join("requests"));
        let log = LossyWriter::new(File::create(&lines).unwrap());
        super::start_log(log.clone());
        let requests =
            AccessLog::new(Format::Json, Destination::File(requests), Query::Omit).unwrap();
        let server = Server::bind("127.0.0.1:0").unwrap().observe(super::observe(requests));
        let running =
            server.start(super::is_a_handler().with_state(super::sqlx::postgres::PgPool)).unwrap();
        let mut stream = TcpStream::connect(running.local_addrs()[0].to_string()).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        let request = b"GET /notes/7 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let id = answer.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
        assert_eq!(running.shutdown(GUARD).unwrap(), 0);
        drop(log.flush_on_drop(GUARD));
        let lines = fs::read_to_string(lines).unwrap();
        for span in [":pool: ", ":query: ", "request{"] {
            let its = |line: &&str| {
                line.contains(span) && line.contains(id) && line.contains("time.idle=")
            };
            assert!(lines.lines().any(|line| its(&line)), "{span}: {lines}");
        }
    }
}
