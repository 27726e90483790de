//! A handler of axum that asks another server, by the client of its loop, and passes the answer on.
//!
//! axum asks for handlers whose futures are `Send`. The client is not: its connections belong to
//! one loop. `PerLoop` makes a client on each loop, and `on_this_loop` wraps the part of the
//! handler that uses it.
//!
//! ```console
//! $ cargo run -p wakeful-http --example hello &
//! $ cargo run -p wakeful-http --example proxy_handler -- 127.0.0.1:8081 http://127.0.0.1:8080
//! $ curl 127.0.0.1:8081/
//! ```

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use wakeful::{PerLoop, on_this_loop};
use wakeful_http::client::{Client, ResponseBody};

#[derive(Clone)]
struct Upstream {
    client: PerLoop<Client<Body>>,
    base: String,
}

async fn proxy(State(upstream): State<Upstream>, mut request: Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let Ok(uri) = format!("{}{path}", upstream.base).parse() else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    *request.uri_mut() = uri;
    // The client puts its own.
    request.headers_mut().remove(header::HOST);
    on_this_loop(async move {
        match upstream.client.get().send(request).await {
            Ok(response) => response.map(ResponseBody::into_send).into_response(),
            Err(error) => (StatusCode::BAD_GATEWAY, format!("{error}\n")).into_response(),
        }
    })
    .await
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let addr = arguments.next().unwrap_or("127.0.0.1:8081".to_owned());
    let base = arguments.next().unwrap_or("http://127.0.0.1:8080".to_owned());
    let upstream = Upstream { client: PerLoop::new(Client::new), base };
    let app = Router::new().fallback(proxy).with_state(upstream);
    wakeful_http::Server::bind(addr.as_str())?.serve(app)
}
