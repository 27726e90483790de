//! Records each request. During the measured time the recorder neither allocates nor calls the
//! kernel, and all its pages have been touched before: it must not show in its own figures.

use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest time that is recorded exactly: one hour. Longer times count as one hour.
const LONGEST: u64 = 3_600_000_000_000;

/// Three significant digits: no value is off by more than 0.1 %.
const DIGITS: u8 = 3;

/// At most this many slices of the measured time have a histogram of their own.
const MOST_INTERVALS: u64 = 60;

/// The shortest slice.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// One request, from the schedule to its answer. Times are nanoseconds since the run began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// When it was due.
    pub(crate) intended: u64,
    /// When it was handed to the kernel.
    pub(crate) sent: u64,
    /// Which of several requests it is.
    pub(crate) kind: usize,
}

/// The distributions and counts of one measured time. All times are in nanoseconds. *Intended* is
/// when a request was due, *sent* when it was sent, and *done* when its answer was complete or the
/// run gave up waiting for it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Recording {
    window: Range<u64>,
    /// Response times of the answered requests: done − intended. Requests that were still
    /// unanswered when the run gave up are included, with the time until then. All other failed
    /// requests are not.
    pub response: Histogram<u64>,
    /// Service times of the answered requests: done − sent.
    pub service: Histogram<u64>,
    /// How late the generator was: sent − intended. If all connections were at their limit when the
    /// generator came to a request, only the time until then counts.
    pub send_lag: Histogram<u64>,
    /// Response times by kind of request. The list is empty if there is only one kind.
    pub by_kind: Vec<Histogram<u64>>,
    /// Response times by slices of the measured time. A request belongs to the slice in which it
    /// was due.
    pub intervals: Vec<Histogram<u64>>,
    /// The length of a slice of [`intervals`](Self::intervals).
    pub interval: Duration,
    /// The number of requests that were due in the measured time.
    pub offered: u64,
    /// The number of requests with a successful answer.
    pub answered: u64,
    /// The number of successful answers that came in the measured time, whenever their requests
    /// were due.
    pub answers: u64,
    /// The number of requests that failed, plus the number of connections on which the server broke
    /// the protocol while no request waited.
    pub failed: u64,
    /// The number of requests that waited because all connections were at their limit.
    pub waited_for_connection: u64,
}

impl Recording {
    /// Makes room for the requests that are due in `window`, in nanoseconds since the run began.
    /// `kinds` is the number of kinds of requests that get a histogram each. It may be 0.
    pub(crate) fn new(window: Range<u64>, kinds: usize) -> Self {
        let length = window.end - window.start;
        let interval = (length.div_ceil(MOST_INTERVALS)).max(nanoseconds(SHORTEST_INTERVAL));
        let intervals = usize::try_from(length.div_ceil(interval)).unwrap_or(1).max(1);
        Self {
            window,
            response: histogram(),
            service: histogram(),
            send_lag: histogram(),
            by_kind: (0..kinds).map(|_| histogram()).collect(),
            intervals: vec![histogram(); intervals],
            interval: Duration::from_nanos(interval),
            offered: 0,
            answered: 0,
            answers: 0,
            failed: 0,
            waited_for_connection: 0,
        }
    }

    /// Moves the measured time so that it begins at `start`. Its length stays. No request may have
    /// been recorded yet.
    pub(crate) fn begin_at(&mut self, start: u64) {
        self.answers = 0;
        self.window = start..start + (self.window.end - self.window.start);
    }

    /// Ends the measured time at `end`, if that is earlier than planned.
    pub(crate) fn end_at(&mut self, end: u64) {
        self.window.end = self.window.end.min(end);
    }

    /// Whether a request that was due then belongs to the measured time.
    pub(crate) fn covers(&self, intended: u64) -> bool {
        self.window.contains(&intended)
    }

    /// Whether the measured time has begun by `now`. It may also be over.
    pub(crate) fn has_begun(&self, now: u64) -> bool {
        self.window.start <= now
    }

    /// Records a request for which a connection was free.
    pub(crate) fn sent_at_once(&mut self, intended: u64, sent: u64) {
        self.send_lag.saturating_record(sent - intended);
    }

    /// Records a request to which the generator came at `now`, when all connections were at their
    /// limit. The wait that begins now is the server's. But a generator that stood still until now
    /// has not read answers either, and so has kept the connections at their limit itself.
    pub(crate) fn waits(&mut self, intended: u64, now: u64) {
        self.send_lag.saturating_record(now - intended);
        self.waited_for_connection += 1;
    }

    /// Notes that a successful answer came, to whichever request.
    pub(crate) fn answer_came(&mut self, done: u64) {
        self.answers += u64::from(self.window.contains(&done));
    }

    pub(crate) fn answered(&mut self, request: Request, done: u64) {
        self.answered += 1;
        self.service.saturating_record(done - request.sent);
        self.took(request.intended, Some(request.kind), done);
    }

    /// Records a request that was not answered before the run gave up. Its time is counted up to
    /// `now`, because it took at least that long.
    pub(crate) fn gave_up(&mut self, intended: u64, kind: Option<usize>, now: u64) {
        self.failed += 1;
        self.took(intended, kind, now);
    }

    fn took(&mut self, intended: u64, kind: Option<usize>, done: u64) {
        let response = done - intended;
        self.response.saturating_record(response);
        if let Some(of_kind) = kind.and_then(|kind| self.by_kind.get_mut(kind)) {
            of_kind.saturating_record(response);
        }
        let index = (intended - self.window.start) / nanoseconds(self.interval);
        if let Some(interval) = usize::try_from(index).ok().and_then(|i| self.intervals.get_mut(i))
        {
            interval.saturating_record(response);
        }
    }

    /// Drops the histograms of the slices, which use most of the recording's memory. A few hundred
    /// KiB remain.
    pub fn forget_intervals(&mut self) {
        self.intervals = Vec::new();
    }

    /// Adds the recording of another block of the same plan.
    pub fn merge(&mut self, other: &Self) {
        for (mine, its) in [
            (&mut self.response, &other.response),
            (&mut self.service, &other.service),
            (&mut self.send_lag, &other.send_lag),
        ] {
            // All have the same bounds, so nothing can be out of range.
            let added = mine.add(its);
            debug_assert!(added.is_ok());
        }
        for (mine, its) in self.by_kind.iter_mut().zip(&other.by_kind) {
            let added = mine.add(its);
            debug_assert!(added.is_ok());
        }
        self.intervals.extend(other.intervals.iter().cloned());
        self.offered += other.offered;
        self.answered += other.answered;
        self.answers += other.answers;
        self.failed += other.failed;
        self.waited_for_connection += other.waited_for_connection;
    }
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn histogram() -> Histogram<u64> {
    let mut histogram =
        Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are constants in order");
    // Writes every count, so that no page is touched for the first time while it is measured.
    histogram.reset();
    histogram
}
