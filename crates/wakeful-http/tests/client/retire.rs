//! Hosts that get no more requests, while those that they have end in their own time.

use std::time::Duration;

use futures_lite::future::poll_once;
use wakeful_http::client::Target;

use super::common::{Gate, addr, router, server};
use super::*;

/// Nothing closes by itself.
fn patient() -> ClientBuilder {
    Client::builder().idle_timeout(Duration::from_secs(3600))
}

/// A request that is under way, on a connection.
async fn gated(client: &Client, host: &Host<Full<Bytes>>) -> wakeful::task::JoinHandle<String> {
    let of_host = host.clone();
    let asked = wakeful::spawn(async move { text(of_host.send(get("/gated")).await).await });
    until(|| client.counts().opened() == 1).await;
    asked
}

#[test]
fn a_host_that_is_retired_ends_what_it_has_and_takes_no_more() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let (gate, app) = Gate::on(router());
        let running = server().start(app).unwrap();
        on_a_loop(async {
            let (client, host) = host(patient(), addr(&running), version);
            let first = gated(&client, &host).await;
            client.retire(host.target());
            let late = host.send_with(get("/n/1"), |_| None).await.unwrap_err();
            assert!(matches!(late.error, ClientError::Retired { .. }), "{}", late.error);
            assert_eq!(late.request.unwrap().uri().path(), "/n/1");
            // Its successor has connections of its own.
            let target = Target::from(addr(&running)).version(version);
            let next = client.host(&target);
            assert_eq!(text(next.send(get("/n/2")).await).await, "2");
            assert_eq!(client.counts().opened(), 2);
            gate.open();
            assert_eq!(first.await.unwrap(), "released");
            until(|| running.counts().open() == 1).await;
            assert_eq!((host.connections(), next.connections()), (0, 1));
        });
    }
}

#[test]
fn who_waits_at_a_host_that_is_retired_has_the_request_back() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    on_a_loop(async {
        let (client, host) = http1(patient().max_connections(1), addr(&running));
        let first = gated(&client, &host).await;
        let mut second = Box::pin(host.send_with(get("/n/1"), |_| None));
        assert!(poll_once(&mut second).await.is_none());
        assert_eq!(client.counts().waited(), 1);
        client.retire(host.target());
        let failure = second.await.unwrap_err();
        assert!(matches!(failure.error, ClientError::Retired { .. }), "{}", failure.error);
        assert!(!failure.error.is_overload() && failure.request.is_some());
        gate.open();
        assert_eq!(first.await.unwrap(), "released");
        until(|| running.counts().open() == 0).await;
    });
}

#[test]
fn idle_connections_of_a_host_that_is_retired_close_beside_those_in_use() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    on_a_loop(async {
        let (client, host) = http1(patient(), addr(&running));
        let first = gated(&client, &host).await;
        assert_eq!(text(host.send(get("/n/1")).await).await, "1");
        assert_eq!(host.connections(), 2);
        client.retire(host.target());
        until(|| running.counts().open() == 1).await;
        gate.open();
        assert_eq!(first.await.unwrap(), "released");
        until(|| running.counts().open() == 0).await;
    });
}

#[test]
fn idle_connections_beyond_a_new_limit_close() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http1(patient(), addr(&running));
        let three = (0..3).map(|n| host.send(get(&format!("/n/{n}"))));
        for response in futures_util::future::join_all(three).await {
            text(response).await;
        }
        until(|| format!("{host:?}").contains("idle: 3")).await;
        host.set_max_idle(1);
        until(|| host.connections() == 1).await;
        assert_eq!(text(host.send(get("/n/4")).await).await, "4");
        assert_eq!(client.counts().opened(), 3);
    });
}
