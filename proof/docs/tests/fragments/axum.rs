//! docs/axum.md

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response, Sse};
use axum::routing::get;
use futures_core::Stream;
use wakeful::PerLoop;
use wakeful_http::client::{Client, ResponseBody};
use wakeful_http::files::{Precompressed, ServeDir, ServeFile};
use wakeful_http::layers::{ConcurrencyLimitLayer, RateLimitLayer, TimeoutLayer};
use wakeful_http::sse::KeepAlive;
use wakeful_http::tls::PeerCertificates;
use wakeful_http::{Peer, Server};

async fn proxy(State(clients): State<PerLoop<Client<Body>>>) -> Response {
    wakeful::on_this_loop(async move {
        let request =
            Request::get("http://127.0.0.1:9090/").body(Body::empty()).expect("a valid URI");
        match clients.get().send(request).await {
            Ok(response) => response.map(ResponseBody::into_send).into_response(),
            Err(_) => StatusCode::BAD_GATEWAY.into_response(),
        }
    })
    .await
}

async fn who(peer: Peer, _certificates: Option<PeerCertificates>) -> String {
    format!("{}, by {:?}, {:?}\n", peer.addr, peer.security, peer.alpn)
}

fn connect_info(app: Router) -> io::Result<()> {
    Server::bind("127.0.0.1:8080")?
        .serve_make_service(app.into_make_service_with_connect_info::<SocketAddr>())
}

async fn report() {}

fn limits() -> Router {
    let app = Router::new()
        .route("/report", get(report))
        .layer(ConcurrencyLimitLayer::new(100))
        .layer(RateLimitLayer::new(1_000, Duration::from_secs(1)))
        .layer(TimeoutLayer::new(Duration::from_secs(5)));
    app
}

fn news() -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::empty()
}

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let comment = || Event::default().comment("still here");
    Sse::new(KeepAlive::new(news(), comment).every(Duration::from_secs(10)))
}

fn files() -> io::Result<Router> {
    let page =
        ServeFile::new("app/index.html")?.cache_control(HeaderValue::from_static("no-cache"));
    let app = Router::new()
        .route_service("/favicon.ico", ServeFile::new("app/icon.ico")?)
        .nest_service("/assets", ServeDir::new("app/assets")?.precompressed(Precompressed::Offer))
        .fallback_service(ServeDir::new("app")?.fallback(page));
    Ok(app)
}

/// They are handlers.
fn handlers() -> Router<PerLoop<Client<Body>>> {
    Router::new().route("/", get(proxy)).route("/who", get(who)).route("/events", get(events))
}
