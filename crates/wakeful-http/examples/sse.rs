//! Server-sent events: each client hears a tick once in five seconds, and a comment after each
//! second of silence, so that no proxy takes the connection for an idle one. When the server
//! drains, it says so and ends the streams. A client that leaves is noticed by the next event or
//! comment at the latest, and its stream is dropped.
//!
//! ```console
//! $ cargo run --release -p wakeful-http --example sse
//! $ curl -N http://127.0.0.1:8080/events
//! ```

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::{Router, routing::get};
use futures_lite::FutureExt;
use futures_lite::stream::{self, Stream};
use wakeful::time::sleep;
use wakeful_http::sse::KeepAlive;
use wakeful_http::{DrainPlan, drain_begins};

/// The next number to tell; `None` after the last event.
type Next = Option<u64>;

async fn event(next: Next) -> Option<(Result<Event, Infallible>, Next)> {
    let number = next?;
    let tick = async {
        sleep(Duration::from_secs(if number > 0 { 5 } else { 0 })).await;
        Some(number + 1)
    };
    let end = async {
        drain_begins().await;
        None
    };
    let event = match tick.or(end).await {
        None => (Event::default().event("end").data("the server ends"), None),
        next => (Event::default().id(number.to_string()).data(format!("tick {number}")), next),
    };
    Some((Ok(event.0), event.1))
}

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let comment = || Event::default().comment("still here");
    let events = KeepAlive::new(stream::unfold(Some(0), event), comment);
    Sse::new(events.every(Duration::from_secs(1)))
}

fn main() -> std::io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    let app = Router::new().route("/events", get(events));
    let plan = DrainPlan::new().grace(Duration::from_secs(2));
    wakeful_http::Server::bind(addr.as_str())?.drain_plan(plan).serve(app)
}
