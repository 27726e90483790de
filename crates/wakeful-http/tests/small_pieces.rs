//! Responses over HTTP/2 whose bodies come in small pieces. h2 keeps each piece that waits for the
//! client as a frame of its own, and counts only the data.

mod common;

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::StreamBody;
use wakeful::{EventLoopBuilder, LoopGroup};
use wakeful_http::access_log::{AccessLog, Destination, Format, Query};
use wakeful_http::observe::Observe;
use wakeful_http::{RequestBody, Running, Server, service_fn};

use common::frames::{Client, DATA, END_STREAM, Frame, HEADERS, RST_STREAM, WINDOW_UPDATE};
use common::*;

const PIECES: usize = 100_000;

fn byte(number: usize) -> u8 {
    u8::try_from(number % 251).unwrap()
}

/// On one loop, with HTTP/2's largest windows.
fn start<B>(observe: Observe, body: impl Fn(&str) -> B + Clone + Send + Sync + 'static) -> Running
where
    B: Body<Data = Bytes, Error = io::Error> + 'static,
{
    let service = move || {
        let body = body.clone();
        service_fn(move |request: Request<RequestBody>| {
            let response = Response::new(body(request.uri().path()));
            std::future::ready(Ok::<_, Infallible>(response))
        })
    };
    let server = Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(1));
    server.observe(observe).start_with(service).unwrap()
}

/// A client whose windows are never full.
fn client(running: &Running) -> Client {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let mut client = Client::with_settings(running, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
    client.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
    client
}

/// The frames of the response's body, until the stream ends.
fn frames(client: &mut Client) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        let frame = client.wait_for_any();
        if frame.stream == 0 {
            continue;
        }
        let ends = frame.flags & END_STREAM != 0 || frame.kind == RST_STREAM;
        frames.push(frame);
        if ends {
            return frames;
        }
    }
}

fn data(frames: &[Frame]) -> Vec<u8> {
    let data = frames.iter().filter(|frame| frame.kind == DATA);
    data.flat_map(|frame| frame.payload.clone()).collect()
}

/// What the tests want to know of a body.
#[derive(Default)]
struct Watched {
    /// How many pieces were taken.
    taken: AtomicUsize,
    /// The most between two turns of another task.
    most: AtomicUsize,
    is_over: AtomicBool,
}

/// Pieces of one byte, which are all ready.
struct Bytewise {
    next: usize,
    watched: Arc<Watched>,
}

impl Body for Bytewise {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<http_body::Frame<Bytes>>>> {
        if self.next == PIECES {
            return Poll::Ready(None);
        }
        self.next += 1;
        self.watched.taken.store(self.next, Ordering::Relaxed);
        let piece = Bytes::copy_from_slice(&[byte(self.next - 1)]);
        Poll::Ready(Some(Ok(http_body::Frame::data(piece))))
    }
}

#[test]
fn small_pieces_become_few_frames_and_the_log_counts_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let log = AccessLog::new(Format::Json, Destination::File(path.clone()), Query::Omit).unwrap();
    let observe = Observe::new().access_log(log);
    let running = start(observe, |_| Bytewise { next: 0, watched: Arc::default() });
    let mut client = client(&running);
    client.get(1, "/");
    let frames = frames(&mut client);
    let expected: Vec<u8> = (0..PIECES).map(byte).collect();
    assert!(data(&frames) == expected, "the content is another");
    assert!(frames.len() <= PIECES / 256, "{} frames", frames.len());
    drop(client);
    running.shutdown(GUARD).unwrap();
    let log = std::fs::read_to_string(path).unwrap();
    assert!(log.contains(&format!("\"bytes\":{PIECES},")), "{log}");
    assert!(log.contains("\"aborted\":false"), "{log}");
}

/// A task that counts how many pieces are taken between two of its turns.
async fn look(watched: Arc<Watched>) {
    let mut before = 0;
    while !watched.is_over.load(Ordering::Relaxed) {
        let now = watched.taken.load(Ordering::Relaxed);
        watched.most.fetch_max(now - before, Ordering::Relaxed);
        before = now;
        wakeful::task::yield_now().await;
    }
}

#[test]
fn small_pieces_that_are_all_ready_leave_their_loop_to_others() {
    let watched = Arc::<Watched>::default();
    let of_body = watched.clone();
    let running = start(Observe::new(), move |_| {
        wakeful::spawn(look(of_body.clone())).detach();
        Bytewise { next: 0, watched: of_body.clone() }
    });
    let mut client = client(&running);
    client.get(1, "/");
    until("all are taken", || watched.taken.load(Ordering::Relaxed) == PIECES);
    assert_eq!(data(&frames(&mut client)).len(), PIECES);
    watched.is_over.store(true, Ordering::Relaxed);
    let most = watched.most.load(Ordering::Relaxed);
    assert!(most <= 2_000, "{most} pieces between two turns");
    drop(client);
    running.shutdown(GUARD).unwrap();
}

/// What a body has, in this order.
#[derive(Clone, Copy)]
enum Piece {
    Small(usize),
    Large,
    Pending,
    Trailers,
    Error,
    Panic,
}

/// Gives what `pieces` says, and remembers the content.
fn body(pieces: &'static [Piece]) -> impl Body<Data = Bytes, Error = io::Error> {
    let pieces = pieces.iter().flat_map(|piece| match *piece {
        Piece::Small(count) => vec![Piece::Small(1); count],
        piece => vec![piece],
    });
    let mut pieces = pieces.enumerate();
    StreamBody::new(futures_lite::stream::poll_fn(move |cx| {
        let frame = match pieces.next() {
            None => return Poll::Ready(None),
            Some((number, Piece::Small(_))) => Bytes::copy_from_slice(&[byte(number)]),
            Some((number, Piece::Large)) => vec![byte(number); 300].into(),
            Some((_, Piece::Pending)) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some((_, Piece::Trailers)) => {
                let mut trailers = HeaderMap::new();
                trailers.insert("x-end", "here".parse().unwrap());
                return Poll::Ready(Some(Ok(http_body::Frame::trailers(trailers))));
            }
            Some((_, Piece::Error)) => return Poll::Ready(Some(Err(io::Error::other("it fails")))),
            Some((_, Piece::Panic)) => panic!("of a body, on purpose"),
        };
        Poll::Ready(Some(Ok(http_body::Frame::data(frame))))
    }))
}

fn content(pieces: &[Piece]) -> Vec<u8> {
    let (mut content, mut number) = (Vec::new(), 0);
    for piece in pieces {
        match *piece {
            Piece::Small(count) => {
                content.extend((number..number + count).map(byte));
                number += count - 1;
            }
            Piece::Large => content.extend([byte(number); 300]),
            _ => {}
        }
        number += 1;
    }
    content
}

#[test]
fn joined_pieces_keep_their_order_and_their_end() {
    use Piece::{Error, Large, Panic, Pending, Small, Trailers};
    const BODIES: &[&[Piece]] = &[
        &[],
        &[Small(1)],
        &[Small(2)],
        &[Small(3), Trailers],
        &[Small(1), Pending, Small(1), Pending, Small(1), Pending, Trailers],
        &[Small(5), Pending, Small(5), Pending],
        &[Small(5), Large, Small(1), Large, Large, Small(5), Large],
        &[Large, Small(10_000), Large, Small(3), Pending, Small(2), Trailers],
        &[Pending, Small(7), Pending, Small(1), Pending, Small(1), Large, Trailers],
        &[Small(4), Pending, Pending, Error],
        &[Small(700), Error],
        &[Small(4), Panic],
        &[Small(4), Large, Panic],
    ];
    let running = start(Observe::new(), |path| body(BODIES[path[1..].parse::<usize>().unwrap()]));
    let mut client = client(&running);
    for (number, pieces) in BODIES.iter().enumerate() {
        let stream = u32::try_from(2 * number + 1).unwrap();
        client.get(stream, &format!("/{number}"));
        let frames = frames(&mut client);
        assert!(frames.iter().all(|frame| frame.stream == stream));
        let last = frames.last().unwrap();
        match pieces.last() {
            // h2 drops what it has not written.
            Some(Error | Panic) => {
                assert_eq!(last.kind, RST_STREAM, "{number}");
                assert!(content(pieces).starts_with(&data(&frames)), "{number}");
                continue;
            }
            Some(Trailers) => {
                assert_eq!((last.kind, last.flags & END_STREAM), (HEADERS, END_STREAM), "{number}");
            }
            _ => assert_eq!((last.kind, last.flags & END_STREAM), (DATA, END_STREAM), "{number}"),
        }
        assert!(data(&frames) == content(pieces), "{number}: {frames:?}");
    }
    until("none is in flight", || running.http_counts().in_flight() == 0);
    drop(client);
    running.shutdown(GUARD).unwrap();
}

/// A piece that another task makes: to await it spends budget, too.
fn made_elsewhere() -> impl Body<Data = Bytes, Error = io::Error> {
    let pieces = futures_lite::stream::unfold(0, |number| async move {
        let piece = wakeful::spawn(async move { Bytes::from(vec![byte(number)]) });
        let piece = piece.await.map(http_body::Frame::data).map_err(io::Error::other);
        (number < 20).then_some((piece, number + 1))
    });
    StreamBody::new(pieces)
}

#[test]
fn a_body_that_spends_budget_comes_with_the_smallest_budget() {
    let smallest = EventLoopBuilder::default().cooperative_budget(1);
    let group = LoopGroup::builder().loops(1).event_loop(smallest);
    let service = service_fn(|_: Request<RequestBody>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(made_elsewhere())))
    });
    let server = Server::bind("127.0.0.1:0").unwrap().group(group);
    let running = server.start_with(move || service).unwrap();
    let mut client = client(&running);
    client.get(1, "/");
    let frames = frames(&mut client);
    assert_eq!(data(&frames), (0..20).map(byte).collect::<Vec<_>>());
    drop(client);
    running.shutdown(GUARD).unwrap();
}
