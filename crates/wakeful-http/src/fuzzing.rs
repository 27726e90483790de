//! What the targets in `proof/fuzz/` call, each with arbitrary bytes. The tests call it with
//! generated ones and with the corpus, so that it is gone through without a fuzzer as well.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;

use crate::framing::Framing;
use crate::limits::Limits;

/// Bytes of a connection of HTTP/1: hyper and [`Framing`] find the same requests at the same
/// places, and those with both lengths are refused, and no other ones.
///
/// # Panics
/// They do not.
pub fn framing(data: &[u8]) {
    let heads = heads_by_hyper(data);
    let mut framing = Framing::default();
    let (mut followed, mut begin) = (0, 0);
    for head in heads {
        // Byte by byte up to where hyper had it whole.
        while followed < head.end {
            assert!(!framing.next(), "a head of its own before {followed}: {head:?}");
            framing.feed(&data[followed..=followed]);
            followed += 1;
            if framing.is_between_requests() && followed < head.end {
                begin = followed;
            }
        }
        let is_served = framing.next();
        let (length, method, has_both) = parse(&data[begin..head.end]);
        assert_eq!((begin + length, &method), (head.end, &head.method), "from {begin} on");
        assert_eq!(is_served, !has_both, "from {begin} on: {head:?}");
        begin = head.end;
    }
    in_pieces(data);
}

/// It makes no difference in which pieces bytes come.
fn in_pieces(data: &[u8]) {
    let count = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut framing = Framing::default();
        pieces.for_each(|piece| framing.feed(piece));
        let clean = std::iter::from_fn(|| framing.next().then_some(())).count();
        (clean, framing)
    };
    let expected = count(&mut data.chunks(1));
    for size in [2, 3, 7, 64, data.len().max(1)] {
        assert_eq!(count(&mut data.chunks(size)), expected, "in pieces of {size}");
    }
}

/// How long a head is, its method, and whether it has both. hyper has called it whole.
fn parse(bytes: &[u8]) -> (usize, Method, bool) {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(bytes).expect("a head");
    let httparse::Status::Complete(length) = parsed else { panic!("a part of a head") };
    let has = |name: &str| request.headers.iter().any(|it| it.name.eq_ignore_ascii_case(name));
    let has_both = has("content-length") && has("transfer-encoding");
    let method = request.method.expect("a method").parse().expect("a method");
    (length, method, has_both)
}

#[derive(Debug)]
struct Head {
    method: Method,
    /// So much had been read.
    end: usize,
}

/// The requests that hyper's service is called with, when hyper reads byte by byte.
fn heads_by_hyper(data: &[u8]) -> Vec<Head> {
    let read = Rc::new(Cell::new(0));
    let heads = Rc::new(RefCell::new(Vec::new()));
    let service = {
        let (read, heads) = (read.clone(), heads.clone());
        service_fn(move |request: Request<Incoming>| {
            let head = Head { method: request.method().clone(), end: read.get() };
            heads.borrow_mut().push(head);
            async move {
                let mut body = request.into_body();
                while let Some(Ok(_)) = body.frame().await {}
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        })
    };
    let io = Script { data, read };
    let mut connection =
        pin!(crate::http1::builder(&Limits::default()).serve_connection(io, service));
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..100 + 10 * data.len() {
        if connection.as_mut().poll(&mut cx).is_ready() {
            return heads.take();
        }
    }
    panic!("hyper does not come to an end");
}

/// A client that sends its bytes one by one and reads everything.
struct Script<'a> {
    data: &'a [u8],
    read: Rc<Cell<usize>>,
}

impl Read for Script<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let at = self.read.get();
        if let Some(byte) = self.data.get(at)
            && buf.remaining() > 0
        {
            buf.put_slice(&[*byte]);
            self.read.set(at + 1);
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Script<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_corpus_of_framing() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proof/fuzz/corpus/framing");
        let mut inputs = 0;
        for file in std::fs::read_dir(&corpus).unwrap() {
            let path = file.unwrap().path();
            println!("{}", path.display());
            super::framing(&std::fs::read(path).unwrap());
            inputs += 1;
        }
        assert!(inputs > 10, "{inputs} in {}", corpus.display());
    }
}
