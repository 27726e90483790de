//! With HTTP/2: which request is which stream. hyper does not say, so this is concluded.
//!
//! h2 hands over requests in the order of their HEADERS. It has read all that there is, and has
//! written what it refuses, before it hands over anything, unless the socket takes nothing. So
//! after a poll of the connection each stream that was opened has come to the service or was
//! refused, and a refused one was ended by a frame of the server: a RST_STREAM, or a 431 with
//! END_STREAM. A stream that its client has reset comes to the service, too.
//!
//! If the numbers do not agree, no stream of that poll gets a request.

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    /// The streams that were opened and of which it is not known yet.
    opened: Vec<Opened>,
    /// Whether more were opened than there is room for.
    is_full: bool,
    /// How many requests had come to the service when it was last concluded.
    requests: u64,
}

#[derive(Debug)]
struct Opened {
    stream: u32,
    /// Whether the server has ended the stream.
    is_ended: bool,
}

impl HandOver {
    /// Notes that the client has opened a stream. No more than `most` are kept.
    pub(super) fn opens(&mut self, stream: u32, most: usize) {
        self.is_full |= self.opened.len() >= most;
        if !self.is_full {
            self.opened.push(Opened { stream, is_ended: false });
        }
    }

    /// Notes that the server has ended a stream.
    #[inline]
    pub(super) fn server_ends(&mut self, stream: u32) {
        if self.opened.is_empty() {
            return;
        }
        if let Ok(place) = self.opened.binary_search_by_key(&stream, |opened| opened.stream) {
            self.opened[place].is_ended = true;
        }
    }

    /// Concludes, after a poll in which everything was written. `requests` have come to the service
    /// in all. The header of the stream `begins` has not ended, so it is no request yet. Calls
    /// `each` with the streams that are certain and the numbers of their requests.
    pub(super) fn conclude(
        &mut self,
        requests: u64,
        begins: Option<u32>,
        mut each: impl FnMut(u32, u64),
    ) {
        if self.opened.is_empty() && self.requests == requests {
            return;
        }
        let begins = self.opened.pop_if(|last| Some(last.stream) == begins);
        let (opened, came) = (self.opened.len() as u64, requests - self.requests);
        let ended = self.opened.iter().filter(|opened| opened.is_ended).count() as u64;
        // One that was handed over may have been ended, too, for what its client sent next.
        let are_all = came == opened;
        if !self.is_full && (are_all || came + ended == opened) {
            let handed_over = self.opened.iter().filter(|opened| are_all || !opened.is_ended);
            for (number, opened) in (self.requests + 1..).zip(handed_over) {
                each(opened.stream, number);
            }
        }
        self.requests = requests;
        self.is_full = false;
        self.opened.clear();
        self.opened.extend(begins);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concluded(it: &mut HandOver, requests: u64, begins: Option<u32>) -> Vec<(u32, u64)> {
        let mut pairs = Vec::new();
        it.conclude(requests, begins, |stream, number| pairs.push((stream, number)));
        pairs
    }

    fn opened(streams: &[u32], ended: &[u32]) -> HandOver {
        let mut it = HandOver::default();
        streams.iter().for_each(|stream| it.opens(*stream, 5));
        ended.iter().for_each(|stream| it.server_ends(*stream));
        it
    }

    #[test]
    fn requests_have_the_streams_in_their_order() {
        let mut it = opened(&[1, 3], &[]);
        assert_eq!(concluded(&mut it, 2, None), [(1, 1), (3, 2)]);
        assert_eq!(concluded(&mut it, 2, None), []);
        // A stream that is known no longer counts.
        it.server_ends(3);
        it.opens(9, 5);
        assert_eq!(concluded(&mut it, 3, None), [(9, 3)]);
    }

    #[test]
    fn what_was_refused_has_no_request() {
        let mut it = opened(&[1, 3, 5, 7], &[3, 7]);
        assert_eq!(concluded(&mut it, 2, None), [(1, 1), (5, 2)]);
        // These have come, and were ended afterwards.
        let mut it = opened(&[1, 3], &[1]);
        assert_eq!(concluded(&mut it, 2, None), [(1, 1), (3, 2)]);
    }

    #[test]
    fn the_stream_of_half_a_header_waits() {
        let mut it = opened(&[1, 3], &[]);
        assert_eq!(concluded(&mut it, 1, Some(3)), [(1, 1)]);
        it.opens(5, 5);
        assert_eq!(concluded(&mut it, 3, None), [(3, 2), (5, 3)]);
        // A header of trailers belongs to no new stream.
        it.opens(7, 5);
        assert_eq!(concluded(&mut it, 4, Some(5)), [(7, 4)]);
    }

    #[test]
    fn what_is_not_certain_has_no_request_and_the_next_one_has() {
        for (streams, ended, requests) in [
            // Nothing says which of them was refused.
            (&[1, 3, 5][..], &[][..], 2),
            (&[1, 3, 5], &[1, 3], 2),
            // More came than was opened.
            (&[1], &[], 2),
            // There was no room for the last one, and any of them may have been refused.
            (&[1, 3, 5, 7, 9, 11], &[], 5),
            (&[1, 3, 5, 7, 9, 11], &[], 6),
        ] {
            let mut it = opened(streams, ended);
            assert_eq!(concluded(&mut it, requests, None), [], "{streams:?} {ended:?}");
            it.opens(13, 5);
            assert_eq!(concluded(&mut it, requests + 1, None), [(13, requests + 1)]);
        }
    }
}
