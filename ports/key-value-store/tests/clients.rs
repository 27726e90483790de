use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use harness::{Program, Service};
use reqwest::{Client, Response, StatusCode};

harness::on_both!("key-value-store", values_are_kept_and_requests_are_bounded);

async fn get(service: &Service, path: &str) -> Response {
    // Each has a connection of its own.
    Client::new().get(service.url(path)).send().await.unwrap()
}

async fn put(service: &Service, key: &str, value: Vec<u8>) -> StatusCode {
    let path = service.url(&format!("/{key}"));
    Client::new().put(path).body(value).send().await.unwrap().status()
}

async fn values_are_kept_and_requests_are_bounded(program: Program) {
    let service = program.start().await;

    let names: Vec<_> = (0..50).map(|n| format!("key{n:02}")).collect();
    let written = names.iter().map(|name| put(&service, name, name.repeat(1000).into_bytes()));
    assert!(join_all(written).await.iter().all(|status| *status == StatusCode::NO_CONTENT));
    for name in &names {
        let value = get(&service, &format!("/{name}")).await.text().await.unwrap();
        assert_eq!(value, name.repeat(1000));
    }
    assert_eq!(get(&service, "/keys").await.text().await.unwrap(), names.join("\n"));
    assert_eq!(get(&service, "/none").await.status(), StatusCode::NOT_FOUND);

    let megabytes = |n: usize| vec![7; n << 20];
    assert_eq!(put(&service, "large", megabytes(5)).await, StatusCode::NO_CONTENT);
    assert_eq!(get(&service, "/large").await.bytes().await.unwrap(), megabytes(5));
    // Too large, which it says before it has read all of it. (With `axum::serve` the connection is
    // reset then, and whether the client gets the answer is a matter of luck.)
    let refused = Client::new().put(service.url("/large")).body(megabytes(6)).send().await;
    match refused {
        Ok(refused) => assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE),
        Err(error) => assert!(!service.on_wakeful(), "{error:?}"),
    }

    // All places are taken by clients that wait on several loops: the others are refused, and what
    // does not wait is served. A write on one loop answers those that wait on any.
    let waiting = (0..40).map(|_| get(&service, "/wait/news"));
    let mut waiting: FuturesUnordered<_> = waiting.collect();
    for _ in 32..40 {
        let refused = waiting.next().await.expect("one of them");
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(put(&service, "news", b"new".into()).await, StatusCode::NO_CONTENT);
    for answer in waiting.collect::<Vec<_>>().await {
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.text().await.unwrap(), "new");
    }
    assert_eq!(get(&service, "/wait/other").await.status(), StatusCode::GATEWAY_TIMEOUT);

    let client = Client::new();
    let remove = |path| client.delete(service.url(path));
    let refused = remove("/admin/keys").send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let removed = remove("/admin/keys/news").bearer_auth("secret").send().await.unwrap();
    assert_eq!(removed.status(), StatusCode::NO_CONTENT);
    assert_eq!(get(&service, "/news").await.status(), StatusCode::NOT_FOUND);
    remove("/admin/keys").bearer_auth("secret").send().await.unwrap();
    assert_eq!(get(&service, "/keys").await.text().await.unwrap(), "");
    service.end().await;
}
