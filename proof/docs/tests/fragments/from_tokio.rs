//! docs/from-tokio.md

/// In the place of sqlx.
mod sqlx {
    use std::io::Error;
    use std::marker::PhantomData;

    pub(super) use postgres::{PgPool, PgPoolOptions};

    pub(super) mod postgres {
        use std::io::Error;

        #[derive(Clone)]
        pub(crate) struct PgPool;

        #[derive(Clone)]
        pub(crate) struct PgPoolOptions;

        impl PgPoolOptions {
            pub(crate) fn new() -> Self {
                Self
            }

            pub(crate) fn max_connections(self, max: u32) -> Self {
                self
            }

            pub(crate) fn acquire_timeout(self, time: std::time::Duration) -> Self {
                self
            }

            pub(crate) async fn connect(self, url: &str) -> Result<PgPool, Error> {
                Ok(PgPool)
            }

            pub(crate) fn connect_lazy(self, url: &str) -> Result<PgPool, Error> {
                Ok(PgPool)
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

        pub(super) async fn fetch_optional(self, pool: &PgPool) -> Result<Option<T>, Error> {
            Ok(None)
        }
    }
}

/// In the place of reqwest.
mod reqwest {
    use std::io::Error;
    use std::time::Duration;

    #[derive(Clone)]
    pub(super) struct Client;

    impl Client {
        pub(super) fn builder() -> ClientBuilder {
            ClientBuilder
        }

        pub(super) fn get(&self, url: String) -> RequestBuilder {
            RequestBuilder
        }
    }

    pub(super) struct ClientBuilder;

    impl ClientBuilder {
        pub(super) fn connect_timeout(self, time: Duration) -> Self {
            self
        }

        pub(super) fn timeout(self, time: Duration) -> Self {
            self
        }

        pub(super) fn build(self) -> Result<Client, Error> {
            Ok(Client)
        }
    }

    pub(super) struct RequestBuilder;

    impl RequestBuilder {
        pub(super) async fn send(self) -> Result<Response, Error> {
            Ok(Response)
        }
    }

    pub(super) struct Response;

    impl Response {
        pub(super) fn error_for_status(self) -> Result<Self, Error> {
            Ok(self)
        }

        pub(super) async fn text(self) -> Result<String, Error> {
            Ok(String::new())
        }
    }
}

/// In the place of redis.
mod redis {
    use std::io::Error;

    pub(super) struct Client;

    impl Client {
        pub(super) fn open(url: &str) -> Result<Self, Error> {
            Ok(Self)
        }

        pub(super) fn get_connection_manager_lazy(
            &self,
            settings: aio::ConnectionManagerConfig,
        ) -> Result<aio::ConnectionManager, Error> {
            Ok(aio::ConnectionManager)
        }
    }

    pub(super) trait AsyncCommands {
        async fn incr<T: From<i32>>(&mut self, key: &str, by: i32) -> Result<T, Error>;
    }

    pub(super) mod aio {
        #[derive(Clone)]
        pub(crate) struct ConnectionManager;

        impl super::AsyncCommands for ConnectionManager {
            async fn incr<T: From<i32>>(&mut self, key: &str, by: i32) -> Result<T, super::Error> {
                Ok(by.into())
            }
        }

        pub(crate) struct ConnectionManagerConfig;

        impl ConnectionManagerConfig {
            pub(crate) fn new() -> Self {
                Self
            }
        }
    }
}

fn router(pool: sqlx::PgPool) -> axum::Router {
    axum::Router::new()
}

mod axum_serve {
    use axum::Router;
    use axum::routing::get;

    async fn handler() {}

    fn main() -> std::io::Result<()> {
        let app = Router::new().route("/", get(handler));
        wakeful_http::Server::bind("0.0.0.0:8080")?.tokio().serve(app)
    }
}

mod tonic_serve {
    use std::net::SocketAddr;

    use wakeful_http::grpc::GrpcService;

    fn start(addr: SocketAddr) -> std::io::Result<()> {
        let (_, greeter) = wakeful_http::grpc::health_reporter();
        wakeful_http::Server::bind(addr)?.tokio().serve(GrpcService::new(greeter))?;
        Ok(())
    }
}

mod sockets {
    use std::error::Error;

    async fn serve(stream: tokio::net::TcpStream) -> std::io::Result<()> {
        Ok(())
    }

    async fn accept(listener: tokio::net::TcpListener) -> Result<(), Box<dyn Error>> {
        let group = wakeful::LoopGroup::builder().tokio().build()?;
        let mut loops = group.handles().to_vec().into_iter().cycle();
        loop {
            let (stream, _) = listener.accept().await?;
            let stream = stream.into_std()?;
            let next = loops.next().expect("a group has a loop");
            next.spawn(
                move || async move { serve(tokio::net::TcpStream::from_std(stream)?).await },
            )?
            .detach();
        }
    }
}

mod async_main {
    use std::error::Error;

    use super::router;
    use super::sqlx::PgPoolOptions;

    #[wakeful::main(tokio)]
    async fn main() -> Result<(), Box<dyn Error>> {
        let pool = PgPoolOptions::new().connect(&url).await?;
        let app = router(pool);
        wakeful_http::Server::bind(addr)?.tokio().run(app).await?;
        Ok(())
    }

    #[allow(non_upper_case_globals)]
    const url: String = String::new();
    #[allow(non_upper_case_globals)]
    const addr: &str = "127.0.0.1:8080";
}

mod tokio_main {
    use std::error::Error;

    use super::router;
    use super::sqlx::PgPoolOptions;

    #[tokio::main]
    async fn main() -> Result<(), Box<dyn Error>> {
        let pool = PgPoolOptions::new().connect(&url).await?;
        let app = router(pool);
        wakeful_http::Server::bind(addr)?.tokio().serve(app)?;
        Ok(())
    }

    #[allow(non_upper_case_globals)]
    const url: String = String::new();
    #[allow(non_upper_case_globals)]
    const addr: &str = "127.0.0.1:8080";
}

mod with_sqlx {
    use super::sqlx;

    use std::env;
    use std::error::Error;
    use std::io;
    use std::time::Duration;

    use axum::Router;
    use axum::extract::{Path, State};
    use axum::http::StatusCode;
    use axum::routing::get;
    use sqlx::postgres::{PgPool, PgPoolOptions};
    use wakeful::log::{LossyWriter, report_panics};

    async fn note(State(pool): State<PgPool>, Path(id): Path<i64>) -> Result<String, StatusCode> {
        let note = sqlx::query_scalar("SELECT text FROM notes WHERE id = $1").bind(id);
        match note.fetch_optional(&pool).await {
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err(StatusCode::NOT_FOUND),
            Err(error) => {
                tracing::error!(id, %error, "cannot read a note");
                Err(StatusCode::SERVICE_UNAVAILABLE)
            }
        }
    }

    #[wakeful::main(tokio)]
    async fn main() -> Result<(), Box<dyn Error>> {
        let log = LossyWriter::new(io::stderr());
        report_panics(&log);
        let _flush = log.flush_on_drop(Duration::from_secs(1));
        tracing_subscriber::fmt().with_writer(move || log.clone()).init();

        let url = env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set")?;
        let pool = PgPoolOptions::new().max_connections(20).acquire_timeout(Duration::from_secs(5));
        let pool = pool.connect(&url).await?;
        let app = Router::new().route("/notes/{id}", get(note)).with_state(pool);
        wakeful_http::Server::bind("0.0.0.0:8080")?.tokio().run(app).await?;
        Ok(())
    }
}

mod parked_main {
    use super::{router, sqlx};

    use std::env;
    use std::error::Error;

    use sqlx::postgres::PgPoolOptions;
    use wakeful::{EventLoop, IdlePolicy, LoopGroup};
    use wakeful_http::Server;

    fn main() -> Result<(), Box<dyn Error>> {
        let parks = || EventLoop::builder().idle(IdlePolicy::Park);
        parks().tokio().build()?.block_on(async {
            let url = env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set")?;
            let pool = PgPoolOptions::new().max_connections(20).connect(&url).await?;
            let app = router(pool);
            let group = LoopGroup::builder().event_loop(parks());
            Server::bind("0.0.0.0:8080")?.group(group).tokio().run(app).await?;
            Ok(())
        })?
    }
}

mod with_sqlx_in_workers {
    use std::env;
    use std::error::Error;
    use std::process::ExitCode;
    use std::time::Duration;

    use axum::Router;
    use axum::extract::State;
    use axum::routing::get;
    use wakeful::{LoopGroup, PerLoop};
    use wakeful_http::{Running, Server};
    use wakeful_workers::{Master, Role};

    use super::sqlx::postgres::{PgPool, PgPoolOptions};

    async fn note(State(pools): State<PerLoop<PgPool>>) {
        let pool = pools.with(Clone::clone);
        std::future::ready(pool).await;
    }

    fn start() -> Result<ExitCode, Box<dyn Error>> {
        let group = LoopGroup::builder().loops(1).tokio();
        let master = Master::new(group.clone()).listen(["0.0.0.0:8080".parse()?]).workers(4);
        let mut worker = match master.run()? {
            Role::Worker(worker) => worker,
            Role::Ended(code) => return Ok(code),
        };
        let group = group.heartbeats(worker.heartbeats()).sibling(worker.sibling());
        let server = Server::from_listeners(worker.listeners()?).group(group);
        let url = env::var("DATABASE_URL")?;
        let options = PgPoolOptions::new().max_connections(5);
        let pools =
            PerLoop::new(move || options.clone().connect_lazy(&url).expect("a URL of PostgreSQL"));
        let app = Router::new().route("/notes/{id}", get(note)).with_state(pools);
        worker.serve(
            || server.start(app),
            Running::failure,
            |running| running.shutdown(Duration::from_secs(10)),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

mod two_backends {
    use super::{reqwest, sqlx};

    use std::env;
    use std::error::Error;
    use std::time::Duration;

    use axum::Router;
    use axum::extract::{Path, State};
    use axum::http::StatusCode;
    use axum::routing::get;
    use sqlx::postgres::{PgPool, PgPoolOptions};
    use tokio::time::timeout;
    use wakeful_http::Server;

    #[derive(Clone)]
    struct App {
        pool: PgPool,
        client: reqwest::Client,
    }

    async fn author(State(app): State<App>, Path(id): Path<i64>) -> Result<String, StatusCode> {
        let author = sqlx::query_scalar("SELECT author FROM notes WHERE id = $1").bind(id);
        let author = timeout(Duration::from_secs(1), author.fetch_optional(&app.pool)).await;
        let author: i64 = match author {
            Ok(Ok(author)) => author.ok_or(StatusCode::NOT_FOUND)?,
            Ok(Err(_)) | Err(_) => return Err(StatusCode::SERVICE_UNAVAILABLE),
        };
        let request = app.client.get(format!("http://127.0.0.1:8081/authors/{author}"));
        let response = request.send().await.and_then(reqwest::Response::error_for_status);
        let response = response.map_err(|_| StatusCode::BAD_GATEWAY)?;
        response.text().await.map_err(|_| StatusCode::BAD_GATEWAY)
    }

    #[wakeful::main(tokio)]
    async fn main() -> Result<(), Box<dyn Error>> {
        let url = env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set")?;
        let options = PgPoolOptions::new().max_connections(20);
        let pool = options.acquire_timeout(Duration::from_secs(1)).connect(&url).await?;
        let client = reqwest::Client::builder().connect_timeout(Duration::from_secs(1));
        let client = client.timeout(Duration::from_secs(5)).build()?;
        let app = Router::new().route("/notes/{id}/author", get(author));
        let app = app.with_state(App { pool, client });
        Server::bind("0.0.0.0:8080")?.tokio().run(app).await?;
        Ok(())
    }
}

mod redis_service {
    use super::redis;

    use std::error::Error;

    use axum::Router;
    use axum::extract::{Path, State};
    use axum::http::StatusCode;
    use axum::routing::post;
    use redis::AsyncCommands;
    use redis::aio::{ConnectionManager, ConnectionManagerConfig};
    use wakeful::PerLoop;

    type Redis = State<PerLoop<ConnectionManager>>;

    async fn count(State(redis): Redis, Path(name): Path<String>) -> Result<String, StatusCode> {
        let mut redis = redis.with(Clone::clone);
        let count: i64 = redis.incr(&name, 1).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        Ok(count.to_string())
    }

    fn main() -> Result<(), Box<dyn Error>> {
        let client = redis::Client::open("redis://127.0.0.1:6379")?;
        let redis = PerLoop::new(move || {
            let settings = ConnectionManagerConfig::new();
            client.get_connection_manager_lazy(settings).expect("a URL of Redis")
        });
        let app = Router::new().route("/count/{name}", post(count)).with_state(redis);
        wakeful_http::Server::bind("0.0.0.0:8080")?.tokio().serve(app)?;
        Ok(())
    }
}
