//! OpenTelemetry traces without a tokio runtime: each request's span continues the client's trace,
//! and a thread of the SDK exports them in batches.
//!
//! ```console
//! $ cargo run --release -p wakeful-http --example opentelemetry
//! $ curl -H 'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' \
//!     http://127.0.0.1:8080/work
//! ```
//!
//! The spans are printed when the server ends, or each five seconds. To send them to a collector,
//! take `opentelemetry-otlp` with `default-features = false` and the features `trace`, `http-proto`
//! and `reqwest-blocking-client` for the exporter: it blocks the SDK's thread, never a loop.
//! (`grpc-tonic`, and the SDK's `rt-tokio`, need a tokio runtime.)

use std::time::Duration;

use axum::{Router, routing::get};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use wakeful_http::Server;
use wakeful_http::observe::{Observe, RequestIds};

struct Headers<'a>(&'a http::HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

/// With the fields' names of OpenTelemetry's conventions.
fn observe() -> Observe {
    let propagator = TraceContextPropagator::new();
    Observe::new().request_ids(RequestIds::Accept).span(move |head| {
        let span = tracing::info_span!(
            "request",
            otel.name = %format_args!("{} {}", head.method, head.uri.path()),
            otel.kind = "server",
            http.request.method = %head.method,
            url.path = head.uri.path(),
            client.address = %head.peer.addr,
            status = Empty,
        );
        // The only possible error is that nothing collects traces.
        let _ = span.set_parent(propagator.extract(&Headers(head.headers)));
        span
    })
}

async fn work() -> &'static str {
    let step = tracing::info_span!("step");
    tracing::Instrument::instrument(wakeful::time::sleep(Duration::from_millis(1)), step).await;
    "done\n"
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A batch goes out from a thread of its own.
    let exporter = opentelemetry_stdout::SpanExporter::default();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("wakeful"));
    // Only what is for people to see: the runtime's own events are at debug and trace level.
    let level = tracing_subscriber::filter::LevelFilter::INFO;
    tracing::subscriber::set_global_default(
        tracing_subscriber::registry().with(level).with(layer),
    )?;

    let addr = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    let app = Router::new().route("/work", get(work));
    Server::bind(addr.as_str())?.observe(observe()).serve(app)?;
    // What is left is exported now.
    provider.shutdown()?;
    Ok(())
}
