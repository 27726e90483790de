//! Handlers of axum, whose futures are `Send`, use what belongs to their loop: the client with its
//! connections, and bodies of its responses.

mod common;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use common::{GUARD, addr, http1_client, http2_client, request, router, server};
use http::Request;
use http_body_util::BodyExt;
use wakeful::time::timeout;
use wakeful::{PerLoop, on_this_loop};
use wakeful_http::client::{Client, ClientError, ResponseBody};

/// Runs a test on a loop, but not for ever.
fn on_a_loop<T>(test: impl Future<Output = T>) -> T {
    wakeful::block_on(timeout(GUARD, test)).expect("a hang is a failure")
}

#[derive(Clone)]
struct Upstream {
    client: PerLoop<Client<Body>>,
    base: String,
}

async fn proxy(State(upstream): State<Upstream>, Path(path): Path<String>) -> Response {
    let uri = format!("{}/{path}", upstream.base);
    on_this_loop(async move {
        let request = Request::get(uri).body(Body::empty()).expect("a valid URI");
        match upstream.client.get().send(request).await {
            Ok(response) => response.map(ResponseBody::into_send).into_response(),
            Err(_) => StatusCode::BAD_GATEWAY.into_response(),
        }
    })
    .await
}

#[test]
fn a_handler_answers_with_what_the_client_of_its_loop_was_answered() {
    let made = Arc::new(AtomicUsize::new(0));
    let large: String = "0123456789".repeat(100_000);
    let body = large.clone();
    let upstream = server().start(router().route("/large", get(move || async { body }))).unwrap();
    let count = made.clone();
    let client = PerLoop::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        Client::new()
    });
    let state = Upstream { client, base: format!("http://{}", addr(&upstream)) };
    let app = Router::new().route("/{*path}", get(proxy)).with_state(state);
    let proxy = server().start(app).unwrap();
    on_a_loop(async {
        let mut http1 = http1_client(addr(&proxy)).await;
        let mut http2 = http2_client(addr(&proxy)).await;
        for (path, wanted) in [("/n/7", "7"), ("/large", &large), ("/slow", "slow")] {
            for response in [
                http1.send_request(request("GET", path, "")).await.unwrap(),
                http2.send_request(request("GET", path, "")).await.unwrap(),
            ] {
                assert_eq!(response.status(), StatusCode::OK);
                let body = response.into_body().collect().await.unwrap().to_bytes();
                assert!(body == wanted, "{path}: {} bytes", body.len());
            }
        }
    });
    let made = made.load(Ordering::Relaxed);
    assert!(
        (1..=2).contains(&made),
        "a client for each of two loops, and not each request: {made}"
    );
}

#[test]
fn a_body_that_left_its_loop_fails_there_and_goes_home_to_be_dropped() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let client = Client::<Body>::new();
        let uri = format!("http://{}/n/1", addr(&running));
        let response = client.send(Request::get(uri).body(Body::empty()).unwrap()).await.unwrap();
        let body = response.into_body().into_send();
        let elsewhere = wakeful::task::spawn_blocking(move || {
            let mut body = body;
            let mut frame = Box::pin(body.frame());
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            frame.as_mut().poll(&mut cx).map(|frame| frame.and_then(Result::err))
        });
        let failed = elsewhere.await.expect("no panic");
        assert!(
            matches!(failed, std::task::Poll::Ready(Some(ClientError::OtherThread))),
            "{failed:?}"
        );
        // The message that drops it has come by the time that another request is answered.
        let uri = format!("http://{}/slow", addr(&running));
        let response = client.send(Request::get(uri).body(Body::empty()).unwrap()).await.unwrap();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(text, "slow");
    });
}

#[test]
fn a_value_of_each_loop_is_state_without_a_lock() {
    async fn count(State(requests): State<PerLoop<Cell<u32>>>) -> String {
        requests.with(|requests| requests.set(requests.get() + 1));
        requests.with(Cell::get).to_string()
    }
    let requests: PerLoop<Cell<u32>> = PerLoop::new(Cell::default);
    let app = Router::new().route("/", get(count)).with_state(requests);
    let running = server().start(app).unwrap();
    on_a_loop(async {
        // HTTP/2 stays on its loop.
        let mut client = http2_client(addr(&running)).await;
        for number in 1..=3 {
            let response = client.send_request(request("GET", "/", "")).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, number.to_string());
        }
    });
}
