use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, State};
use axum::routing::{get, post};
use futures_util::future::{join_all, pending};
use futures_util::stream;
use harness::{GUARD, Program, until};
use reqwest::{Client, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

harness::on_both!("relay-reqwest", bodies_go_through_as_they_come);

/// Who of the other server's parts is told what.
#[derive(Clone)]
struct Upstream {
    /// One part of `/parts` for each permit.
    parts: Arc<Semaphore>,
    /// What has come to `/upload`.
    uploaded: mpsc::UnboundedSender<Bytes>,
    /// How many connections there were.
    connections: Arc<AtomicUsize>,
}

fn parts(upstream: Upstream, count: usize) -> Body {
    Body::from_stream(stream::unfold(0, move |n| {
        let parts = upstream.parts.clone();
        async move {
            if n == count {
                return None;
            }
            parts.acquire().await.expect("open").forget();
            Some((Ok::<_, Infallible>(format!("part {n};")), n + 1))
        }
    }))
}

async fn upload(State(upstream): State<Upstream>, body: Body) -> String {
    use futures_util::StreamExt;
    let (mut body, mut length) = (body.into_data_stream(), 0);
    while let Some(part) = body.next().await {
        let part = part.unwrap();
        length += part.len();
        upstream.uploaded.send(part).unwrap();
    }
    length.to_string()
}

async fn upstream(upstream: Upstream) -> SocketAddr {
    let app = Router::new()
        .route("/parts/{count}", get(|State(up), Path(count)| async move { parts(up, count) }))
        .route(
            "/who",
            get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() }),
        )
        .route("/large", get(|| async { vec![b'x'; 8 << 20] }))
        .route("/never", get(pending::<()>))
        .route("/upload", post(upload))
        .with_state(upstream.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    use axum::serve::ListenerExt;
    let listener = listener.tap_io(move |_| {
        upstream.connections.fetch_add(1, Ordering::Relaxed);
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    addr
}

async fn bodies_go_through_as_they_come(program: Program) {
    let (uploaded, mut uploads) = mpsc::unbounded_channel();
    let (parts, connections) = (Arc::new(Semaphore::new(0)), Arc::default());
    let state = Upstream { parts: parts.clone(), uploaded, connections: Arc::clone(&connections) };
    let other = upstream(state).await;
    let mut service = program.env("UPSTREAM", format!("http://{other}")).start().await;
    // By a connection of its own.
    let get = |path: &str| Client::new().get(service.url(path)).send();

    // A part is here before the next one is made.
    let mut answer = get("/parts/5").await.unwrap();
    for n in 0..5 {
        parts.add_permits(1);
        let part = tokio::time::timeout(GUARD, answer.chunk()).await.expect("a part");
        assert_eq!(part.unwrap().unwrap(), format!("part {n};"));
    }
    assert_eq!(answer.chunk().await.unwrap(), None);

    // The other way round.
    let (sender, parts_to_send) = mpsc::channel::<Bytes>(1);
    let body = stream::unfold(parts_to_send, |mut parts| async {
        parts.recv().await.map(|part| (Ok::<_, Infallible>(part), parts))
    });
    let upload = Client::new().post(service.url("/upload")).body(reqwest::Body::wrap_stream(body));
    let upload = tokio::spawn(upload.send());
    for part in ["one", "two", "three"] {
        sender.send(part.into()).await.unwrap();
        let come = tokio::time::timeout(GUARD, uploads.recv()).await.expect("a part");
        assert_eq!(come.unwrap(), part);
    }
    drop(sender);
    assert_eq!(upload.await.unwrap().unwrap().text().await.unwrap(), "11");

    for large in
        join_all((0..8).map(|_| async { get("/large").await.unwrap().bytes().await.unwrap() }))
            .await
    {
        assert!(large.len() == 8 << 20 && large.iter().all(|byte| *byte == b'x'));
    }

    // Requests of all loops use the client's connections in turn: one after the other needs one.
    get("/who").await.unwrap().text().await.unwrap();
    let before = connections.load(Ordering::Relaxed);
    for _ in 0..40 {
        assert_eq!(get("/who").await.unwrap().status(), StatusCode::OK);
    }
    let after = connections.load(Ordering::Relaxed);
    assert!(after - before <= 4, "{} new connections for 40 requests", after - before);

    assert_eq!(get("/never").await.unwrap().status(), StatusCode::GATEWAY_TIMEOUT);

    if !service.on_wakeful() {
        return service.end().await;
    }
    // The signal comes in the middle of a body. The rest of it comes all the same.
    let mut answer = get("/parts/2").await.unwrap();
    parts.add_permits(1);
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "part 0;");
    service.terminate();
    until("the service drains", async || {
        std::net::TcpStream::connect(service.addr()).is_err().then_some(())
    })
    .await;
    parts.add_permits(1);
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "part 1;");
    assert_eq!(answer.chunk().await.unwrap(), None);
    assert!(service.ended().await.success(), "{}", service.stderr());
    assert!(!service.stderr().contains("panicked"), "{}", service.stderr());
}
