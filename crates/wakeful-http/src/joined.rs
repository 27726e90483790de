//! Joins the small pieces of a body that is sent with HTTP/2.
//!
//! h2 keeps each piece that waits for the peer as a frame of about 300 bytes, and counts only the
//! piece's data for its send buffer. So pieces of one byte would take 300 times as much memory. A
//! peer that uses h2 also counts how many bytes its unread frames are short of 256, and ends the
//! connection if that is too much. Here small pieces that are ready one after the other become one
//! frame. No piece waits for the next one: if the body is pending, what there is goes to h2.
//!
//! A body is not polled ahead, and no piece is copied, until two small pieces were ready in a row.
//! So a stream of single messages costs nothing more.

use std::future::Future;
use std::io::IoSlice;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::Frame;
use wakeful::task::consume_budget;

use crate::error::BoxError;
use crate::foreign_code::{self, Contained};
use crate::{foreign_error, own_values};

/// A piece with fewer bytes is small.
const SMALL: usize = 256;

/// The most bytes of joined pieces.
const MOST: usize = 4 << 10;

/// A longer piece is sent in parts: h2 takes fewer than 2³¹ bytes at a time.
const LONGEST: usize = 1 << 30;

/// Joining this many pieces spends one operation of the task's budget.
const PIECES_OF_AN_OPERATION: usize = 8;

/// What a body answers when it is polled.
pub(crate) type Polled<D> = Poll<Option<Result<Frame<Data<D>>, BoxError>>>;

/// The data of one frame.
pub(crate) enum Data<D> {
    /// A piece of the body, as it is.
    Own(Contained<D>),
    Joined(Bytes),
}

impl<D: Buf> Data<D> {
    /// Does `chunks_vectored` return all of it, or as much as there is room for?
    fn is_vectored(&self) -> bool {
        let length = self.remaining();
        if self.chunk().len() >= length {
            return true;
        }
        let mut slices = [IoSlice::new(&[]); 8];
        let count = self.chunks_vectored(&mut slices);
        count == slices.len()
            || slices[..count].iter().map(|slice| slice.len()).sum::<usize>() >= length
    }
}

/// Copies the piece that `polled` is, if it has several chunks, and its `chunks_vectored` returns
/// only some of them, as it may. With HTTP/1.1 hyper takes the next piece for what comes after
/// these.
#[inline]
pub(crate) fn vectored<D: Buf>(mut polled: Polled<D>) -> Polled<D> {
    if let Poll::Ready(Some(Ok(frame))) = &mut polled
        && let Some(data) = frame.data_mut()
        && !data.is_vectored()
    {
        *data = Data::Joined(data.copy_to_bytes(data.remaining()));
    }
    polled
}

impl<D: Buf> Buf for Data<D> {
    #[inline]
    fn remaining(&self) -> usize {
        match self {
            Self::Own(data) => data.remaining(),
            Self::Joined(bytes) => bytes.remaining(),
        }
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        match self {
            Self::Own(data) => data.chunk(),
            Self::Joined(bytes) => bytes.chunk(),
        }
    }

    #[inline]
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        match self {
            Self::Own(data) => data.chunks_vectored(slices),
            Self::Joined(bytes) => bytes.chunks_vectored(slices),
        }
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        match self {
            Self::Own(data) => data.advance(count),
            Self::Joined(bytes) => bytes.advance(count),
        }
    }

    #[inline]
    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        match self {
            Self::Own(data) => data.copy_to_bytes(length),
            Self::Joined(bytes) => bytes.copy_to_bytes(length),
        }
    }
}

/// A body whose pieces are joined.
pub(crate) trait Source {
    type Data: Buf;

    /// Polls for a frame with content.
    fn poll(&mut self, cx: &mut Context<'_>) -> Polled<Self::Data>;

    /// Is the body at its end? Does not panic.
    fn is_at_end(&self) -> bool;
}

/// Polls a body of the program for a frame with content.
#[inline]
pub(crate) fn poll_frame<D: Buf, E: Into<BoxError>>(
    cx: &mut Context<'_>,
    mut poll_frame: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<D>, E>>>,
) -> Polled<D> {
    foreign_code::poll_frame_with_data(cx, |cx| {
        // This comes first, because later calls on the frame may panic, and then its drop may
        // panic, too.
        let polled = poll_frame(cx).map_ok(|frame| {
            own_values::of_trailers(frame.map_data(|data| Data::Own(Contained::new(data))))
        });
        polled.map_err(foreign_error::guard)
    })
}

/// How far the joining of a body's pieces has come.
pub(crate) struct Joining<D> {
    pace: Pace,
    /// What came after the pieces that were last joined: a frame that is not small, an error, or
    /// the end. Or the rest of a very long piece.
    next: Option<Box<Polled<D>>>,
}

/// How the small pieces of a body come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// One at a time.
    #[default]
    Single,
    /// The last one was given to hyper, and the body was not polled since.
    AfterOne,
    /// Several were ready in a row.
    Many,
}

impl<D> Default for Joining<D> {
    fn default() -> Self {
        Self { pace: Pace::default(), next: None }
    }
}

impl<D> Joining<D> {
    /// Is the body at its end, and nothing of it is kept here?
    #[inline]
    pub(crate) fn is_at_end(&self, is_at_end: impl FnOnce() -> bool) -> bool {
        match self.next.as_deref() {
            None => is_at_end(),
            Some(next) => matches!(next, Poll::Ready(None)),
        }
    }

    /// Is something of the body kept here?
    #[inline]
    pub(crate) fn keeps_some(&self) -> bool {
        self.next.is_some()
    }
}

impl<D: Buf> Joining<D> {
    /// Polls for the next frame.
    pub(crate) fn poll(
        &mut self,
        source: &mut impl Source<Data = D>,
        cx: &mut Context<'_>,
    ) -> Polled<D> {
        let polled = match self.next.take() {
            Some(next) => return self.part_of(*next),
            None => source.poll(cx),
        };
        if self.pace == Pace::Single {
            if small_length(&polled).is_some() {
                self.pace = Pace::AfterOne;
            }
            return self.part_of(polled);
        }
        match small(polled) {
            Ok(piece) => Poll::Ready(Some(Ok(Frame::data(self.join(piece, source, cx))))),
            Err(other) => {
                if self.pace == Pace::AfterOne {
                    self.pace = Pace::Single;
                }
                self.part_of(other)
            }
        }
    }

    /// If it is a very long piece, returns a part of it, and keeps the rest.
    #[inline]
    fn part_of(&mut self, polled: Polled<D>) -> Polled<D> {
        let length = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref().map_or(0, Buf::remaining),
            _ => 0,
        };
        if length <= LONGEST { polled } else { self.part_of_long(polled) }
    }

    #[cold]
    fn part_of_long(&mut self, mut polled: Polled<D>) -> Polled<D> {
        let Poll::Ready(Some(Ok(frame))) = &mut polled else { return polled };
        let Some(data) = frame.data_mut() else { return polled };
        let part = Data::Joined(data.copy_to_bytes(LONGEST));
        self.next = Some(Box::new(polled));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    /// Joins `first` and the small pieces that are ready after it. If the body panics, they are
    /// lost, and so is what h2 has not written yet.
    fn join(
        &mut self,
        first: Small<D>,
        source: &mut impl Source<Data = D>,
        cx: &mut Context<'_>,
    ) -> Data<D> {
        let (mut joined, mut count) = (Joined::new(first), 1);
        while joined.has_room() && !source.is_at_end() && spends(count, cx) {
            match small(source.poll(cx)) {
                Ok(piece) => joined.push(piece),
                Err(Poll::Pending) => break,
                Err(next) => {
                    self.next = Some(Box::new(next));
                    break;
                }
            }
            count += 1;
        }
        self.pace = if count > 1 { Pace::Many } else { Pace::Single };
        joined.into_data()
    }
}

/// Spends budget, if the number of pieces says so. Returns whether there is some left.
fn spends(count: usize, cx: &mut Context<'_>) -> bool {
    !count.is_multiple_of(PIECES_OF_AN_OPERATION) || pin!(consume_budget()).poll(cx).is_ready()
}

/// A small piece, and its length.
struct Small<D> {
    data: Data<D>,
    length: usize,
}

/// The length of the small piece that `polled` is.
#[inline]
fn small_length<D: Buf>(polled: &Polled<D>) -> Option<usize> {
    let Poll::Ready(Some(Ok(frame))) = polled else { return None };
    frame.data_ref().map(Buf::remaining).filter(|length| *length < SMALL)
}

/// The small piece that `polled` is.
fn small<D: Buf>(polled: Polled<D>) -> Result<Small<D>, Polled<D>> {
    match (small_length(&polled), polled) {
        (Some(length), Poll::Ready(Some(Ok(frame)))) => match frame.into_data() {
            Ok(data) => Ok(Small { data, length }),
            Err(frame) => Err(Poll::Ready(Some(Ok(frame)))),
        },
        (_, polled) => Err(polled),
    }
}

/// Pieces that are joined.
struct Joined<D> {
    /// The first piece, as long as it is the only one.
    first: Option<Small<D>>,
    bytes: Vec<u8>,
}

impl<D: Buf> Joined<D> {
    fn new(first: Small<D>) -> Self {
        Self { first: Some(first), bytes: Vec::new() }
    }

    fn has_room(&self) -> bool {
        self.bytes.len() + SMALL <= MOST
    }

    fn push(&mut self, piece: Small<D>) {
        if let Some(first) = self.first.take() {
            self.bytes.reserve_exact(SMALL.max(first.length + piece.length));
            self.append(first);
        }
        self.append(piece);
    }

    fn append(&mut self, piece: Small<D>) {
        let Small { mut data, length } = piece;
        let mut left = length;
        while left > 0 {
            let chunk = data.chunk();
            assert!(!chunk.is_empty(), "a body's data has less than it says");
            let count = chunk.len().min(left);
            self.bytes.extend_from_slice(&chunk[..count]);
            data.advance(count);
            left -= count;
        }
    }

    fn into_data(self) -> Data<D> {
        self.first.map_or_else(|| Data::Joined(self.bytes.into()), |first| first.data)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::task::Waker;

    use bytes::buf::Chain;
    use http::HeaderMap;

    use super::*;

    type Piece = Chain<Bytes, Bytes>;

    /// A body that gives what it has, and counts its polls. `None`: pending.
    struct Script {
        pieces: VecDeque<Option<Frame<Piece>>>,
        polls: usize,
        /// Whether it says that it is at its end.
        tells_end: bool,
    }

    impl Source for Script {
        type Data = Piece;

        fn poll(&mut self, cx: &mut Context<'_>) -> Polled<Piece> {
            self.polls += 1;
            let next = match self.pieces.pop_front() {
                None => Poll::Ready(None),
                Some(None) => Poll::Pending,
                Some(Some(frame)) => Poll::Ready(Some(Ok::<_, Infallible>(frame))),
            };
            let mut next = Some(next);
            poll_frame(cx, |_| next.take().expect("it is polled once"))
        }

        fn is_at_end(&self) -> bool {
            self.tells_end && self.pieces.is_empty()
        }
    }

    fn piece(bytes: &Bytes) -> Option<Frame<Piece>> {
        let middle = bytes.len() / 2;
        Some(Frame::data(bytes.slice(..middle).chain(bytes.slice(middle..))))
    }

    fn script(pieces: impl IntoIterator<Item = Option<Frame<Piece>>>) -> Script {
        Script { pieces: pieces.into_iter().collect(), polls: 0, tells_end: true }
    }

    fn poll(joining: &mut Joining<Piece>, body: &mut Script) -> Polled<Piece> {
        joining.poll(body, &mut Context::from_waker(Waker::noop()))
    }

    /// The data that comes next, and whether it was joined.
    fn data(joining: &mut Joining<Piece>, body: &mut Script) -> (Bytes, bool) {
        let Poll::Ready(Some(Ok(frame))) = poll(joining, body) else { panic!("no frame") };
        let Ok(mut data) = frame.into_data() else { panic!("no data") };
        let is_joined = matches!(data, Data::Joined(_));
        (data.copy_to_bytes(data.remaining()), is_joined)
    }

    #[test]
    fn single_pieces_are_neither_copied_nor_polled_ahead() {
        let (small, large) = (Bytes::from_static(b"small"), Bytes::from(vec![7; SMALL]));
        let trailers = Some(Frame::trailers(HeaderMap::new()));
        let pieces =
            [piece(&small), None, piece(&small), None, piece(&large), piece(&small), trailers];
        let (mut body, mut joining) = (script(pieces), Joining::default());
        let mut polls = 0;
        for expected in [&small, &small, &large, &small] {
            polls += 1;
            let mut polled = poll(&mut joining, &mut body);
            if polled.is_pending() {
                polls += 1;
                polled = poll(&mut joining, &mut body);
            }
            let Poll::Ready(Some(Ok(frame))) = polled else { panic!("no frame") };
            let Ok(Data::Own(data)) = frame.into_data() else { panic!("it is joined") };
            assert_eq!(data.remaining(), expected.len());
            assert_eq!(data.chunk().as_ptr(), expected.as_ptr());
            assert_eq!(body.polls, polls);
        }
        assert!(
            matches!(poll(&mut joining, &mut body), Poll::Ready(Some(Ok(f))) if f.is_trailers())
        );
    }

    #[test]
    fn one_piece_that_nothing_ready_follows_is_not_copied() {
        let one = Bytes::from_static(b"one");
        let pieces = [piece(&one), piece(&one), None, piece(&one), piece(&one), piece(&one)];
        let (mut body, mut joining) = (script(pieces), Joining::default());
        assert_eq!(data(&mut joining, &mut body), (one.clone(), false));
        assert_eq!(data(&mut joining, &mut body), (one.clone(), false));
        assert_eq!(data(&mut joining, &mut body), (one.clone(), false));
        assert_eq!(data(&mut joining, &mut body), (Bytes::from_static(b"oneone"), true));
        assert!(joining.is_at_end(|| body.is_at_end()));
    }

    /// Says only of the first half that it can be written.
    struct Halves(Bytes);

    impl Buf for Halves {
        fn remaining(&self) -> usize {
            self.0.len()
        }

        fn chunk(&self) -> &[u8] {
            &self.0[..self.0.len().div_ceil(2)]
        }

        fn advance(&mut self, count: usize) {
            self.0.advance(count);
        }
    }

    #[test]
    fn a_piece_that_shows_only_its_first_chunk_is_copied_for_http1_and_no_other_one() {
        fn polled<D: Buf>(data: D) -> (Data<D>, Vec<u8>) {
            let frame = Frame::data(Data::Own(Contained::new(data)));
            let Poll::Ready(Some(Ok(frame))) = vectored(Poll::Ready(Some(Ok(frame)))) else {
                panic!("no frame")
            };
            let Ok(data) = frame.into_data() else { panic!("no data") };
            let mut slices = [IoSlice::new(&[]); 4];
            let count = data.chunks_vectored(&mut slices);
            let bytes = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
            (data, bytes)
        }
        let bytes = Bytes::from_static(b"one two");
        assert_eq!(polled(Halves(bytes.clone())).1, bytes);
        let (chain, of_chain) = polled(bytes.slice(..3).chain(bytes.slice(3..)));
        assert!(matches!(chain, Data::Own(_)));
        assert_eq!(of_chain, bytes);
        assert!(matches!(polled(bytes).0, Data::Own(_)));
    }

    /// Has more bytes than there is memory for.
    struct Huge(usize);

    impl Buf for Huge {
        fn remaining(&self) -> usize {
            self.0
        }

        fn chunk(&self) -> &[u8] {
            &[0; 1000]
        }

        fn advance(&mut self, count: usize) {
            self.0 -= count;
        }

        /// They are not looked at.
        fn copy_to_bytes(&mut self, length: usize) -> Bytes {
            self.advance(length);
            Bytes::new()
        }
    }

    impl Source for Option<Huge> {
        type Data = Huge;

        fn poll(&mut self, _: &mut Context<'_>) -> Polled<Huge> {
            let frame = self.take().map(|data| Frame::data(Data::Own(Contained::new(data))));
            Poll::Ready(frame.map(Ok))
        }

        fn is_at_end(&self) -> bool {
            self.is_none()
        }
    }

    #[test]
    fn a_piece_that_is_too_long_for_h2_is_sent_in_parts() {
        let mut joining = Joining::default();
        let mut source = Some(Huge(5 * LONGEST / 2));
        let mut rest = Vec::new();
        while !joining.is_at_end(|| source.is_at_end()) {
            let polled = joining.poll(&mut source, &mut Context::from_waker(Waker::noop()));
            let Poll::Ready(Some(Ok(frame))) = polled else { panic!("no frame") };
            match frame.into_data().ok() {
                Some(Data::Joined(_)) => rest.push(None),
                Some(Data::Own(data)) => rest.push(Some(data.remaining())),
                None => panic!("no data"),
            }
        }
        assert_eq!(rest, [None, None, Some(LONGEST / 2)]);
    }

    #[test]
    fn joined_pieces_are_whole_and_their_frames_bounded() {
        let content: Bytes = (0..20_000_u32).flat_map(u32::to_be_bytes).collect();
        for length in [1, 3, SMALL - 1] {
            let pieces = (0..content.len()).step_by(length);
            let pieces = pieces.map(|at| piece(&content.slice(at..content.len().min(at + length))));
            let (mut body, mut joining) = (script(pieces), Joining::default());
            let (mut come, mut frames) = (Vec::new(), 0);
            while !joining.is_at_end(|| body.is_at_end()) {
                let (data, _) = data(&mut joining, &mut body);
                assert!(data.len() <= MOST);
                come.extend_from_slice(&data);
                frames += 1;
            }
            assert!(come == content, "{length}");
            assert!(frames <= 2 + content.len() / (MOST - SMALL), "{length}: {frames}");
        }
    }

    #[test]
    fn what_comes_behind_joined_pieces_is_kept_and_is_the_end_if_it_is_the_end() {
        let (one, large) = (Bytes::from_static(b"one"), Bytes::from(vec![7; SMALL]));
        let pieces = [&one, &one, &one, &large, &one, &one, &one].map(piece);
        let (mut body, mut joining) = (script(pieces), Joining::default());
        body.tells_end = false;
        let mut lengths = Vec::new();
        while !joining.is_at_end(|| body.is_at_end()) {
            lengths.push(data(&mut joining, &mut body).0.len());
        }
        assert_eq!(lengths, [3, 6, SMALL, 9]);
    }
}
