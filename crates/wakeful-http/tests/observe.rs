//! Request ids, trace context, the peer, and spans, as a handler, a client and a subscriber see
//! them.

mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::extract::Extension;
use axum::routing::get;
use axum::{Router, response::IntoResponse};
use common::{GUARD, Gate, addr, http2_client, raw, read_all, request, server};
use http::HeaderMap;
use http_body_util::BodyExt;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use wakeful::net::PeerAddr;
use wakeful_http::observe::{Observe, RequestIds, TraceContext, TraceParent};
use wakeful_http::{Peer, Running};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn app() -> Router {
    let seen = |headers: HeaderMap| async move {
        let header = |name| {
            headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned()
        };
        format!("{} {} {}", header("x-request-id"), header("traceparent"), header("tracestate"))
    };
    let peer = |peer: Option<Extension<Peer>>| async move {
        peer.map_or("none".to_owned(), |Extension(peer)| peer.addr.to_string())
    };
    let own = || async { [("x-request-id", "the-handlers")].into_response() };
    Router::new().route("/seen", get(seen)).route("/peer", get(peer)).route("/own", get(own))
}

fn start(observe: Observe) -> Running {
    server().observe(observe).start(app()).unwrap()
}

/// The response's id, and the body.
fn ask(running: &Running, path: &str, headers: &str) -> (Option<String>, String) {
    let mut stream = raw(running);
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let answer = read_all(stream);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: "));
    (id.map(str::to_owned), body.to_owned())
}

#[test]
fn a_sane_id_is_kept_and_echoed_and_any_other_replaced() {
    let running = start(Observe::new().request_ids(RequestIds::Accept));
    let (id, body) = ask(&running, "/seen", "x-request-id: abc-1\r\n");
    assert_eq!((id.as_deref(), body.as_str()), (Some("abc-1"), "abc-1 - -"));
    for hostile in [
        "",
        "x-request-id: a b\r\n",
        "x-request-id: \r\n",
        "x-request-id: a\r\nx-request-id: b\r\n",
    ] {
        let (id, body) = ask(&running, "/seen", hostile);
        let id = id.unwrap();
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert_eq!(body, format!("{id} - -"), "the handler sees the same");
    }
    let (first, second) = (ask(&running, "/seen", "").0, ask(&running, "/seen", "").0);
    assert_ne!(first, second);
    assert_eq!(ask(&running, "/own", "").0.as_deref(), Some("the-handlers"));
    assert!(ask(&running, "/missing", "").0.is_some());
    let strict = start(Observe::new().request_ids(RequestIds::Replace));
    assert_ne!(ask(&strict, "/seen", "x-request-id: abc-1\r\n").0.as_deref(), Some("abc-1"));
    let off = start(Observe::new());
    assert_eq!(ask(&off, "/seen", "x-request-id: abc-1\r\n"), (None, "abc-1 - -".to_owned()));
}

#[test]
fn a_trace_is_continued_below_the_request() {
    let running = start(Observe::new().trace_context(TraceContext::Continue));
    let (_, body) = ask(&running, "/seen", &format!("traceparent: {TRACE}\r\ntracestate: a=b\r\n"));
    let parts: Vec<_> = body.split(' ').collect();
    let ["-", own, "a=b"] = parts[..] else { panic!("{body}") };
    let parse = |text: &str| {
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static("traceparent"),
            text.parse().unwrap(),
        )]);
        TraceParent::from_headers(&headers)
    };
    let (given, own) = (parse(TRACE).unwrap(), parse(own).unwrap());
    assert_eq!((own.trace_id(), own.is_sampled()), (given.trace_id(), true));
    assert_ne!(own.parent_id(), given.parent_id());
    let invalid = "traceparent: 00-bad\r\ntracestate: a=b\r\n";
    assert_eq!(ask(&running, "/seen", invalid).1, "- - -");
    assert_eq!(ask(&running, "/seen", "").1, "- - -");
    let starting = start(Observe::new().trace_context(TraceContext::Start));
    let (_, body) = ask(&starting, "/seen", invalid);
    let begun = parse(body.split(' ').nth(1).unwrap()).unwrap();
    assert!(!begun.is_sampled());
    let ignoring = start(Observe::new());
    let (_, body) = ask(&ignoring, "/seen", &format!("traceparent: {TRACE}\r\n"));
    assert_eq!(body, format!("- {TRACE} -"));
}

#[test]
fn a_handler_sees_the_peer_if_the_server_was_told_to() {
    let running = start(Observe::new().insert_peer());
    let mut stream = raw(&running);
    let own = stream.local_addr().unwrap();
    stream.write_all(b"GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    assert!(read_all(stream).ends_with(&PeerAddr::Tcp(own).to_string()));
    assert_eq!(ask(&start(Observe::new()), "/peer", "").1, "none");
}

/// The fields of each span of requests, once it has closed.
#[derive(Debug, Default, Clone)]
struct Spans {
    open: Arc<Mutex<BTreeMap<u64, Fields>>>,
    closed: Arc<Mutex<Vec<Fields>>>,
}

#[derive(Debug, Default, Clone)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: tracing::Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        if matches!(attributes.metadata().target(), "wakeful_http::request" | "own") {
            let mut fields = Fields::default();
            fields.0.insert("name", attributes.metadata().name().to_owned());
            attributes.record(&mut fields);
            self.open.lock().unwrap().insert(id.into_u64(), fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(fields) = self.open.lock().unwrap().get_mut(&id.into_u64()) {
            values.record(fields);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if let Some(fields) = self.open.lock().unwrap().remove(&id.into_u64()) {
            self.closed.lock().unwrap().push(fields);
        }
    }
}

/// The only test with a subscriber, because it is the process's. The others' requests have spans
/// too then, with other paths.
#[test]
fn a_subscriber_sees_a_span_for_each_request_with_its_status_at_the_end() {
    let spans = Spans::default();
    let registry = tracing_subscriber::registry().with(spans.clone());
    tracing::subscriber::set_global_default(registry).unwrap();
    let nested = || async {
        // The handler runs within the span.
        tracing::debug_span!(target: "own", "nested", of = ?tracing::Span::current().metadata().map(tracing::Metadata::name));
        "nested"
    };
    let (gate, app) = Gate::on(common::router().route("/nested", get(nested)));
    let observe =
        Observe::new().request_ids(RequestIds::Accept).trace_context(TraceContext::Continue);
    let running = server().observe(observe).start(app.clone()).unwrap();
    let headers = format!("x-request-id: abc\r\ntraceparent: {TRACE}\r\n");
    ask(&running, "/nested", &headers);
    ask(&running, "/gone-from-here", "");
    let to = addr(&running);
    wakeful::block_on(async {
        let mut client = http2_client(to).await;
        let gated = client.send_request(request("GET", "/gated", ""));
        let left = async {
            gate.one_entered().await;
            None
        };
        // Dropped when the handler runs.
        assert!(futures_lite::future::or(async { Some(gated.await) }, left).await.is_none());
        let response = client.send_request(request("GET", "/n/7", "")).await.unwrap();
        response.into_body().collect().await.unwrap();
    });
    running.shutdown(GUARD).unwrap();
    let made = Observe::new().span(|head| {
        tracing::info_span!(target: "own", "made", path = head.uri.path(), peer = %head.peer.addr, status = tracing::field::Empty)
    });
    let running = server().observe(made).start(app.clone()).unwrap();
    ask(&running, "/n/8", "");
    running.shutdown(GUARD).unwrap();
    let running = server().observe(Observe::new().no_span()).start(app).unwrap();
    ask(&running, "/n/9", "");
    running.shutdown(GUARD).unwrap();

    let closed = spans.closed.lock().unwrap().clone();
    let of = |path: &str| {
        let found =
            closed.iter().find(|fields| fields.0.get("path").is_some_and(|found| found == path));
        found.map(|fields| fields.0.clone())
    };
    let nested = of("/nested").unwrap();
    for (field, value) in [
        ("name", "request"),
        ("method", "GET"),
        ("protocol", "HTTP/1.1"),
        ("request_id", "abc"),
        ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
        ("status", "200"),
        ("aborted", "false"),
    ] {
        assert_eq!(nested[field], value, "{field}");
    }
    assert!(nested["peer"].starts_with("127.0.0.1:"));
    assert!(
        closed.iter().any(|fields| fields.0.get("of").is_some_and(|of| of == "Some(\"request\")"))
    );
    assert_eq!(of("/gone-from-here").unwrap()["status"], "404");
    assert_eq!(of("/n/7").unwrap()["protocol"], "HTTP/2.0");
    let gated = of("/gated").unwrap();
    assert_eq!((gated.get("status"), gated["aborted"].as_str()), (None, "true"));
    let made = of("/n/8").unwrap();
    assert_eq!((made["name"].as_str(), made["status"].as_str()), ("made", "200"));
    assert!(of("/n/9").is_none());
}
