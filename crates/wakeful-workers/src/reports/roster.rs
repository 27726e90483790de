//! Which workers a master has: what it writes down, and the workers read.

use std::fmt::Write;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// More than workers that one machine has at once.
const MOST_PLACES: usize = 1 << 16;

/// The state of a worker, as its master sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerState {
    /// It does not accept yet.
    Starting,
    /// It accepts.
    Serving,
    /// It was told to end.
    Draining,
    /// It is stopped (by SIGSTOP or a debugger).
    Stopped,
}

impl WorkerState {
    const ALL: [Self; 4] = [Self::Starting, Self::Serving, Self::Draining, Self::Stopped];

    /// Returns its name in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
        }
    }
}

/// A worker in the list of its master.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The [index](crate::Worker::number) of the worker.
    pub number: usize,
    /// The id of its process.
    pub pid: u32,
    /// Its state.
    pub state: WorkerState,
    /// When it was forked.
    pub since: SystemTime,
    /// Where its texts are.
    pub(crate) place: usize,
}

/// The list of one master.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Roster {
    /// Have all its first workers accepted? Before, its predecessor may serve.
    pub(super) is_in_charge: bool,
    /// Is another master in charge: the one before, or the next one?
    pub(super) is_served_elsewhere: bool,
    /// How many places there are: those of the gone are among them.
    pub(super) places: usize,
    pub(super) workers: Vec<WorkerInfo>,
}

impl Roster {
    pub(super) fn to_text(&self) -> String {
        let Self { is_in_charge, is_served_elsewhere, places, .. } = self;
        let mut text = format!("{is_in_charge} {is_served_elsewhere} {places}\n");
        for worker in &self.workers {
            let WorkerInfo { number, pid, state, since, place } = worker;
            let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            // A String takes all that is written.
            let _ = writeln!(text, "{number} {pid} {} {since} {place}", state.as_str());
        }
        text
    }

    /// `None`: nobody has written that.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut first = lines.next()?.split(' ');
        Some(Self {
            is_in_charge: next(&mut first)?,
            is_served_elsewhere: next(&mut first)?,
            places: next(&mut first).filter(|places| *places <= MOST_PLACES)?,
            workers: lines.map(listed).collect::<Option<_>>()?,
        })
    }

    /// Does a worker in another place accept that is not about to end, or has another master taken
    /// over?
    pub(super) fn is_served_but_by(&self, place: usize) -> bool {
        let serves = |one: &WorkerInfo| one.place != place && one.state == WorkerState::Serving;
        self.is_served_elsewhere || self.workers.iter().any(serves)
    }
}

fn listed(line: &str) -> Option<WorkerInfo> {
    let mut words = line.split(' ');
    let worker = WorkerInfo {
        number: next(&mut words)?,
        pid: next(&mut words)?,
        state: {
            let state = words.next()?;
            WorkerState::ALL.into_iter().find(|known| known.as_str() == state)?
        },
        since: UNIX_EPOCH.checked_add(Duration::from_secs(next(&mut words)?))?,
        place: next(&mut words).filter(|place| (1..=MOST_PLACES).contains(place))?,
    };
    words.next().is_none().then_some(worker)
}

fn next<'a, T: FromStr>(words: &mut impl Iterator<Item = &'a str>) -> Option<T> {
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: usize, state: WorkerState) -> WorkerInfo {
        WorkerInfo { number, pid: 4_000_000, state, since: UNIX_EPOCH, place: number + 1 }
    }

    #[test]
    fn what_is_written_is_read() {
        let workers =
            WorkerState::ALL.into_iter().enumerate().map(|(number, state)| worker(number, state));
        let roster = Roster {
            is_in_charge: true,
            is_served_elsewhere: false,
            places: 9,
            workers: workers.collect(),
        };
        assert_eq!(Roster::of_text(&roster.to_text()), Some(roster));
        let none = Roster::default();
        assert_eq!(Roster::of_text(&none.to_text()), Some(none));
    }

    #[test]
    fn what_nobody_has_written_is_none() {
        for text in [
            "",
            "true",
            "true 1 2\n",
            "true true\n",
            "true true 5\n1 2 serving 3",
            "true true 5\n1 2 x 3 4",
        ] {
            assert_eq!(Roster::of_text(text), None, "{text}");
        }
        assert_eq!(Roster::of_text("true true 5\n1 2 serving 3 4 5"), None);
    }

    #[test]
    fn it_is_served_as_long_as_another_one_accepts() {
        let roster = |state, is_served_elsewhere| Roster {
            is_in_charge: true,
            is_served_elsewhere,
            places: 1,
            workers: vec![worker(0, state)],
        };
        for state in WorkerState::ALL {
            let serves = state == WorkerState::Serving;
            assert_eq!(roster(state, false).is_served_but_by(2), serves, "{state:?}");
            assert!(!roster(state, false).is_served_but_by(1), "{state:?}");
        }
        assert!(roster(WorkerState::Draining, true).is_served_but_by(1));
    }
}
