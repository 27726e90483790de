//! A subscriber of `tracing` that panics whatever it is told of a request's span. It is this
//! process's only one.

mod common;

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::routing::get;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};

use common::frames::{Client, *};
use common::*;

static IS_BROKEN: AtomicBool = AtomicBool::new(false);
static PANICS: AtomicUsize = AtomicUsize::new(0);

struct Broken;

fn panics_if_broken() {
    if IS_BROKEN.load(Ordering::Relaxed) {
        PANICS.fetch_add(1, Ordering::Relaxed);
        panic!("of a subscriber, on purpose");
    }
}

impl tracing::Subscriber for Broken {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "wakeful_http::request"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panics_if_broken();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        panics_if_broken();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        panics_if_broken();
    }

    fn exit(&self, _: &Id) {
        panics_if_broken();
    }

    fn try_close(&self, _: Id) -> bool {
        panics_if_broken();
        true
    }
}

fn breaks() {
    IS_BROKEN.store(true, Ordering::Relaxed);
}

async fn breaks_and_panics() -> &'static str {
    breaks();
    panic!("of a handler, on purpose")
}

#[test]
fn a_subscriber_that_panics_ends_neither_a_request_nor_while_a_handler_unwinds_the_process() {
    tracing::subscriber::set_global_default(Broken).unwrap();
    let breaking = get(|| async {
        breaks();
        "answered"
    });
    let app = router().route("/break", breaking).route("/panic", get(breaks_and_panics));
    let running = server().start(app).unwrap();
    for path in ["/break", "/panic"] {
        let is_answered = path == "/break";
        IS_BROKEN.store(false, Ordering::Relaxed);
        let before = PANICS.load(Ordering::Relaxed);
        let mut stream = raw(&running);
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let answer = read_all(stream);
        assert_eq!(answer.ends_with("answered"), is_answered, "{path}");
        assert_eq!(answer.starts_with("HTTP/1.1 500 "), !is_answered, "{path}");
        // Left, recorded twice, and closed.
        until("it is told of all", || PANICS.load(Ordering::Relaxed) - before >= 4);
        is_served(&running);

        IS_BROKEN.store(false, Ordering::Relaxed);
        let mut client = Client::new(&running);
        client.get(1, path);
        let status = if is_answered { "200" } else { "500" };
        let answer = client.wait_for(HEADERS);
        assert_eq!((answer.stream, answer.status().as_str()), (1, status), "{path}");
        client.get(3, "/");
        let answer = client.wait_for(HEADERS);
        assert_eq!((answer.stream, answer.status().as_str()), (3, "200"), "{path}");
    }
    until("none is in flight", || running.http_counts().in_flight() == 0);
}
