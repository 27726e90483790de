//! Holds CPUs while a process has traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::fork_gate::{Place, Places};
use crate::hold::{Hold, HoldError, HoldSettings};
use crate::machine::online_cpus;
use crate::switches::{CountError, Switches, Target, needed};
use crate::traffic::{Next, Traffic};
use crate::wake_cost::Gain;

/// How often the watcher counts while there is traffic.
const WHILE_HELD: Duration = Duration::from_millis(50);
/// A CPU is held if the process ran on it within this time.
const LATELY: Duration = Duration::from_millis(200);
/// How often the watcher counts without traffic, if no perf event wakes it.
const SAMPLED: Duration = Duration::from_millis(200);

/// `report` is called no more often than this.
const MOST_OFTEN: Duration = Duration::from_millis(1);
/// How often to check what no event tells: whether a cgroup was removed and made again, as when a
/// service restarts, whether a CPU has come or gone, and whether a child is not counted any more.
const LOOK: Duration = Duration::from_secs(5);

/// The reason why a process cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Its traffic cannot be observed.
    #[error(transparent)]
    Count(#[from] CountError),
    /// CPUs cannot be held.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] io::Error),
}

/// Watches a process or a cgroup, and holds CPUs while it has traffic.
///
/// Without traffic, the thread that [runs](Watcher::run) the watcher sleeps, and the kernel wakes
/// it after some context switches of the process. While there is traffic, the thread reads the
/// counts 20 times per second. Every 5 s it checks whether CPUs have come online or gone offline,
/// whether a cgroup was made again, and whether a child is not counted any more.
///
/// The counts come from the kernel's perf events, which cost the process some time at each switch.
/// So under heavy traffic of up to 64 threads the watcher closes these events, and reads `/proc`
/// instead. If perf events are forbidden, it reads `/proc` five times per second. It does the same
/// if events cannot be opened again, or would be more than 512 (one for each thread and CPU). It
/// tries again after 5 s, and then after pauses that double, up to 5 minutes. If it watches its own
/// process, it has no more than 512 events from the start, nor more than a quarter of the soft
/// limit of descriptors.
#[derive(Debug)]
pub struct Watcher {
    target: Target,
    /// For a cgroup: the folder that is watched.
    folder: Option<(u64, u64)>,
    switches: Switches,
    hold: Hold,
    epoch: Instant,
    done: Counted,
    /// Where other threads find the counters.
    published: Option<Published>,
    /// When each CPU was used last.
    used: BTreeMap<usize, Instant>,
}

#[derive(Debug, Default)]
struct Counted {
    seen: u64,
    wakes: u64,
    held_wakes: u64,
    traffic: Duration,
    /// When the last count was made, if it found traffic.
    traffic_at: Option<Instant>,
}

/// Where other threads find a watcher's counters. Nobody waits for the lock, because in a forked
/// child it may be locked for ever.
pub(crate) type Published = &'static Mutex<Option<Done>>;

/// The counters of a watcher.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// How long the watcher has watched.
    pub watched: Duration,
    /// How often a thread of the process was switched away from a CPU. Each time it had to be woken
    /// again.
    pub wakes: u64,
    /// How many of these wakes happened while CPUs were held.
    pub held_wakes: u64,
    /// For how long CPUs were held.
    pub held: Duration,
    /// For how long there was traffic. If this is longer than `held`, [`gain`](Self::gain) and
    /// [`why_not`](Self::why_not) say why.
    pub traffic: Duration,
    /// The duration of a wake without and with a hold, once it is measured.
    pub gain: Option<Gain>,
    /// Why CPUs were not held during the last traffic, although that would have gained something.
    pub why_not: Option<String>,
    /// The last reason why the wakes could not be counted: no descriptor or no memory was left.
    /// Traffic may have gone unnoticed then.
    pub uncounted: Option<String>,
    /// Whether the watcher reads `/proc` periodically, because perf events are
    /// [refused](Watcher::refusal).
    pub is_sampled: bool,
}

impl Done {
    /// Returns the most that the holds can have saved: the time saved per wake, for all wakes under
    /// a hold, if each CPU would have halted before its wake.
    #[must_use]
    pub fn saved_at_most(&self) -> Duration {
        let of_one = self.gain.map_or(Duration::ZERO, |gain| gain.unheld.saturating_sub(gain.held));
        of_one.saturating_mul(u32::try_from(self.held_wakes).unwrap_or(u32::MAX))
    }
}

/// The reason why a watch has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The process has ended.
    ProcessEnded,
    /// `stop` became readable.
    Stopped,
}

impl Watcher {
    /// Begins to count the context switches of all threads of the target, except the calling
    /// thread. It holds no CPU yet.
    ///
    /// # Errors
    /// Context switches cannot be counted, or CPUs may not be held.
    pub fn open(target: Target, settings: HoldSettings) -> Result<Self, WatchError> {
        Self::opened(target, settings, None, &[])
    }

    /// Like [`open`](Self::open). From now on, `place` has the number of the descriptor that holds
    /// the CPUs, because a copy of the descriptor in a forked child would hold them as well.
    /// `events` has those of the perf events, as many as there is room for.
    /// `published` has the counters as of the last count.
    pub(crate) fn open_published(
        target: Target,
        settings: HoldSettings,
        place: Place,
        events: Places,
        published: Published,
    ) -> Result<Self, WatchError> {
        let watcher = Self::opened(target, settings, Some(place), events)?;
        Ok(Self { published: Some(published), ..watcher })
    }

    fn opened(
        target: Target,
        settings: HoldSettings,
        place: Option<Place>,
        events: Places,
    ) -> Result<Self, WatchError> {
        let folder = target.folder();
        let switches = Switches::open(&target, events)?;
        let hold = Hold::open(settings, place)?;
        let (epoch, done) = (Instant::now(), Counted::default());
        let (published, used) = (None, BTreeMap::new());
        Ok(Self { target, folder, switches, hold, epoch, done, published, used })
    }

    /// Holds CPUs while there is traffic, until the process ends or `stop` is readable. (A cgroup
    /// has no end: if it is removed, it is watched again when it exists again.) Calls `report` at
    /// the end, and every `interval` if one is given (at least 1 ms). `report` should be quick,
    /// because it runs on the watching thread.
    ///
    /// # Errors
    /// The kernel refuses to count, to hold or to wait. Then no CPU is held.
    pub fn run(
        &mut self,
        stop: Option<BorrowedFd<'_>>,
        interval: Option<Duration>,
        mut report: impl FnMut(&Done),
    ) -> Result<Ended, WatchError> {
        let process = match &self.target {
            // The watch ends with its own process in any case.
            Target::Process(pid) if *pid == getpid() => None,
            Target::Process(pid) => match pidfd_open(*pid, PidfdFlags::empty()) {
                Ok(process) => Some(process),
                Err(Errno::SRCH) => return Ok(Ended::ProcessEnded),
                Err(error) => return Err(io::Error::from(error).into()),
            },
            Target::Cgroup(_) => None,
        };
        let process = process.as_ref().map(|process| (Ended::ProcessEnded, process.as_fd()));
        let ends: Vec<_> = process.into_iter().chain(stop.map(|fd| (Ended::Stopped, fd))).collect();
        let ended = self.watch(&ends, interval, &mut report);
        let released = self.hold.end();
        let ended = ended?;
        released?;
        self.count()?;
        self.saw_traffic(false);
        report(&self.done());
        Ok(ended)
    }

    /// Watches until one of `ends` is readable. CPUs may still be held when this returns.
    fn watch(
        &mut self,
        ends: &[(Ended, BorrowedFd<'_>)],
        interval: Option<Duration>,
        report: &mut impl FnMut(&Done),
    ) -> Result<Ended, WatchError> {
        let mut traffic = Traffic::new(self.epoch.elapsed(), self.count()?);
        let mut next = Next::Armed;
        let after = |interval: Duration| Instant::now().checked_add(interval.max(MOST_OFTEN));
        let mut due = interval.and_then(after);
        let mut look_at = Instant::now() + LOOK;
        loop {
            let until = |due: Instant| due.saturating_duration_since(Instant::now());
            let pauses = [self.pause(next), due.map(until), Some(until(look_at))];
            let pause = pauses.into_iter().flatten().min();
            if let Some(ended) = self.wait(next, ends, pause)? {
                return Ok(ended);
            }
            let looks = Instant::now() >= look_at;
            if looks {
                look_at = Instant::now() + LOOK;
                if self.follow_folder() {
                    traffic = Traffic::new(self.epoch.elapsed(), self.count()?);
                }
            }
            next = traffic.counted(self.epoch.elapsed(), self.count()?);
            if looks {
                // If no descriptor is left to read which CPUs there are, the next look reads it.
                if let Ok(online) = online_cpus() {
                    self.switches.follow_cpus(&online);
                }
                self.switches.follow_children();
            }
            self.switches.settle(next == Next::Hold);
            if next == Next::Hold {
                let cpus: Vec<usize> = self.used.keys().copied().collect();
                self.hold.begin(&cpus)?;
            } else {
                self.hold.end()?;
            }
            self.saw_traffic(next == Next::Hold);
            if due.is_some_and(|due| Instant::now() >= due) {
                due = interval.and_then(after);
                report(&self.done());
            }
        }
    }

    /// Returns why perf events were refused, if they were: they are not permitted, or no
    /// descriptors are left.
    #[must_use]
    pub fn refusal(&self) -> Option<&io::Error> {
        self.switches.refusal()
    }

    /// Returns what perf events need, if they were [refused](Self::refusal): a privilege, or a
    /// higher limit. It is the end of a sentence for the user.
    #[must_use]
    pub fn needed(&self) -> Option<&'static str> {
        self.refusal().map(needed)
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn done(&self) -> Done {
        Done {
            watched: self.epoch.elapsed(),
            wakes: self.done.wakes,
            held_wakes: self.done.held_wakes,
            held: self.hold.held_time(),
            traffic: self.done.traffic,
            gain: self.hold.gain(),
            why_not: self.hold.why_not().map(str::to_owned),
            uncounted: self.switches.shortage().map(ToString::to_string),
            is_sampled: self.refusal().is_some(),
        }
    }

    /// Notes whether the last count found traffic, and publishes the counters.
    fn saw_traffic(&mut self, is_traffic: bool) {
        let now = Instant::now();
        let since = std::mem::replace(&mut self.done.traffic_at, is_traffic.then_some(now));
        self.done.traffic += since.map_or(Duration::ZERO, |since| now.duration_since(since));
        self.publish();
    }

    /// Publishes the counters for other threads.
    pub(crate) fn publish(&self) {
        if let Some(Ok(mut published)) = self.published.map(Mutex::try_lock) {
            *published = Some(self.done());
        }
    }

    /// If the cgroup was made again, watches the new one and returns `true`.
    fn follow_folder(&mut self) -> bool {
        let folder = self.target.folder();
        if folder.is_none() || folder == self.folder {
            return false;
        }
        // The cgroup may be gone again. Then the next check looks for it.
        let Ok(switches) = Switches::open(&self.target, &[]) else { return false };
        (self.switches, self.folder, self.done.seen) = (switches, folder, 0);
        true
    }

    fn pause(&self, next: Next) -> Option<Duration> {
        let longest = self.switches.wakes_nobody().then_some(SAMPLED);
        match next {
            Next::Armed => longest,
            Next::ArmedFor(pause) => Some(longest.map_or(pause, |longest| pause.min(longest))),
            Next::Hold => Some(WHILE_HELD),
        }
    }

    fn count(&mut self) -> io::Result<u64> {
        let (now, mut used) = (Instant::now(), BTreeSet::new());
        let count = self.switches.count(&mut used)?;
        self.used.extend(used.into_iter().map(|cpu| (cpu, now)));
        self.used.retain(|_, when| now.duration_since(*when) < LATELY);
        let new = count.saturating_sub(self.done.seen);
        self.done.seen = count;
        self.done.wakes += new;
        if self.hold.is_held() {
            self.done.held_wakes += new;
        }
        Ok(count)
    }

    /// Waits for one of `ends`, for the end of the pause, or for a switch. With `Next::Hold`, a
    /// switch does not end the wait.
    fn wait(
        &mut self,
        next: Next,
        ends: &[(Ended, BorrowedFd<'_>)],
        pause: Option<Duration>,
    ) -> io::Result<Option<Ended>> {
        let switches = self.switches.descriptors().filter(|_| next != Next::Hold);
        let all = ends.iter().map(|(_, fd)| *fd).chain(switches);
        let mut all: Vec<PollFd<'_>> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let mut waited = poll_for(&mut all, pause);
        // The limit of open files was lowered below the number of descriptors, or no memory is
        // left. The counts can still be read, at intervals.
        if matches!(waited, Err(Errno::INVAL | Errno::NOMEM)) && all.len() > ends.len() {
            all.truncate(ends.len());
            waited = poll_for(&mut all, Some(pause.map_or(SAMPLED, |pause| pause.min(SAMPLED))));
        }
        match waited {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = ends.iter().zip(&all).find(|(_, fd)| !fd.revents().is_empty());
        // Descriptors that hung up are removed, because they would be readable for ever.
        let hung_up = all[ends.len()..].iter().enumerate();
        let hung_up = hung_up.filter(|(_, fd)| fd.revents().contains(PollFlags::HUP));
        let hung_up: Vec<usize> = hung_up.map(|(number, _)| number).collect();
        let ended = ended.map(|((reason, _), _)| *reason);
        self.switches.remove(&hung_up)?;
        Ok(ended)
    }
}

fn poll_for(fds: &mut [PollFd<'_>], pause: Option<Duration>) -> Result<usize, Errno> {
    let pause = pause.map(Timespec::try_from).transpose().map_err(|_| Errno::OVERFLOW)?;
    poll(fds, pause.as_ref())
}

/// The calling process as a target.
pub(crate) fn own() -> Target {
    Target::Process(getpid())
}
