//! The report of a slow turn names the slowest request, for HTTP/1 and HTTP/2, by handler and by
//! body.

mod common;

use std::convert::Infallible;
use std::fmt::Debug;
use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use common::{GUARD, addr, http2_client, raw, read_all, request, until};
use futures_lite::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Bytes;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use wakeful::heartbeat::{Heartbeats, LoopState, Watchdog};
use wakeful::metrics::name_slow_work;
use wakeful::task::yield_now;
use wakeful::{EventLoop, LoopGroup, LoopGroupBuilder};
use wakeful_http::{Running, Server, service_fn};

/// What reports have named: of all tests here, because the subscriber is the process's.
#[derive(Debug, Default, Clone)]
struct Named(Arc<Mutex<Vec<String>>>);

impl Visit for Named {
    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "slowest" {
            self.0.lock().unwrap().push(value.to_owned());
        }
    }
}

impl<S: tracing::Subscriber> Layer<S> for Named {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        event.record(&mut self.clone());
    }
}

impl Named {
    fn get() -> &'static Self {
        static NAMED: OnceLock<Named> = OnceLock::new();
        NAMED.get_or_init(|| {
            let named = Self::default();
            let registry = tracing_subscriber::registry().with(named.clone());
            tracing::subscriber::set_global_default(registry).unwrap();
            named
        })
    }

    fn any(&self, is_it: impl Fn(&str) -> bool) -> bool {
        self.0.lock().unwrap().iter().any(|name| is_it(name))
    }
}

/// Asks until a report has the name. A loop reports one slow turn in a second, and the machine may
/// be slow too.
fn is_named(name: &str, mut ask: impl FnMut()) {
    let named = Named::get();
    until(name, || {
        ask();
        named.any(|found| found == name)
    });
}

fn server() -> Server {
    let event_loop = EventLoop::builder().slow_turn(Duration::from_millis(20));
    let group = LoopGroup::builder().loops(1).event_loop(event_loop);
    Server::bind("127.0.0.1:0").unwrap().group(group)
}

fn block() {
    thread::sleep(Duration::from_millis(25));
}

fn blocking_body() -> Body {
    let frame = async {
        block();
        Ok::<_, Infallible>(Frame::data(Bytes::from("late")))
    };
    Body::new(StreamBody::new(stream::once_future(frame)))
}

fn app() -> Router {
    let later = async || {
        yield_now().await;
        block();
    };
    let template = async || {
        block();
        name_slow_work(|| "GET /templates/{id}".to_owned());
    };
    Router::new()
        .route("/quick", get(async || ()))
        .route("/reports/{id}", get(async || block()).post(async || block()))
        .route("/later", get(later))
        .route("/body", get(async || blocking_body()))
        .route("/templates/{id}", get(template))
        .fallback(async || block())
}

fn ask(running: &Running, method: &str, path: &str) {
    let mut stream = raw(running);
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    assert!(read_all(stream).starts_with("HTTP/1.1 200"));
}

fn ask_http2(running: &Running, path: &str) {
    let to = addr(running);
    wakeful::block_on(async {
        let mut client = http2_client(to).await;
        let response = client.send_request(request("GET", path, "")).await.unwrap();
        response.into_body().collect().await.unwrap();
    });
}

#[test]
fn a_handler_that_blocks_is_named_by_method_and_path() {
    let running = server().start(app()).unwrap();
    is_named("GET /reports/7", || {
        ask(&running, "GET", "/quick");
        ask(&running, "GET", "/reports/7?token=secret");
    });
    is_named("POST /reports/7", || ask(&running, "POST", "/reports/7"));
    is_named("GET /later", || ask(&running, "GET", "/later"));
    is_named("GET /reports/http2", || ask_http2(&running, "/reports/http2"));
}

#[test]
fn a_service_that_blocks_when_it_is_called_is_named() {
    let blocks = || {
        service_fn(|_| {
            block();
            async { Ok::<_, Infallible>(Response::new(String::new())) }
        })
    };
    let running = server().start_with(blocks).unwrap();
    is_named("GET /call", || ask(&running, "GET", "/call"));
    is_named("GET /call-http2", || ask_http2(&running, "/call-http2"));
}

#[test]
fn a_response_s_body_that_blocks_is_named_by_its_request() {
    let running = server().start(app()).unwrap();
    is_named("GET /body", || ask(&running, "GET", "/body"));
}

#[test]
fn a_path_cannot_forge_a_line_of_the_log() {
    let running = server().start(app()).unwrap();
    let hostile = "/\u{9b}2J\u{202e}";
    is_named("GET /%C2%9B2J%E2%80%AE", || ask(&running, "GET", hostile));
    let long = format!("/long/{}", "a".repeat(1_000));
    let cut = format!("GET {}...", &long[..46]);
    is_named(&cut, || ask(&running, "GET", &long));
    assert!(!Named::get().any(|name| name.len() > 200));
}

#[test]
fn a_name_that_the_handler_gives_replaces_the_request_s() {
    let running = server().start(app()).unwrap();
    is_named("GET /templates/{id}", || ask(&running, "GET", "/templates/9"));
    assert!(!Named::get().any(|name| name == "GET /templates/9"));
}

/// What a supervising process would see of the loop of this thread.
#[derive(Debug, Clone)]
struct Seen(Arc<(Mutex<Watchdog>, Heartbeats)>);

impl Seen {
    fn new(group: &LoopGroupBuilder) -> Self {
        let mut watchdog = Watchdog::new(GUARD).unwrap();
        let heartbeats = watchdog.heartbeats_for(group).unwrap();
        Self(Arc::new((Mutex::new(watchdog), heartbeats)))
    }

    fn work(&self) -> String {
        let (watchdog, heartbeats) = &*self.0;
        match &watchdog.lock().unwrap().loops(heartbeats)[..] {
            [LoopState::Awake { work, .. }] => work.clone().unwrap_or_default(),
            other => panic!("one loop, in its turn: {other:?}"),
        }
    }
}

#[test]
fn a_supervisor_sees_which_request_a_loop_works_on() {
    let group = LoopGroup::builder().loops(1);
    let seen = Seen::new(&group);
    let group = group.heartbeats(seen.0.1.clone());
    let says = seen.clone();
    let service = move || {
        let says = says.clone();
        service_fn(move |_| {
            let called = says.work();
            let says = says.clone();
            async move {
                yield_now().await;
                let polled = says.work();
                let frame = async move {
                    let all = format!("{called}|{polled}|{}", says.work());
                    Ok::<_, Infallible>(Frame::data(Bytes::from(all)))
                };
                let body = StreamBody::new(Box::pin(stream::once_future(frame)));
                Ok::<_, Infallible>(Response::new(body))
            }
        })
    };
    let server = Server::bind("127.0.0.1:0").unwrap().group(group);
    let running = server.start_with(service).unwrap();
    let mut stream = raw(&running);
    stream.write_all(b"PUT /a/7?b=c HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let answer = read_all(stream);
    assert!(answer.contains("PUT /a/7|PUT /a/7|PUT /a/7"), "{answer}");
    let to = addr(&running);
    let body = wakeful::block_on(async {
        let mut client = http2_client(to).await;
        let response = client.send_request(request("GET", "/http2", "")).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    });
    assert_eq!(body, "GET /http2|GET /http2|GET /http2");
    let later = running.handles()[0].post_and_wait(move || seen.work()).unwrap();
    assert_eq!(later, "", "nothing of it is left");
}

#[test]
fn a_connection_is_named_by_the_place_that_started_the_server() {
    let block_longest = async || {
        let longest = wakeful::LoopHandle::current().metrics().longest_poll.unwrap().duration;
        thread::sleep(longest * 2 + Duration::from_millis(2));
    };
    let running = server().start(Router::new().route("/", get(block_longest))).unwrap();
    let line = line!() - 1;
    let handle = running.handles()[0].clone();
    let started = handle.post_and_wait(|| ()).map(|()| handle.metrics().longest_poll).unwrap();
    ask(&running, "GET", "/");
    running.shutdown(GUARD).unwrap();
    let longest = handle.metrics().longest_poll.unwrap();
    assert!(longest.duration > started.unwrap().duration);
    let place = longest.spawned_at;
    assert_eq!((place.file(), place.line()), (file!(), line));
}
