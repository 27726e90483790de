//! With HTTP/2: the streams whose response is not completely sent, and how much room the client
//! gives each of them.
//!
//! A stream's window (RFC 9113, 6.9) is the client's initial size, plus the client's updates for
//! the stream, less the DATA that was sent on it. The initial size may change at any time, which
//! changes the windows of all streams, so it is kept apart from what the streams have. The numbers
//! are the client's, and h2 refuses those that are too large, so here they only must not overflow.

use super::hand_over::HandOver;

/// A client's initial size of a window before it says otherwise (RFC 9113, 6.9.2).
const FIRST_WINDOW: u32 = 65_535;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct OpenStreams {
    /// In the order of their numbers, which is also the order of their requests. There may be more
    /// than the client may have open: responses may wait in h2 for as long as the client gives no
    /// room, and resets until they are written.
    streams: Vec<OpenStream>,
    most: usize,
    initial_window: u32,
    hand_over: HandOver,
    /// How many requests had come to the service when it was last concluded which stream each has.
    concluded: u64,
}

#[derive(Debug)]
struct OpenStream {
    stream: u32,
    /// Whether `request` is the request of this stream. If not, that one is an earlier or a later
    /// one, so that the requests are in their order.
    is_known: bool,
    request: u64,
    /// How much more than the initial window the client has given, less what was sent.
    credit: i64,
    sent: u64,
}

/// The `request` of a stream of which nothing was concluded yet.
const NONE_YET: u64 = u64::MAX;

impl OpenStream {
    /// Is it not to be known any more which request it has?
    fn is_unknown(&self) -> bool {
        !self.is_known && self.request != NONE_YET
    }
}

impl OpenStreams {
    /// Keeps track of at most `most` streams.
    pub(crate) fn new(most: usize) -> Self {
        let (streams, hand_over) = (Vec::new(), HandOver::default());
        let initial_window = FIRST_WINDOW;
        Self { streams, most, initial_window, hand_over, concluded: 0 }
    }

    /// How many streams are open.
    pub(crate) fn count(&self) -> usize {
        self.streams.len()
    }

    /// Is this stream open?
    pub(crate) fn has(&self, stream: u32) -> bool {
        self.place(stream).is_some()
    }

    /// The stream that was opened last, if it is open.
    pub(crate) fn last(&self) -> Option<u32> {
        self.streams.last().map(|last| last.stream)
    }

    /// Notes that the client has opened a stream. It must be a later one than those before.
    pub(crate) fn opens(&mut self, stream: u32) {
        self.hand_over.opens(stream, self.most);
        if self.streams.len() < self.most {
            let (is_known, request) = (false, NONE_YET);
            self.streams.push(OpenStream { stream, is_known, request, credit: 0, sent: 0 });
        }
    }

    /// Notes that the client has reset a stream.
    pub(crate) fn client_resets(&mut self, stream: u32) {
        if let Some(place) = self.place(stream) {
            self.streams.remove(place);
        }
    }

    /// Notes that the server has sent the last frame of a stream.
    pub(crate) fn server_ends(&mut self, stream: u32) {
        self.hand_over.server_ends(stream);
        self.client_resets(stream);
    }

    /// Notes the client's initial window.
    pub(crate) fn begin_with(&mut self, bytes: u32) {
        self.initial_window = bytes;
    }

    /// Notes that the client lets a stream have `bytes` more.
    pub(crate) fn may_have(&mut self, stream: u32, bytes: u32) {
        if let Some(place) = self.place(stream) {
            let credit = &mut self.streams[place].credit;
            *credit = credit.saturating_add(bytes.into());
        }
    }

    /// Notes that the server has sent a DATA frame of `length` bytes. Its padding counts.
    #[inline]
    pub(crate) fn sent(&mut self, stream: u32, length: u32) {
        if let Some(place) = self.place(stream) {
            let open = &mut self.streams[place];
            open.credit = open.credit.saturating_sub(length.into());
            open.sent = open.sent.saturating_add(length.into());
        }
    }

    /// Notes, after a poll in which everything was written, that `requests` have come to the
    /// service in all. The header of the stream `begins` has not ended.
    pub(crate) fn handed_over(&mut self, requests: u64, begins: Option<u32>) {
        let Self { streams, hand_over, concluded, .. } = self;
        *concluded = requests;
        hand_over.conclude(requests, begins, |stream, request| {
            if let Ok(place) = streams.binary_search_by_key(&stream, |open| open.stream) {
                (streams[place].is_known, streams[place].request) = (true, request);
            }
        });
        // Those that are left have none.
        let is_left = |open: &&mut OpenStream| open.request == NONE_YET;
        let rest = streams.iter_mut().rev().take_while(is_left);
        for open in rest.filter(|open| Some(open.stream) != begins) {
            open.request = requests;
        }
    }

    /// If the client gives the stream of a request no room: how much was sent on it so far. `None`
    /// if there is room.
    ///
    /// If it is not known which stream the request has, it may be any of those of which this is
    /// not known, so it counts as the one of them on which least was sent. A client could arrange
    /// that, and must not gain by it.
    pub(crate) fn sent_without_room(&self, request: u64) -> Option<u64> {
        let place = self.streams.partition_point(|open| open.request < request);
        let at = self.streams.get(place).filter(|open| open.is_known && open.request == request);
        match at {
            Some(open) => self.has_no_room(open).then_some(open.sent),
            None if request > self.concluded => None,
            None => {
                let is_shut = |open: &OpenStream| open.is_unknown() && self.has_no_room(open);
                self.streams.iter().filter(|open| is_shut(open)).map(|open| open.sent).min()
            }
        }
    }

    fn has_no_room(&self, open: &OpenStream) -> bool {
        i64::from(self.initial_window).saturating_add(open.credit) <= 0
    }

    fn place(&self, stream: u32) -> Option<usize> {
        self.streams.binary_search_by_key(&stream, |open| open.stream).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shut(open: &OpenStreams, requests: impl Iterator<Item = u64>) -> Vec<u64> {
        requests.filter(|request| open.sent_without_room(*request).is_some()).collect()
    }

    #[test]
    fn requests_whose_streams_are_not_certain_count_as_the_slowest() {
        let mut open = OpenStreams::new(10);
        open.begin_with(0);
        [1, 3].iter().for_each(|stream| open.opens(*stream));
        open.handed_over(2, None);
        // One of these was refused without a word.
        [5, 7, 9].iter().for_each(|stream| open.opens(*stream));
        open.handed_over(4, None);
        [11, 13].iter().for_each(|stream| open.opens(*stream));
        open.handed_over(5, Some(13));
        assert_eq!(shut(&open, 1..9), [1, 2, 3, 4, 5]);
        for (stream, bytes) in [(1, 1), (5, 2), (7, 3), (9, 4), (11, 8), (13, 16)] {
            open.sent(stream, bytes);
        }
        let sent = [1, 2, 3, 4, 5].map(|request| open.sent_without_room(request).unwrap());
        assert_eq!(sent, [1, 0, 2, 2, 8]);
        // One without room is enough.
        [5, 7].iter().for_each(|stream| open.may_have(*stream, 10));
        assert_eq!(shut(&open, 1..9), [1, 2, 3, 4, 5]);
        open.may_have(9, 10);
        assert_eq!(shut(&open, 1..9), [1, 2, 5]);
        open.server_ends(3);
        open.handed_over(6, None);
        assert_eq!(shut(&open, 1..9), [1, 5, 6]);
        open.may_have(13, 17);
        assert_eq!(shut(&open, 1..9), [1, 5]);
    }

    #[test]
    fn streams_beyond_the_most_have_room_and_the_others_have_not() {
        let mut open = OpenStreams::new(2);
        open.begin_with(0);
        [1, 3].iter().for_each(|stream| open.opens(*stream));
        open.handed_over(2, None);
        open.opens(5);
        open.handed_over(3, None);
        open.client_resets(1);
        open.opens(7);
        open.handed_over(4, None);
        assert_eq!(shut(&open, 0..9), [2, 4]);
        assert_eq!((open.count(), open.last()), (2, Some(7)));
    }

    #[test]
    fn no_number_of_the_client_overflows() {
        let mut open = OpenStreams::new(2);
        open.begin_with(u32::MAX);
        open.opens(1);
        open.handed_over(1, None);
        open.streams[0].credit = i64::MAX;
        open.may_have(1, u32::MAX);
        assert_eq!(open.sent_without_room(1), None);
        open.streams[0].credit = i64::MIN;
        open.sent(1, u32::MAX);
        assert_eq!(open.sent_without_room(1), Some(u32::MAX.into()));
    }
}
