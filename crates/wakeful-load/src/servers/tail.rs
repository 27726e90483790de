//! The last lines that a server wrote to stderr.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use std::time::Duration;

use crate::threads;

/// How many lines are kept.
const LINES: usize = 20;

/// What is longer is cut into several lines.
const LONGEST_LINE: u64 = 1000;

/// Read to the end by a thread of its own, so that the server never blocks on a full pipe.
#[derive(Debug)]
pub(crate) struct Tail {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    at_end: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    at_end: bool,
}

impl Tail {
    /// The thread ends when all who could write have closed their end, which may be after the
    /// server.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn follow(from: impl Read + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let keeper = Arc::clone(&shared);
        threads::start("tail", move || keeper.keep_lines(BufReader::new(from)))?;
        Ok(Self { shared })
    }

    /// The last lines. Waits up to `patience` for the end of the stream, so that a dying server's
    /// last words are there.
    pub(crate) fn text(&self, patience: Duration) -> String {
        let kept = self.shared.lock();
        let kept = self.shared.at_end.wait_timeout_while(kept, patience, |kept| !kept.at_end);
        let (kept, _) = kept.unwrap_or_else(PoisonError::into_inner);
        kept.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_lines(&self, mut from: impl BufRead) {
        let mut line = Vec::new();
        while from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            let mut kept = self.lock();
            if kept.lines.len() == LINES {
                kept.lines.pop_front();
            }
            kept.lines.push_back(text);
        }
        self.lock().at_end = true;
        self.at_end.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn tail_of(text: String) -> String {
        Tail::follow(Cursor::new(text)).unwrap().text(Duration::from_secs(60))
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        assert_eq!(tail_of(String::new()), "");
        assert_eq!(tail_of("one\ntwo".to_owned()), "one\ntwo");
        let many: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert_eq!(tail_of(many.join("\n")), many[80..].join("\n"));
    }

    #[test]
    fn a_line_without_end_takes_no_more_memory_than_others() {
        let text = tail_of("x".repeat(1_000_000));
        assert_eq!(text.lines().count(), LINES);
        assert!(text.lines().all(|line| line.len() == 1000));
    }

    #[test]
    fn a_stream_that_stays_open_is_not_waited_for() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!(Tail::follow(reader).unwrap().text(Duration::ZERO), "");
        drop(writer);
    }
}
