use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::{any, post};
use futures_util::stream;
use harness::{Program, free_addr};
use reqwest::Client;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

harness::on_both!("proxy", requests_are_passed_on);

/// What the proxy passes requests on to.
async fn upstream() -> String {
    let answer = async |uri: Uri, headers: HeaderMap| {
        (
            StatusCode::IM_A_TEAPOT,
            [("x-name", "upstream")],
            format!("{uri} {}", headers["x-from"].to_str().unwrap()),
        )
    };
    // Each piece is sent when the one before has been taken.
    let pieces = async || {
        let pieces = stream::iter((0..100).map(|n| Ok::<_, Infallible>(vec![n; 10_000])));
        Body::from_stream(pieces)
    };
    let app = Router::new()
        .route("/echo", post(async |body: Bytes| body))
        .route("/pieces", any(pieces))
        .fallback(answer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    addr.to_string()
}

async fn requests_are_passed_on(program: Program) {
    let service = program.env("UPSTREAM", upstream().await).start().await;
    let mut clients = JoinSet::new();
    for n in 0..32_u32 {
        let urls =
            [service.url(&format!("/path?n={n}")), service.url("/echo"), service.url("/pieces")];
        clients.spawn(async move {
            let [path, echo, pieces] = urls;
            let client = Client::new();
            for _ in 0..5 {
                let answer = client.get(&path).header("x-from", n).send().await.unwrap();
                assert_eq!(answer.status().as_u16(), 418);
                assert_eq!(answer.headers()["x-name"], "upstream");
                assert_eq!(answer.text().await.unwrap(), format!("/path?n={n} {n}"));
                let body = vec![n as u8; 200_000];
                let answer = client.post(&echo).body(body.clone()).send().await.unwrap();
                assert!(answer.bytes().await.unwrap() == body);
                let answer = client.get(&pieces).send().await.unwrap().bytes().await.unwrap();
                assert!(
                    answer
                        .chunks(10_000)
                        .enumerate()
                        .all(|(n, piece)| piece == vec![n as u8; 10_000])
                );
                assert_eq!(answer.len(), 1_000_000);
            }
        });
    }
    clients.join_all().await;
    service.end().await;
}

#[tokio::test]
async fn on_wakeful_an_upstream_that_is_not_there_is_502() {
    let program = Program::on_wakeful(env!("CARGO_BIN_EXE_proxy"));
    let service = program.env("UPSTREAM", free_addr().to_string()).start().await;
    let answer = Client::new().get(service.url("/")).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 502);
    service.end().await;
}
