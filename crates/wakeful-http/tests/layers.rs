//! Layers that bound what handlers take, around a router on two loops.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use axum::{BoxError, Router};
use common::{GUARD, Gate, addr, http2_client, raw, read_all, request, server, until};
use tower::ServiceBuilder;
use tower::load_shed::LoadShedLayer;
use wakeful::LoopGroup;
use wakeful::accept::{AcceptStrategy, Placement};
use wakeful::time::timeout;
use wakeful_http::Running;
use wakeful_http::layers::{ConcurrencyLimitLayer, RateLimitLayer, TimeoutLayer};

const HOUR: Duration = Duration::from_secs(3600);

fn on_a_loop<T>(test: impl Future<Output = T>) -> T {
    wakeful::block_on(timeout(GUARD, test)).expect("a hang is a failure")
}

/// Asks on a connection of its own, and waits for nothing.
fn send(running: &Running, path: &str) -> TcpStream {
    let mut stream = raw(running);
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn ask(running: &Running, path: &str) -> String {
    read_all(send(running, path))
}

/// How many there are, and how many there were at most.
#[derive(Clone, Default)]
struct Present(Arc<(AtomicUsize, AtomicUsize, AtomicUsize)>);

impl Present {
    fn enter(&self) -> Here {
        let (now, most, ever) = &*self.0;
        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        ever.fetch_add(1, SeqCst);
        Here(self.clone())
    }

    fn now(&self) -> usize {
        self.0.0.load(SeqCst)
    }

    fn most(&self) -> usize {
        self.0.1.load(SeqCst)
    }

    fn ever(&self) -> usize {
        self.0.2.load(SeqCst)
    }

    /// Has each request of `app` counted while it is there.
    fn around(&self, app: Router) -> Router {
        let present = self.clone();
        app.layer(from_fn(move |request: Request, next: Next| {
            let here = present.enter();
            async move {
                let _here = here;
                next.run(request).await
            }
        }))
    }
}

struct Here(Present);

impl Drop for Here {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, SeqCst);
    }
}

#[test]
fn a_handler_that_is_late_is_dropped_and_answered_503_or_as_asked() {
    let inside = Present::default();
    let late = {
        let inside = inside.clone();
        move || {
            let here = inside.enter();
            async move {
                let _here = here;
                std::future::pending::<&str>().await
            }
        }
    };
    let short = TimeoutLayer::new(Duration::from_millis(20));
    let app = Router::new()
        .route("/late", get(late.clone()).layer(short))
        .route("/gateway", get(late).layer(short.status(StatusCode::GATEWAY_TIMEOUT)))
        .route("/", get(|| async { "hello" }).layer(TimeoutLayer::new(GUARD)))
        .route("/ever", get(|| async { "hello" }).layer(TimeoutLayer::new(Duration::MAX)));
    let running = server().start(app).unwrap();
    assert!(ask(&running, "/late").starts_with("HTTP/1.1 503 "));
    assert!(ask(&running, "/gateway").starts_with("HTTP/1.1 504 "));
    assert_eq!((inside.ever(), inside.now()), (2, 0), "they are gone before the answer");
    assert!(ask(&running, "/").ends_with("hello"));
    assert!(ask(&running, "/ever").ends_with("hello"));
}

#[test]
fn a_late_handler_that_panics_in_its_drop_is_answered_503() {
    struct PanicsInItsDrop;

    impl Drop for PanicsInItsDrop {
        fn drop(&mut self) {
            panic!("of a late handler's drop, on purpose");
        }
    }

    let late = || async {
        let _panics = PanicsInItsDrop;
        std::future::pending::<&str>().await
    };
    let in_time = TimeoutLayer::new(Duration::from_millis(20));
    let running = server().start(Router::new().route("/", get(late).layer(in_time))).unwrap();
    let answer = ask(&running, "/");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

#[test]
fn on_all_loops_together_no_more_are_in_their_handlers_than_the_limit() {
    let inside = Present::default();
    let app = Router::new().route(
        "/",
        get(|| async {
            wakeful::time::sleep(Duration::from_millis(2)).await;
            "hello"
        }),
    );
    // Another route of the same limit.
    let app = app.route("/other", get(|| async { "hello" }));
    let limited = inside.around(app).layer(ConcurrencyLimitLayer::new(3));
    let asked = Present::default();
    let running = by_turns(asked.around(limited));
    let all: Vec<_> =
        (0..40).map(|n| send(&running, ["/", "/other"][usize::from(n % 4 == 0)])).collect();
    for stream in all {
        assert!(read_all(stream).ends_with("hello"));
    }
    assert_eq!((inside.ever(), asked.ever()), (40, 40));
    assert!(inside.most() <= 3, "{} at a time", inside.most());
    assert_eq!(inside.now(), 0);
}

#[test]
fn a_place_comes_back_from_clients_that_leave_whether_they_wait_or_not() {
    let (gate, app) = Gate::on(Router::new());
    let outside = Present::default();
    let app = outside.around(app.layer(ConcurrencyLimitLayer::new(1)));
    let running = server().start(app).unwrap();
    on_a_loop(async {
        let client = http2_client(addr(&running)).await;
        let ask = || wakeful::spawn(client.clone().send_request(request("GET", "/gated", "")));
        let first = ask();
        gate.one_entered().await;
        let second = ask();
        until_async("it waits", || outside.ever() == 2).await;
        let third = ask();
        until_async("it waits", || outside.ever() == 3).await;
        // One that waits goes, then the one in its handler. Their streams are reset.
        second.abort();
        until_async("it has left the queue", || outside.now() == 2).await;
        first.abort();
        gate.one_entered().await;
        assert_eq!(outside.now(), 1);
        gate.open();
        assert_eq!(third.await.unwrap().unwrap().status(), StatusCode::OK);
    });
}

/// Like `until`, on a loop that has something to do meanwhile.
async fn until_async(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            wakeful::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(GUARD, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[test]
fn a_place_comes_back_from_handlers_that_panic_or_are_too_late() {
    let app = Router::new()
        .route("/panics", get(|| async { panic!("on purpose") as &str }))
        .route("/panics-at-once", get(|| -> std::future::Ready<&str> { panic!("on purpose") }))
        .route("/never", get(|| async { std::future::pending::<&str>().await }))
        .route("/", get(|| async { "hello" }))
        .layer(ConcurrencyLimitLayer::new(1));
    let late = app.clone().layer(TimeoutLayer::new(Duration::from_millis(20)));
    let running = server().start(Router::new().merge(app).nest("/late", late)).unwrap();
    for _ in 0..3 {
        assert!(ask(&running, "/panics").starts_with("HTTP/1.1 500 "));
        assert!(ask(&running, "/panics-at-once").starts_with("HTTP/1.1 500 "));
        assert!(ask(&running, "/late/never").starts_with("HTTP/1.1 503 "));
    }
    assert!(ask(&running, "/").ends_with("hello"));
}

/// The time counts while a request waits for its place, because the limit is further in.
#[test]
fn a_request_that_waits_too_long_for_its_place_is_503() {
    let (gate, app) = Gate::on(Router::new().route("/", get(|| async { "hello" })));
    let late = TimeoutLayer::new(Duration::from_millis(20));
    let limit = ConcurrencyLimitLayer::new(1);
    let app = app.layer(limit);
    let app = Router::new().merge(app.clone()).nest("/late", app.layer(late));
    let running = server().start(app).unwrap();
    let held = send(&running, "/gated");
    gate.wait_for_one();
    assert!(ask(&running, "/late").starts_with("HTTP/1.1 503 "));
    gate.open();
    assert!(read_all(held).ends_with("released"));
    assert!(ask(&running, "/late").ends_with("hello"));
}

/// Two loops, which connections come to by turns.
fn by_turns(app: Router) -> Running {
    let group = LoopGroup::builder().loops(2).spread();
    let strategy = AcceptStrategy::Dispatch(Placement::RoundRobin);
    server().group(group).strategy(strategy).start(app).unwrap()
}

#[test]
fn each_loop_has_a_limit_of_its_own_where_asked_for() {
    let (gate, app) = Gate::on(Router::new().route("/", get(|| async { "hello" })));
    let running = by_turns(app.layer(ConcurrencyLimitLayer::new(1).each_loop()));
    on_a_loop(async {
        let mut clients = [http2_client(addr(&running)).await, http2_client(addr(&running)).await];
        let mut gated = Vec::new();
        for client in &mut clients {
            gated.push(wakeful::spawn(client.send_request(request("GET", "/gated", ""))));
            gate.one_entered().await;
        }
        let waits = wakeful::spawn(clients[0].send_request(request("GET", "/", "")));
        gate.open();
        for asked in gated.into_iter().chain([waits]) {
            assert_eq!(asked.await.unwrap().unwrap().status(), StatusCode::OK);
        }
    });
}

#[test]
fn tower_s_load_shed_in_front_of_the_limit_answers_at_once() {
    let (gate, app) = Gate::on(Router::new().route("/", get(|| async { "hello" })));
    let overloaded = |_: BoxError| async { StatusCode::SERVICE_UNAVAILABLE };
    let shed = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(overloaded))
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(1));
    let running = server().start(app.layer(shed)).unwrap();
    let held = send(&running, "/gated");
    gate.wait_for_one();
    for _ in 0..3 {
        assert!(ask(&running, "/").starts_with("HTTP/1.1 503 "));
    }
    gate.open();
    assert!(read_all(held).ends_with("released"));
    assert!(ask(&running, "/").ends_with("hello"), "who was refused is not in the queue");
}

/// Returns how many seconds a 429 asks to wait.
fn retry_after(answer: &str) -> Option<u64> {
    let refused = answer.starts_with("HTTP/1.1 429 ").then_some(answer)?;
    let line = refused.lines().find_map(|line| line.strip_prefix("retry-after: "))?;
    line.parse().ok()
}

#[test]
fn beyond_the_rate_of_all_loops_and_routes_it_is_429_with_the_time_to_wait() {
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/other", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(2, HOUR));
    let running = by_turns(app);
    assert!(ask(&running, "/").ends_with("hello"));
    assert!(ask(&running, "/other").ends_with("hello"));
    for path in ["/", "/other", "/"] {
        let answer = ask(&running, path);
        let wait = retry_after(&answer).expect(&answer);
        assert!((1..=1800).contains(&wait), "{answer}");
    }
}

#[test]
fn the_rate_fills_the_bucket_again() {
    let limit = RateLimitLayer::new(1000, Duration::from_secs(1)).burst(1);
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);
    let running = server().start(app).unwrap();
    let mut served = 0;
    until("it is served again and again", || {
        served += usize::from(ask(&running, "/").ends_with("hello"));
        served == 5
    });
}

#[test]
fn each_loop_has_a_rate_of_its_own_where_asked_for() {
    let limit = RateLimitLayer::new(1, HOUR).each_loop();
    let running = by_turns(Router::new().route("/", get(|| async { "hello" })).layer(limit));
    on_a_loop(async {
        for _ in 0..2 {
            let mut client = http2_client(addr(&running)).await;
            for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
                let answer = client.send_request(request("GET", "/", "")).await.unwrap();
                assert_eq!(answer.status(), status);
            }
        }
        let mut client = http2_client(addr(&running)).await;
        let answer = client.send_request(request("GET", "/", "")).await.unwrap();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    });
}
