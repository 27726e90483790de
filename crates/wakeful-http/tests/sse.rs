//! Streams of server-sent events that have nothing to say for a while.

mod common;

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_channel::Receiver;
use axum::Router;
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use common::{GUARD, raw, server, until};
use futures_lite::stream::{self, Stream, StreamExt};
use wakeful::time::timeout;
use wakeful_http::Running;
use wakeful_http::sse::KeepAlive;

const SOON: Duration = Duration::from_millis(5);

/// Is set when it is dropped.
#[derive(Clone, Default)]
struct Gone(Arc<AtomicBool>);

struct Guard(Gone);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}

type Events = std::pin::Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>>;

/// Events of `texts`, until all who send them are gone, with comments in between.
fn start(texts: Receiver<&'static str>, gone: Gone) -> Running {
    let events = move || {
        let (texts, guard) = (texts.clone(), Guard(gone.clone()));
        let events: Events =
            Box::pin(stream::unfold((texts, guard), |(texts, guard)| async move {
                let text = texts.recv().await.ok()?;
                Some((Ok(Event::default().data(text)), (texts, guard)))
            }));
        let comment = || Event::default().comment("still here");
        std::future::ready(Sse::new(KeepAlive::new(events, comment).every(SOON)))
    };
    server().start(Router::new().route("/", get(events))).unwrap()
}

/// Lines of an answer, without its header and its chunks' sizes.
struct Lines(BufReader<std::net::TcpStream>);

impl Lines {
    fn of(running: &Running) -> Self {
        let mut stream = raw(running);
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut lines = Self(BufReader::new(stream));
        assert_eq!(lines.next(), "HTTP/1.1 200 OK");
        while !lines.next().is_empty() {}
        lines
    }

    fn next(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line in time");
        line.trim_end().to_owned()
    }

    fn wait_for(&mut self, wanted: &str) {
        while self.next() != wanted {}
    }
}

#[test]
fn comments_keep_coming_around_events_and_end_with_them() {
    let (say, texts) = async_channel::unbounded();
    let running = start(texts, Gone::default());
    let mut lines = Lines::of(&running);
    for text in ["data: one", "data: two"] {
        for _ in 0..3 {
            lines.wait_for(": still here");
        }
        say.send_blocking(&text[6..]).unwrap();
        lines.wait_for(text);
    }
    lines.wait_for(": still here");
    say.close();
    // The last chunk, which is empty.
    lines.wait_for("0");
}

#[test]
fn the_stream_is_dropped_when_its_client_has_gone() {
    let (_say, texts) = async_channel::unbounded();
    let gone = Gone::default();
    let running = start(texts, gone.clone());
    let mut lines = Lines::of(&running);
    lines.wait_for(": still here");
    assert!(!gone.0.load(Ordering::SeqCst));
    drop(lines);
    until("the stream is dropped", || gone.0.load(Ordering::SeqCst));
}

fn on_a_loop<T>(test: impl Future<Output = T>) -> T {
    wakeful::block_on(timeout(GUARD, test)).expect("a hang is a failure")
}

#[test]
fn a_stream_that_is_never_silent_has_no_comments() {
    on_a_loop(async {
        let numbers = stream::iter(0..1000).map(Ok::<_, Infallible>);
        let kept: Vec<_> = KeepAlive::new(numbers, || -1).every(Duration::ZERO).collect().await;
        assert_eq!(kept, (0..1000).map(Ok).collect::<Vec<_>>());
    });
}

#[test]
fn an_interval_that_no_clock_can_hold_is_no_interval() {
    on_a_loop(async {
        let (say, said) = async_channel::bounded(1);
        let said = said.map(Ok::<_, Infallible>);
        let mut kept = pin!(KeepAlive::new(said, || -1).every(Duration::MAX));
        for number in 0..3 {
            assert_eq!(futures_lite::future::poll_once(kept.next()).await, None);
            say.send(number).await.unwrap();
            assert_eq!(kept.next().await, Some(Ok(number)));
        }
        say.close();
        assert_eq!(kept.next().await, None);
    });
}

/// Who writes a body asks for more as long as there is some.
#[test]
fn a_stream_that_takes_an_interval_for_each_poll_leaves_its_loop_to_others() {
    on_a_loop(async {
        let interval = Duration::from_millis(1);
        let slow = stream::poll_fn(|_| {
            std::thread::sleep(2 * interval);
            Poll::<Option<Result<i32, Infallible>>>::Pending
        });
        let mut kept = pin!(KeepAlive::new(slow, || -1).every(interval));
        for _ in 0..3 {
            assert_eq!(kept.next().await, Some(Ok(-1)));
            let another = futures_lite::future::poll_once(kept.next()).await;
            assert_eq!(another, None, "the next one comes behind the others' turn");
        }
    });
}

/// A silence is counted from the last item, whenever the timer was set.
#[test]
fn each_item_begins_the_interval_anew() {
    on_a_loop(async {
        let (say, said) = async_channel::bounded(1);
        let said = said.map(Ok::<_, Infallible>);
        let mut kept = pin!(KeepAlive::new(said, || -1).every(SOON));
        for number in 0..5 {
            assert_eq!(futures_lite::future::poll_once(kept.next()).await, None);
            // It would be over by now. The item comes first.
            std::thread::sleep(2 * SOON);
            say.send(number).await.unwrap();
            assert_eq!(kept.next().await, Some(Ok(number)));
        }
        assert_eq!(kept.next().await, Some(Ok(-1)));
    });
}
