//! The list of a master's workers. The master writes it, and the workers read it.

use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// More than workers that one machine has at once.
pub(super) const MOST_PLACES: usize = 1 << 16;

/// The state of a worker, as its master sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerState {
    /// The worker does not accept yet.
    Starting,
    /// The worker accepts connections.
    Serving,
    /// The master has told the worker to end.
    Draining,
    /// The worker is stopped (by SIGSTOP or a debugger).
    Stopped,
}

impl WorkerState {
    const ALL: [Self; 4] = [Self::Starting, Self::Serving, Self::Draining, Self::Stopped];

    /// Returns the name of the state, in lower case.
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
    /// When it was forked, by [`since_boot`].
    pub(crate) forked: Duration,
    /// The place of its reports.
    pub(crate) place: usize,
}

impl WorkerInfo {
    /// Returns how long ago the worker was forked. Setting the machine's clock does not affect
    /// this.
    #[must_use]
    pub fn age(&self) -> Duration {
        since_boot().saturating_sub(self.forked)
    }
}

/// How long ago the machine started, including suspended time. All processes read the same clock,
/// and nobody can set it.
pub(crate) fn since_boot() -> Duration {
    clock_gettime(ClockId::Boottime).try_into().unwrap_or_default()
}

/// What the loops of a worker do: see [`Reports::loops`](crate::Reports::loops).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerLoops {
    /// The id of the worker's process.
    pub pid: u32,
    /// The loops, in the order of their numbers.
    pub loops: Vec<LoopInfo>,
}

/// What a loop does, as the worker's master sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopInfo {
    /// Whether the loop is in a turn. Otherwise it waits for work.
    pub is_awake: bool,
    /// A lower bound of the time that the loop has been in this turn. The master looks at the loop
    /// four times in each [timeout](crate::Master::timeout), and counts the time between its first
    /// look and its last look in this turn. The value is zero until the master has looked twice.
    pub in_turn_for: Duration,
    /// The place where the running task was spawned, and the task's name if it has one:
    /// `src/file.rs:12 (name)`. `None` if the loop runs no task, or the master does not know it.
    pub running: Option<String>,
    /// What the task works on, if the task says so: with wakeful-http, the method and the path of a
    /// request.
    pub work: Option<String>,
}

impl LoopInfo {
    pub(crate) fn asleep() -> Self {
        Self { is_awake: false, in_turn_for: Duration::ZERO, running: None, work: None }
    }

    pub(crate) fn awake(
        in_turn_for: Duration,
        running: Option<String>,
        work: Option<String>,
    ) -> Self {
        Self { is_awake: true, in_turn_for, running, work }
    }
}

/// The prefix of a line that describes a loop of the worker in the line before it.
const LOOP: char = '+';

/// The list of one master.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Roster {
    /// Whether all its first workers have accepted. Until then its predecessor may serve.
    pub(super) is_in_charge: bool,
    /// Whether another master is in charge: the previous or the next one.
    pub(super) is_served_elsewhere: bool,
    /// The number of places, including those of workers that are gone.
    pub(super) places: usize,
    pub(super) workers: Vec<WorkerInfo>,
}

impl Roster {
    /// Writes the list. `loops` returns the loops of a worker.
    pub(super) fn to_text(&self, loops: impl Fn(&WorkerInfo) -> Vec<LoopInfo>) -> String {
        let Self { is_in_charge, is_served_elsewhere, places, .. } = self;
        let mut text = format!("{is_in_charge} {is_served_elsewhere} {places}\n");
        for worker in &self.workers {
            let WorkerInfo { number, pid, state, forked, place } = worker;
            let forked = forked.as_millis();
            // Writing to a string does not fail.
            let _ = writeln!(text, "{number} {pid} {} {forked} {place}", state.as_str());
            for LoopInfo { is_awake, in_turn_for, running, work } in loops(worker) {
                let (running, work) = (running.unwrap_or_default(), work.unwrap_or_default());
                let time = in_turn_for.as_millis();
                // Neither text contains a tab.
                let _ = writeln!(text, "{LOOP} {is_awake} {time} {running}\t{work}");
            }
        }
        text
    }

    /// Parses the list. `None`: the text is no such list.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut first = lines.next()?.split(' ');
        Some(Self {
            is_in_charge: next(&mut first)?,
            is_served_elsewhere: next(&mut first)?,
            places: next(&mut first).filter(|places| *places <= MOST_PLACES)?,
            workers: lines
                .filter(|line| !line.starts_with(LOOP))
                .map(listed)
                .collect::<Option<_>>()?,
        })
    }

    /// The loops in such a text, as far as it can be parsed.
    pub(super) fn loops_of_text(text: &str) -> Vec<WorkerLoops> {
        let mut all: Vec<WorkerLoops> = Vec::new();
        for line in text.lines().skip(1) {
            if let Some(line) = line.strip_prefix(LOOP) {
                if let Some((worker, one)) = all.last_mut().zip(loop_of(line)) {
                    worker.loops.push(one);
                }
            } else if let Some(worker) = listed(line) {
                all.push(WorkerLoops { pid: worker.pid, loops: Vec::new() });
            }
        }
        all
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
        forked: Duration::from_millis(next(&mut words)?),
        place: next(&mut words).filter(|place| (1..=MOST_PLACES).contains(place))?,
    };
    words.next().is_none().then_some(worker)
}

fn loop_of(line: &str) -> Option<LoopInfo> {
    let mut words = line.trim_start().splitn(3, ' ');
    let (is_awake, time) = (next(&mut words)?, next(&mut words)?);
    let texts = words.next()?.split_once('\t')?;
    let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Some(LoopInfo {
        is_awake,
        in_turn_for: Duration::from_millis(time),
        running: said(texts.0),
        work: said(texts.1),
    })
}

fn next<'a, T: FromStr>(words: &mut impl Iterator<Item = &'a str>) -> Option<T> {
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: usize, state: WorkerState) -> WorkerInfo {
        let forked = Duration::from_millis(1_500);
        WorkerInfo { number, pid: 4_000_000, state, forked, place: number + 1 }
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
        let none = Roster::default();
        assert_eq!(Roster::of_text(&none.to_text(|_| Vec::new())), Some(none));
        let task = Some("src/a b.rs:1 (GET + \"x\")".to_owned());
        let (time, none) = (Duration::from_millis(1_500), Duration::ZERO);
        let work = Some("GET /a b".to_owned());
        let loops = [
            LoopInfo::asleep(),
            LoopInfo::awake(time, task, work),
            LoopInfo::awake(none, None, None),
        ];
        let of = |worker: &WorkerInfo| loops[..worker.number].to_vec();
        let text = roster.to_text(of);
        let expected =
            roster.workers.iter().map(|one| WorkerLoops { pid: one.pid, loops: of(one) });
        assert_eq!(Roster::loops_of_text(&text), expected.collect::<Vec<_>>());
        assert_eq!(Roster::of_text(&text), Some(roster));
    }

    /// If the age came from a clock that can be set, it would jump with the clock.
    #[test]
    fn an_age_comes_from_a_clock_that_nobody_can_set() {
        let mut young = worker(0, WorkerState::Serving);
        young.forked = since_boot();
        let text = Roster { workers: vec![young], ..Roster::default() }.to_text(|_| Vec::new());
        let read = Roster::of_text(&text).unwrap().workers.remove(0);
        assert!(read.age() < Duration::from_secs(60), "{:?}", read.age());
        let forked: u128 = text.lines().nth(1).unwrap().split(' ').nth(3).unwrap().parse().unwrap();
        let boot = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap();
        assert!(forked <= boot.as_millis(), "{text}");
        let in_the_future = WorkerInfo { forked: Duration::MAX, ..read };
        assert_eq!(in_the_future.age(), Duration::ZERO);
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
