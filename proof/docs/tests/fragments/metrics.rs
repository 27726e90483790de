//! docs/metrics.md

use std::io;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use wakeful_http::{Running, Server};
use wakeful_prometheus::register_server;

type Durations = Family<[(&'static str, String); 2], Histogram, fn() -> Histogram>;

fn durations(registry: &mut Registry) -> Durations {
    // 1 ms to 4 s.
    let new = || Histogram::new(exponential_buckets(0.001, 2.0, 13));
    let durations = Durations::new_with_constructor(new);
    let help = "From the handler's start to its response";
    registry.register_with_unit("http_request_duration", help, Unit::Seconds, durations.clone());
    durations
}

async fn measure(
    State(durations): State<Durations>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let start = Instant::now();
    let response = next.run(request).await;
    // The pattern, such as /users/{id}. Each path itself would be a series of its own.
    let route = path.map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let labels = [("route", route), ("status", response.status().as_u16().to_string())];
    durations.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
    response
}

fn start(app: Router) -> io::Result<(Running, Registry)> {
    let mut registry = Registry::default();
    let durations = durations(&mut registry);
    let app = app.layer(middleware::from_fn_with_state(durations, measure));
    let running = Server::bind("0.0.0.0:8080")?.start(app)?;
    register_server(&mut registry, &running);
    Ok((running, registry))
}

#[test]
fn a_request_is_measured_under_its_route() {
    use axum::body::Body;
    use axum::routing;
    use tower_service::Service;

    let mut registry = Registry::default();
    let durations = durations(&mut registry);
    let router = Router::new().route("/users/{id}", routing::get(|| async { "" }));
    let mut server = router.layer(middleware::from_fn_with_state(durations, measure));
    let text = wakeful::block_on(async {
        for path in ["/users/1", "/users/2", "/other"] {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            server.call(request).await.unwrap();
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    });
    let count = "http_request_duration_seconds_count";
    for line in [
        format!("{count}{{route=\"/users/{{id}}\",status=\"200\"}} 2\n"),
        format!("{count}{{route=\"none\",status=\"404\"}} 1\n"),
    ] {
        assert!(text.contains(&line), "{text}");
    }
}
