//! Server-sent events: a clock that ticks for each client, and news that come when somebody has
//! some, with comments in between that keep the connection alive.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use futures_util::stream::{Stream, StreamExt};
use tokio::sync::broadcast;
use tokio_stream::wrappers::IntervalStream;

#[derive(Clone)]
struct Newsroom {
    news: broadcast::Sender<String>,
    readers: Arc<AtomicUsize>,
}

/// One reader, until its stream is dropped.
struct Reader(Arc<AtomicUsize>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn clock() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let ticks = IntervalStream::new(tokio::time::interval(Duration::from_millis(5)));
    let ticks = ticks.enumerate();
    Sse::new(ticks.map(|(n, _)| Ok(Event::default().event("tick").id(n.to_string()).data("tock"))))
}

async fn news(State(room): State<Newsroom>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut news = room.news.subscribe();
    room.readers.fetch_add(1, Ordering::Relaxed);
    let reader = Reader(room.readers);
    let stream = async_stream::stream! {
        let _reader = reader;
        while let Ok(item) = news.recv().await {
            yield Ok(Event::default().data(item));
        }
    };
    let often = KeepAlive::new().interval(Duration::from_millis(20)).text("still here");
    Sse::new(stream).keep_alive(often)
}

async fn publish(State(room): State<Newsroom>, item: String) -> String {
    room.news.send(item).unwrap_or(0).to_string()
}

async fn readers(State(room): State<Newsroom>) -> String {
    room.readers.load(Ordering::Relaxed).to_string()
}

pub fn router() -> Router {
    let room = Newsroom { news: broadcast::channel(100).0, readers: Arc::default() };
    Router::new()
        .route("/clock", get(clock))
        .route("/news", get(news).post(publish))
        .route("/readers", get(readers))
        .with_state(room)
}
