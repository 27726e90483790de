//! docs/axum.md

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response, Sse};
use axum::routing::get;
use futures_core::Stream;
use wakeful::PerLoop;
use wakeful::signal::{SIGHUP, Signals};
use wakeful::task::spawn_blocking;
use wakeful_http::access_log::{AccessLog, Destination, Format, Query};
use wakeful_http::client::{Client, ResponseBody};
use wakeful_http::files::{Precompressed, ServeDir, ServeFile};
use wakeful_http::layers::{ConcurrencyLimitLayer, RateLimitLayer, TimeoutLayer};
use wakeful_http::observe::Observe;
use wakeful_http::sse::KeepAlive;
use wakeful_http::tls::{PeerCertificates, ServerTls};
use wakeful_http::{DrainPlan, Peer, Readiness, Server};

async fn proxy(State(clients): State<PerLoop<Client<Body>>>) -> Response {
    wakeful::on_this_loop(async move {
        let request =
            Request::get("http://127.0.0.1:9090/").body(Body::empty()).expect("a valid URI");
        match clients.get().send(request).await {
            Ok(response) => response.map(ResponseBody::into_send).into_response(),
            Err(_) => StatusCode::BAD_GATEWAY.into_response(),
        }
    })
    .await
}

async fn who(peer: Peer, _certificates: Option<PeerCertificates>) -> String {
    format!("{}, by {:?}, {:?}\n", peer.addr, peer.security, peer.alpn)
}

fn connect_info(app: Router) -> io::Result<()> {
    Server::bind("127.0.0.1:8080")?
        .serve_make_service(app.into_make_service_with_connect_info::<SocketAddr>())
}

async fn report() {}

fn limits() -> Router {
    let app = Router::new()
        .route("/report", get(report))
        .layer(ConcurrencyLimitLayer::new(100))
        .layer(RateLimitLayer::new(1_000, Duration::from_secs(1)))
        .layer(TimeoutLayer::new(Duration::from_secs(5)));
    app
}

fn news() -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::empty()
}

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let comment = || Event::default().comment("still here");
    Sse::new(KeepAlive::new(news(), comment).every(Duration::from_secs(10)))
}

fn files() -> io::Result<Router> {
    let page =
        ServeFile::new("app/index.html")?.cache_control(HeaderValue::from_static("no-cache"));
    let app = Router::new()
        .route_service("/favicon.ico", ServeFile::new("app/icon.ico")?)
        .nest_service("/assets", ServeDir::new("app/assets")?.precompressed(Precompressed::Offer))
        .fallback_service(ServeDir::new("app")?.fallback(page));
    Ok(app)
}

/// They are handlers.
fn handlers() -> Router<PerLoop<Client<Body>>> {
    Router::new().route("/", get(proxy)).route("/who", get(who)).route("/events", get(events))
}

fn health(readiness: Readiness) -> Router {
    let readyz = async move || {
        if readiness.is_ready() {
            (StatusCode::OK, "ready\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
        }
    };
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(readyz))
}

fn serve_with_health(app: Router) -> io::Result<()> {
    let plan = DrainPlan::new().pre_drain(Duration::from_secs(5)).grace(Duration::from_secs(20));
    let server = Server::bind("127.0.0.1:8080")?.drain_plan(plan);
    let app = app.merge(health(server.readiness()));
    server.serve(app)
}

/// Call it on a loop. From then on HUP does not end the process.
fn reload_at_hangup(tls: ServerTls, log: AccessLog) -> io::Result<()> {
    let mut signals = Signals::new(&[SIGHUP])?;
    wakeful::spawn(async move {
        while signals.recv().await.is_ok() {
            log.reopen();
            let tls = tls.clone();
            // On a thread that may read files. What cannot be used is logged, and changes nothing.
            let _ = spawn_blocking(move || tls.reload()).await;
        }
    })
    .detach();
    Ok(())
}

mod hangup {
    use super::*;

    #[wakeful::main]
    async fn main() -> Result<(), Box<dyn Error>> {
        let tls = ServerTls::from_files("cert.pem", "key.pem")?;
        let file = Destination::File("access.log".into());
        let log = AccessLog::new(Format::Json, file, Query::Omit)?;
        reload_at_hangup(tls.clone(), log.clone())?;
        let server =
            Server::bind_tls("127.0.0.1:8443", tls)?.observe(Observe::new().access_log(log));
        server.run(Router::new().route("/", get(|| async { "hello\n" }))).await?;
        Ok(())
    }
}

/// Both are run, not only compiled.
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::thread;

    use wakeful::time::{sleep, timeout};

    use super::*;

    /// For a test that waits in vain.
    const GUARD: Duration = Duration::from_secs(60);
    const A_MOMENT: Duration = Duration::from_millis(1);

    fn status(addr: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[test]
    fn readyz_says_503_before_the_drain_and_healthz_does_not() {
        let server = Server::bind("127.0.0.1:0").unwrap();
        let app = Router::new().merge(health(server.readiness()));
        let running = server.start(app).unwrap();
        let addr = running.local_addrs()[0].to_string();
        assert_eq!((&*status(&addr, "/readyz"), &*status(&addr, "/healthz")), ("200", "200"));
        let readiness = running.readiness();
        let plan = DrainPlan::new().pre_drain(Duration::from_secs(3));
        let drain = thread::spawn(move || running.drain(plan));
        while readiness.is_ready() {
            thread::yield_now();
        }
        assert_eq!((&*status(&addr, "/readyz"), &*status(&addr, "/healthz")), ("503", "200"));
        assert_eq!(drain.join().unwrap().unwrap(), 0);
    }

    #[test]
    fn a_hangup_reopens_the_log_and_rereads_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(path("cert.pem"), made.cert.pem()).unwrap();
        fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let tls = ServerTls::from_files(path("cert.pem"), path("key.pem")).unwrap();
        let file = Destination::File(path("access.log"));
        let log = AccessLog::new(Format::Json, file, Query::Omit).unwrap();
        let reloaded = wakeful::block_on(async {
            reload_at_hangup(tls.clone(), log.clone()).unwrap();
            fs::rename(path("access.log"), path("access.log.1")).unwrap();
            signal_hook::low_level::raise(SIGHUP).unwrap();
            timeout(GUARD, async {
                while tls.counts().reloads() == 0 || !path("access.log").exists() {
                    sleep(A_MOMENT).await;
                }
            })
            .await
        });
        assert!(reloaded.is_ok(), "a HUP reopens and rereads");
    }
}
