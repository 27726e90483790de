//! tower-http's layers that need no tokio runtime, on loops, where there is none.

mod common;

use std::io::{Read, Write};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use common::{GUARD, raw, router, server};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::normalize_path::NormalizePath;
use tower_http::propagate_header::PropagateHeaderLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::sensitive_headers::SetSensitiveHeadersLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::trace::TraceLayer;
use tower_http::validate_request::ValidateRequestHeaderLayer;
use wakeful_http::Running;

fn ask(running: &Running, line: &str, rest: &str) -> String {
    String::from_utf8_lossy(&ask_bytes(running, line, rest.as_bytes())).into_owned()
}

/// `rest` is headers with their line ends, an empty line and a body.
fn ask_bytes(running: &Running, line: &str, rest: &[u8]) -> Vec<u8> {
    let mut stream = raw(running);
    let head = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    stream.write_all(&[head.as_bytes(), rest].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

fn start(app: Router) -> Running {
    server().start(app).unwrap()
}

const END: &str = "\r\n";

#[test]
fn trace_sensitive_headers_and_set_header_wrap_the_same_router() {
    let app = router()
        .layer(TraceLayer::new_for_http())
        .layer(SetSensitiveHeadersLayer::new([header::AUTHORIZATION]))
        .layer(SetResponseHeaderLayer::overriding(
            HeaderName::from_static("x-frame-options"),
            HeaderValue::from_static("DENY"),
        ))
        .layer(PropagateHeaderLayer::new(HeaderName::from_static("x-tenant")));
    let answer = ask(&start(app), "GET /", "x-tenant: a\r\nauthorization: b\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("x-frame-options: DENY\r\n"), "{answer}");
    assert!(answer.contains("x-tenant: a\r\n") && answer.ends_with("hello"), "{answer}");
}

#[test]
fn cors_answers_the_preflight() {
    let running = start(router().layer(CorsLayer::permissive()));
    let preflight = "origin: http://a\r\naccess-control-request-method: POST\r\n\r\n";
    let answer = ask(&running, "OPTIONS /echo", preflight);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("access-control-allow-origin: *\r\n"), "{answer}");
}

#[test]
fn compression_works_in_both_directions() {
    let text = "hello ".repeat(1000);
    let body = text.clone();
    let app = Router::new()
        .route("/text", get(move || async move { body }))
        .route("/length", post(|body: String| async move { body.len().to_string() }))
        .layer(CompressionLayer::new())
        .layer(RequestDecompressionLayer::new());
    let running = start(app);
    let answer = ask_bytes(&running, "GET /text", b"accept-encoding: gzip\r\n\r\n");
    let head = String::from_utf8_lossy(&answer);
    assert!(head.contains("content-encoding: gzip\r\n") && answer.len() < text.len());
    let plain = ask(&running, "GET /text", END);
    assert!(plain.ends_with(&text));
    // What it sent can be sent back: the body of a chunked answer, in one chunk here or several.
    let start = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head =
        b"content-encoding: gzip\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = ask_bytes(&running, "POST /length", &[head, &answer[start..]].concat());
    assert!(
        answer.ends_with(text.len().to_string().as_bytes()),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

#[test]
fn a_panic_is_a_500_and_the_connection_goes_on() {
    async fn panics() -> &'static str {
        panic!("on purpose")
    }
    let running = start(router().route("/panics", get(panics)).layer(CatchPanicLayer::new()));
    let both = "\r\nGET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut stream = raw(&running);
    stream.write_all(format!("GET /panics HTTP/1.1\r\nhost: x\r\n{both}").as_bytes()).unwrap();
    let answer = common::read_all(stream);
    assert!(answer.starts_with("HTTP/1.1 500 ") && answer.ends_with("hello"), "{answer}");
}

#[test]
fn a_path_is_normalized_in_front_of_the_router() {
    let app = NormalizePath::trim_trailing_slash(router());
    let running = server().start(app).unwrap();
    assert!(ask(&running, "GET /n/7//", END).ends_with("\r\n\r\n7"));
}

#[test]
fn ids_are_made_and_propagated() {
    let name = HeaderName::from_static("x-request-id");
    let app = router()
        .layer(PropagateRequestIdLayer::new(name.clone()))
        .layer(SetRequestIdLayer::new(name, MakeRequestUuid));
    let running = start(app);
    assert!(ask(&running, "GET /", END).contains("\r\nx-request-id: "));
    assert!(ask(&running, "GET /", "x-request-id: a\r\n\r\n").contains("\r\nx-request-id: a\r\n"));
}

#[test]
// The layer asks for a whole response.
#[allow(clippy::result_large_err)]
fn requests_are_validated_and_their_bodies_limited() {
    let app = router().layer(RequestBodyLimitLayer::new(10)).layer(
        ValidateRequestHeaderLayer::custom(|request: &mut axum::http::Request<_>| {
            let token = request.headers().get(header::AUTHORIZATION);
            let is_known = token.is_some_and(|token| token == "Bearer token");
            is_known.then_some(()).ok_or(StatusCode::UNAUTHORIZED.into_response())
        }),
    );
    let running = start(app);
    assert!(ask(&running, "GET /", END).starts_with("HTTP/1.1 401 "));
    let known = "authorization: Bearer token\r\n";
    let post = |length: usize| {
        let body = "b".repeat(length);
        ask(&running, "POST /echo", &format!("{known}content-length: {length}\r\n\r\n{body}"))
    };
    assert!(post(10).ends_with("bbbbbbbbbb"));
    assert!(post(11).starts_with("HTTP/1.1 413 "));
}

/// As `layers::TimeoutLayer` does it, by hand.
#[test]
fn a_deadline_is_a_middleware_on_the_loops_own_timer() {
    async fn within(deadline: Duration, request: Request, next: Next) -> Response {
        match wakeful::time::timeout(deadline, next.run(request)).await {
            Ok(response) => response,
            Err(_) => StatusCode::GATEWAY_TIMEOUT.into_response(),
        }
    }
    let never = get(|| async { std::future::pending::<&str>().await });
    let short = from_fn(|request, next| within(Duration::from_millis(20), request, next));
    let long = from_fn(|request, next| within(GUARD, request, next));
    let app = Router::new()
        .route("/too-long", never.layer(short))
        .route("/", get(|| async { "hello" }).layer(long));
    let running = start(app);
    assert!(ask(&running, "GET /too-long", END).starts_with("HTTP/1.1 504 "));
    assert!(ask(&running, "GET /", END).ends_with("hello"));
}
