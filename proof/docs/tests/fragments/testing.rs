//! docs/testing.md

mod sqlx {
    //! In the place of sqlx. It needs Tokio's timers, and so a guest.

    use std::collections::BTreeMap;
    use std::io::Error;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    pub(super) mod postgres {
        pub(crate) use super::{PgPool, PgPoolOptions};
    }

    #[derive(Clone, Default)]
    pub(crate) struct PgPool(Arc<Mutex<BTreeMap<i64, String>>>);

    pub(crate) struct PgPoolOptions;

    impl PgPoolOptions {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn max_connections(self, _: u32) -> Self {
            self
        }

        pub(crate) async fn connect(self, _: &str) -> Result<PgPool, Error> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(PgPool::default())
        }
    }

    pub(crate) struct Query(i64, String);

    pub(super) fn query(_: &str) -> Query {
        Query(0, String::new())
    }

    pub(super) fn query_scalar(_: &str) -> Query {
        Query(0, String::new())
    }

    pub(crate) trait Value {
        fn set(self, query: &mut Query);
    }

    impl Value for i64 {
        fn set(self, query: &mut Query) {
            query.0 = self;
        }
    }

    impl Value for &str {
        fn set(self, query: &mut Query) {
            self.clone_into(&mut query.1);
        }
    }

    impl Query {
        pub(crate) fn bind(mut self, value: impl Value) -> Self {
            value.set(&mut self);
            self
        }

        pub(crate) async fn execute(self, pool: &PgPool) -> Result<(), Error> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            pool.0.lock().unwrap().insert(self.0, self.1);
            Ok(())
        }

        pub(crate) async fn fetch_optional(self, pool: &PgPool) -> Result<Option<String>, Error> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(pool.0.lock().unwrap().get(&self.0).cloned())
        }
    }
}

/// Of docs/getting-started.md.
fn router(pool: PgPool) -> Router {
    use axum::extract::{Path, State};

    async fn note(State(pool): State<PgPool>, Path(id): Path<i64>) -> Result<String, StatusCode> {
        let note = sqlx::query_scalar("SELECT text FROM notes WHERE id = $1").bind(id);
        match note.fetch_optional(&pool).await {
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err(StatusCode::NOT_FOUND),
            Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    Router::new().route("/notes/{id}", get(note)).with_state(pool)
}

fn database() -> String {
    "postgres://notes".to_owned()
}

use std::time::Instant;

use wakeful_http::drain_begins;

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use axum::routing::get;
use http_body_util::{BodyExt, Empty};
use tower::ServiceExt;
use wakeful::LoopGroup;
use wakeful::net::PeerAddr;
use wakeful_http::client::Client;
use wakeful_http::layers::TimeoutLayer;
use wakeful_http::{DrainPlan, Peer, Server};

async fn who(peer: Peer) -> String {
    format!("{}\n", peer.addr)
}

async fn never() {
    std::future::pending::<()>().await;
}

fn app() -> Router {
    let never = get(never).layer(TimeoutLayer::new(Duration::from_secs(5)));
    Router::new().route("/who", get(who)).route("/never", never)
}

use sqlx::postgres::{PgPool, PgPoolOptions};

#[wakeful::test(tokio)]
async fn a_note_comes_from_the_database() -> Result<(), Box<dyn Error>> {
    let pool: PgPool = PgPoolOptions::new().max_connections(2).connect(&database()).await?;
    let note = sqlx::query("INSERT INTO notes VALUES ($1, $2) ON CONFLICT DO NOTHING");
    note.bind(7_i64).bind("buy milk").execute(&pool).await?;
    let server = Server::bind("127.0.0.1:0")?.group(LoopGroup::builder().loops(1)).tokio();
    let running = server.start(router(pool))?;
    let client = Client::<Empty<Bytes>>::new();
    let url = format!("http://{}/notes/7", running.local_addrs()[0]);
    let response = client.send(Request::get(url).body(Empty::new())?).await?;
    assert_eq!(response.into_body().collect().await?.to_bytes(), "buy milk");
    drop(client);
    assert_eq!(running.drained(DrainPlan::new()).await?, 0, "no connection was aborted");
    Ok(())
}

#[wakeful::test]
async fn the_server_says_who_asks() -> Result<(), Box<dyn Error>> {
    let server = Server::bind("127.0.0.1:0")?.group(LoopGroup::builder().loops(1));
    let running = server.start(app())?;
    let client = Client::<Empty<Bytes>>::new();
    let url = format!("http://{}/who", running.local_addrs()[0]);
    let response = client.send(Request::get(url).body(Empty::new())?).await?;
    assert_eq!(response.status(), StatusCode::OK);
    let text = response.into_body().collect().await?.to_bytes();
    assert!(text.starts_with(b"127.0.0.1:"));
    drop(client); // Its connection closes, so the drain need not wait for a last request.
    assert_eq!(running.drained(DrainPlan::new()).await?, 0, "no connection was aborted");
    Ok(())
}

#[wakeful::test]
async fn the_router_says_who_asks() -> Result<(), Box<dyn Error>> {
    let peer = Peer::new(PeerAddr::Tcp("192.0.2.7:4711".parse()?));
    let request = Request::get("/who").extension(peer).body(Body::empty())?;
    let response = app().oneshot(request).await?;
    let text = response.into_body().collect().await?.to_bytes();
    assert_eq!(text, "192.0.2.7:4711\n");
    Ok(())
}

#[wakeful::test(start_paused)]
async fn a_handler_that_never_answers_gets_503() -> Result<(), Box<dyn Error>> {
    let start = wakeful::time::now();
    let response = app().oneshot(Request::get("/never").body(Body::empty())?).await?;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(wakeful::time::now() - start, Duration::from_secs(5));
    Ok(())
}

/// What the page says is different without a server, and where no loop runs.
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use futures_util::FutureExt;
    use wakeful::time::{sleep, timeout};

    use super::*;

    #[wakeful::test]
    async fn without_a_server_there_is_no_peer_no_drain_and_no_answer_to_a_panic() {
        let request = || Request::get("/who").body(Body::empty()).unwrap();
        let response = app().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(timeout(Duration::from_millis(1), drain_begins()).await.is_err());
        let panics = Router::new().route("/who", get(async || -> () { panic!("on purpose") }));
        let response = AssertUnwindSafe(panics.oneshot(request())).catch_unwind().await;
        assert!(response.is_err());
    }

    #[wakeful::test]
    async fn a_loop_runs_no_other_one() {
        assert!(catch_unwind(|| wakeful::block_on(async {})).is_err());
    }

    #[test]
    fn what_needs_a_loop_panics_without_one() {
        let response = app().oneshot(Request::get("/never").body(Body::empty()).unwrap());
        let waits = || futures_util::FutureExt::now_or_never(response);
        assert!(catch_unwind(AssertUnwindSafe(waits)).is_err());
    }

    #[wakeful::test(tokio, start_paused)]
    async fn a_guest_shares_the_paused_clock() {
        let (start, tokio_s) = (wakeful::time::now(), tokio::time::Instant::now());
        tokio::time::sleep(Duration::from_secs(10)).await;
        sleep(Duration::from_secs(10)).await;
        assert!(wakeful::time::now() - start >= Duration::from_secs(20));
        assert_eq!(wakeful::time::now() - start, tokio_s.elapsed());
    }

    #[wakeful::test(start_paused)]
    async fn a_paused_clock_does_not_wait_for_a_server_s_loops() {
        let server = Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(1));
        let running = server.start(Router::new().route("/never", get(never))).unwrap();
        let client = Client::<Empty<Bytes>>::new();
        let url = format!("http://{}/never", running.local_addrs()[0]);
        let request = Request::get(url).body(Empty::new()).unwrap();
        let answer = timeout(Duration::from_secs(3600), client.send(request)).await;
        // An hour, or the client's own time limit, takes no time.
        assert!(!matches!(answer, Ok(Ok(_))), "{answer:?}");
    }
}

struct Lease(Instant);

impl Lease {
    fn take() -> Self {
        Self(now() + Duration::from_secs(3600))
    }

    fn is_held(&self) -> bool {
        now() < self.0
    }
}

use wakeful::time::{now, sleep};

#[wakeful::test(start_paused)]
async fn a_lease_ends_after_an_hour() {
    let (start, lease) = (now(), Lease::take());
    sleep(Duration::from_secs(3599)).await; // takes no time
    assert!(lease.is_held());
    sleep(Duration::from_secs(1)).await;
    assert!(!lease.is_held());
    assert_eq!(now() - start, Duration::from_secs(3600));
}
