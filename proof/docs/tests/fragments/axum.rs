//! docs/axum.md

// For what the page leaves out.
use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use async_lock::Semaphore;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response, Sse};
use axum::routing::{get, post};
use axum::{Form, Router};
use futures_core::Stream;
use serde::Deserialize;
use wakeful::accept::SharedListener;
use wakeful::signal::{SIGHUP, Signals};
use wakeful::task::spawn_blocking;
use wakeful::time::interval;
use wakeful::{LoopGroup, LoopHandle, PerLoop};
use wakeful_http::access_log::{AccessLog, Destination, Format, Query};
use wakeful_http::client::{Client, ResponseBody};
use wakeful_http::files::{Precompressed, ServeDir, ServeFile};
use wakeful_http::layers::{ConcurrencyLimitLayer, RateLimitLayer, TimeoutLayer};
use wakeful_http::observe::Observe;
use wakeful_http::sse::KeepAlive;
use wakeful_http::tls::{ClientTls, PeerCertificates, ServerTls};
use wakeful_http::{DrainPlan, Peer, Readiness, Running, Server};

async fn proxy(State(clients): State<PerLoop<Client<Body>>>) -> Response {
    wakeful::on_this_loop(async move {
        let request =
            Request::get("http://127.0.0.1:8081/").body(Body::empty()).expect("a valid URI");
        match clients.get().send(request).await {
            Ok(response) => response.map(ResponseBody::into_send).into_response(),
            Err(_) => StatusCode::BAD_GATEWAY.into_response(),
        }
    })
    .await
}

fn clients() -> PerLoop<Client<Body>> {
    PerLoop::new(|| {
        Client::builder()
            .connect_timeout(Duration::from_secs(1)) // 5 s by default
            .head_timeout(Duration::from_secs(5)) // until the response's header: 30 s by default
            .total_timeout(Duration::from_secs(10)) // with the body: no limit by default
            .retries(1) // 2 by default
            .build()
    })
}

fn https_clients() -> Result<PerLoop<Client<Body>>, Box<dyn Error>> {
    let tls = ClientTls::builder().build()?;
    Ok(PerLoop::new(move || Client::builder().tls(tls.clone()).build()))
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

fn towers_limit() -> Router {
    let limit = tower::limit::ConcurrencyLimitLayer::new(100);
    let app = Router::new().route("/report", get(report)).layer(limit).with_state(()); // limits
    app
}

fn towers_limit_without_a_state() -> Router {
    let limit = tower::limit::ConcurrencyLimitLayer::new(100);
    let app = Router::new().route("/report", get(report)).layer(limit); // limits nothing
    app
}

#[derive(Deserialize)]
struct Account {
    password: String,
}

static HASHES_NOW: AtomicUsize = AtomicUsize::new(0);
static MOST_HASHES: AtomicUsize = AtomicUsize::new(0);

/// In the place of a slow hash.
fn hash(password: &str) -> String {
    MOST_HASHES.fetch_max(HASHES_NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    std::thread::yield_now();
    HASHES_NOW.fetch_sub(1, Ordering::SeqCst);
    password.chars().rev().collect()
}

static HASHING: Semaphore = Semaphore::new(2);

async fn sign_up(Form(account): Form<Account>) -> Result<String, StatusCode> {
    let place = HASHING.acquire().await;
    let hashed = spawn_blocking(move || {
        let _place = place;
        hash(&account.password)
    });
    hashed.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn message_of_the_day() -> Result<String, StatusCode> {
    wakeful::fs::read_to_string("/etc/motd").await.map_err(|_| StatusCode::NOT_FOUND)
}

type Cache = PerLoop<RefCell<HashMap<u64, String>>>;

/// On any thread.
fn clear(cache: &Cache, loops: &[LoopHandle]) {
    for handle in loops {
        let cache = cache.clone();
        let _ = handle.post(move || cache.with(|entries| entries.borrow_mut().clear()));
    }
}

/// In a handler, or in another task.
async fn count(cache: &Cache, loops: &[LoopHandle]) -> usize {
    let mut count = 0;
    for handle in loops {
        let cache = cache.clone();
        let counting = async move || cache.with(|entries| entries.borrow().len());
        if let Ok(counting) = handle.spawn(counting) {
            count += counting.await.unwrap_or(0);
        }
    }
    count
}

fn know_the_loops(server: Server) -> (Server, Arc<Mutex<Vec<LoopHandle>>>) {
    let loops = Arc::new(Mutex::new(Vec::new()));
    let known = loops.clone();
    let server = server.on_each_loop(move || {
        known.lock().expect("no panic").push(LoopHandle::current());
        ready(Ok(()))
    });
    (server, loops)
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

async fn clean_up() {}

/// Once a minute, on the server's first loop: there Tokio runs, too, if the server has it.
fn every_minute(running: &Running) -> io::Result<()> {
    let job = async || {
        let mut ticks = interval(Duration::from_secs(60));
        loop {
            ticks.tick().await;
            clean_up().await;
        }
    };
    running.handles()[0].spawn(job).map_err(io::Error::other)?.detach();
    Ok(())
}

/// In the place of the crate.
mod listenfd {
    use std::io;
    use std::net::TcpListener;

    pub(super) struct ListenFd;

    impl ListenFd {
        pub(super) fn from_env() -> Self {
            Self
        }

        pub(super) fn take_tcp_listener(&mut self, _: usize) -> io::Result<Option<TcpListener>> {
            TcpListener::bind("127.0.0.1:0").map(Some)
        }
    }
}

fn passed_by_systemd() -> io::Result<Server> {
    let listener = listenfd::ListenFd::from_env().take_tcp_listener(0)?;
    let listener = listener.ok_or_else(|| io::Error::other("systemd has passed no socket"))?;
    Ok(Server::from_listeners(vec![SharedListener::from_socket(listener.into())?]))
}

#[test]
fn a_server_takes_a_socket_that_listens_already() {
    assert!(passed_by_systemd().unwrap().start(Router::new()).is_ok());
}

/// They are handlers.
fn handlers() -> Router<PerLoop<Client<Body>>> {
    Router::new()
        .route("/", get(proxy))
        .route("/who", get(who))
        .route("/events", get(events))
        .route("/sign-up", post(sign_up))
        .route("/motd", get(message_of_the_day))
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

mod payments {
    use futures_util::FutureExt;

    use super::*;

    static MAY_CHARGE: Semaphore = Semaphore::new(0);
    static CHARGED: AtomicUsize = AtomicUsize::new(0);

    async fn charge(order: String) -> String {
        let _charges = MAY_CHARGE.acquire().await;
        CHARGED.fetch_add(1, Ordering::Relaxed);
        order
    }

    fn main() -> Result<(), Box<dyn Error>> {
        let work = LoopGroup::builder().loops(1).build()?;
        let app = Router::new().route("/pay", post(pay)).with_state(work.handles()[0].clone());
        Server::bind("127.0.0.1:8080")?.serve(app)?;
        work.shutdown(Duration::from_secs(30))?; // waits for payments that are under way
        Ok(())
    }

    async fn pay(State(work): State<LoopHandle>, order: String) -> Result<String, StatusCode> {
        let payment =
            work.spawn(move || charge(order)).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        payment.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }

    #[test]
    fn a_payment_is_made_though_its_handler_was_dropped() {
        let work = LoopGroup::builder().loops(1).build().unwrap();
        let handler = pay(State(work.handles()[0].clone()), "a book".to_owned());
        assert!(handler.now_or_never().is_none(), "it waits for the payment");
        assert_eq!(CHARGED.load(Ordering::Relaxed), 0);
        MAY_CHARGE.add_permits(1);
        work.shutdown(Duration::from_secs(60)).unwrap();
        assert_eq!(CHARGED.load(Ordering::Relaxed), 1);
    }
}

/// These are run, not only compiled.
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

    #[test]
    fn no_more_hashes_run_at_once_than_have_places() {
        wakeful::block_on(async {
            let account = |n| Form(Account { password: format!("{n}-abc") });
            let all = (0..50).map(|n| sign_up(account(n)));
            for (n, hashed) in futures_util::future::join_all(all).await.into_iter().enumerate() {
                assert!(hashed.unwrap().starts_with("cba-"), "{n}");
            }
        });
        assert!((1..=2).contains(&MOST_HASHES.load(Ordering::SeqCst)));
    }

    /// How many handlers of two requests begin, if one at a time may.
    fn begun(limited: impl FnOnce(Router, tower::limit::ConcurrencyLimitLayer) -> Router) -> usize {
        use futures_util::FutureExt;
        use tower::ServiceExt;

        let begun = Arc::new(AtomicUsize::new(0));
        let counts = begun.clone();
        let handler = get(async move || {
            counts.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>().await;
        });
        let limit = tower::limit::ConcurrencyLimitLayer::new(1);
        let app = limited(Router::new().route("/", handler), limit);
        let mut requests = [(); 2].map(|()| {
            Box::pin(app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap()))
        });
        for request in &mut requests {
            assert!(request.now_or_never().is_none(), "no handler ends");
        }
        begun.load(Ordering::Relaxed)
    }

    #[test]
    fn towers_limit_needs_a_state() {
        assert_eq!(begun(|app, limit| app.layer(limit).with_state(())), 1);
        assert_eq!(begun(|app, limit| app.with_state(()).layer(limit)), 1);
        assert_eq!(begun(Router::layer), 2);
    }

    #[test]
    fn each_loop_counts_and_clears_its_own_cache() {
        let cache = Cache::new(RefCell::default);
        let group = wakeful::LoopGroup::builder().loops(2);
        let server = Server::bind("127.0.0.1:0").unwrap().group(group);
        let (server, loops) = know_the_loops(server);
        let running = server.start(Router::new()).unwrap();
        let loops = loops.lock().unwrap().clone();
        assert_eq!(loops.len(), 2);
        for (handle, same) in running.handles().iter().zip(&loops) {
            let entries = cache.clone();
            let fill = move || entries.with(|entries| entries.borrow_mut().insert(1, "one".into()));
            assert!(handle.post_and_wait(fill).unwrap().is_none(), "it was empty");
        }
        let counted = || wakeful::block_on(count(&cache, &loops));
        assert_eq!(counted(), 2);
        clear(&cache, running.handles());
        assert_eq!(counted(), 0, "a loop runs what this thread sends in order");
        drop(running);
        clear(&cache, &loops);
    }
}
