//! The log lines of a keeper for the administrator.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

/// The same problem is logged again after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// The number of different problems that are remembered. Any further ones may be logged again.
const MOST_KNOWN: usize = 64;

/// A line for the administrator's log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeeperLine {
    /// Something normal.
    Note(String),
    /// A problem that the administrator should look at.
    Trouble(String),
}

/// Writes the text.
impl fmt::Display for KeeperLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Note(text) | Self::Trouble(text) => f.write_str(text),
        }
    }
}

/// Sends the lines to the receiver. The same problem is logged once a minute, because clients ask
/// again and again.
#[derive(Default)]
pub(super) struct Lines {
    to: Option<Box<dyn FnMut(KeeperLine) + Send>>,
    known: BTreeSet<String>,
    known_since: Option<Instant>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Lines {
    pub(super) fn to(receiver: impl FnMut(KeeperLine) + Send + 'static) -> Self {
        Self { to: Some(Box::new(receiver)), ..Self::default() }
    }

    pub(super) fn note(&mut self, text: impl fmt::Display) {
        self.say(KeeperLine::Note(text.to_string()));
    }

    pub(super) fn trouble(&mut self, text: impl fmt::Display) {
        let text = text.to_string();
        let is_old = self.known_since.is_none_or(|since| since.elapsed() >= AGAIN);
        if is_old || self.known.len() >= MOST_KNOWN {
            self.known.clear();
            self.known_since = Some(Instant::now());
        }
        if self.known.insert(text.clone()) {
            self.say(KeeperLine::Trouble(text));
        }
    }

    fn say(&mut self, line: KeeperLine) {
        if let Some(to) = &mut self.to {
            to(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn trouble_that_repeats_is_said_once() {
        let (sender, said) = mpsc::channel();
        let mut lines = Lines::to(move |line| sender.send(line.to_string()).unwrap());
        for text in ["a", "a", "b", "a"] {
            lines.trouble(text);
        }
        lines.note("c");
        lines.note("c");
        drop(lines);
        assert_eq!(said.iter().collect::<Vec<_>>(), ["a", "b", "c", "c"]);
    }
}
