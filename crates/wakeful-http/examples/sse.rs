//! Server-sent events: each client hears a tick once a second. A server that drains gives the
//! streams the grace period, and then ends them.
//!
//! (`Sse::keep_alive` needs axum's feature `tokio` and its timers: send comments by
//! `Event::default().comment(…)` where a proxy asks for them.)
//!
//! ```console
//! $ cargo run --release -p wakeful-http --example sse
//! $ curl -N http://127.0.0.1:8080/events
//! ```

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::{Router, routing::get};
use futures_lite::stream::{self, Stream};
use wakeful::time::sleep;
use wakeful_http::DrainPlan;

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let numbered = stream::unfold(0_u64, |number| async move {
        if number > 0 {
            sleep(Duration::from_secs(1)).await;
        }
        let event =
            Event::default().id(number.to_string()).event("tick").data(format!("tick {number}"));
        Some((Ok(event), number + 1))
    });
    Sse::new(numbered)
}

fn main() -> std::io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    let app = Router::new().route("/events", get(events));
    let plan = DrainPlan::new().grace(Duration::from_secs(2));
    wakeful_http::Server::bind(addr.as_str())?.drain_plan(plan).serve(app)
}
