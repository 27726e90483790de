//! docs/from-tokio.md

/// In the place of sqlx.
mod sqlx {
    #[derive(Clone)]
    pub(super) struct PgPool;

    pub(super) struct PgPoolOptions;

    impl PgPoolOptions {
        pub(super) fn new() -> Self {
            Self
        }

        pub(super) async fn connect(self, url: &str) -> Result<PgPool, std::io::Error> {
            Ok(PgPool)
        }
    }
}

/// In the place of reqwest.
mod reqwest {
    #[derive(Clone)]
    pub(super) struct Client;

    impl Client {
        pub(super) fn new() -> Self {
            Self
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

mod one_for_each_loop {
    use axum::Router;
    use axum::extract::State;
    use axum::routing::get;
    use wakeful::PerLoop;

    use super::reqwest;

    async fn page(State(client): State<PerLoop<reqwest::Client>>) {
        let client = client.with(Clone::clone);
    }

    fn app() -> Router {
        let client: wakeful::PerLoop<reqwest::Client> = wakeful::PerLoop::new(reqwest::Client::new);
        let app = Router::new().route("/", get(page)).with_state(client);
        app
    }
}

mod time {
    use std::time::Duration;

    use std::time::Instant;

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
}
