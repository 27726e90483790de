//! Workers tell each other what they count: see [`Reports`].

mod desk;
mod page;
mod roster;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use wakeful::readiness::AsyncFd;
use wakeful::time::timeout;

use crate::sys;

pub(crate) use self::desk::Desk;
use self::page::Page;
use self::roster::Roster;
pub(crate) use self::roster::since_boot;
pub use self::roster::{LoopInfo, WorkerInfo, WorkerLoops, WorkerState};

/// The place of the roster in the page. The places of workers follow.
const ROSTER: usize = 0;

/// How many descriptors [`Wires`] has.
const WIRES: usize = 5;

/// Lets any worker answer for all workers: it collects a text about each of them.
///
/// A scrape of `/metrics` reaches one worker, but asks for the counts of all. So each worker runs
/// [`answer`](Self::answer), and the worker that is scraped calls [`collect`](Self::collect). When
/// a worker dies, its last text stays. Its replacement gets that text from
/// [`left_by_predecessor`](Self::left_by_predecessor), so that counts never fall.
///
/// The texts are in memory that the master and its workers share. This memory contains no lock, so
/// a worker that is killed or stopped delays the others for at most the time limit of their call.
/// Between calls nothing is written, and no worker wakes.
///
/// # Threads
/// `Send` and `Sync`. Clones belong to the same worker.
#[derive(Debug, Clone)]
pub struct Reports(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    wires: Wires,
    place: usize,
    /// The worker's process. A child that it forks has no place.
    process: u32,
    /// Only one thread at a time writes to a place.
    writes: Mutex<()>,
}

/// The page and the descriptors that the master and its workers share.
#[derive(Debug, Clone)]
struct Wires {
    page: Page,
    /// All workers that answer watch this eventfd, and nobody empties it, so each ring wakes all of
    /// them.
    asks: Arc<OwnedFd>,
    /// The same for workers that wait for answers, or for a change of the list.
    news: Arc<OwnedFd>,
    /// The master watches and empties this eventfd. A ring asks it to write its list again.
    asks_master: Arc<OwnedFd>,
    /// Readable when the master is gone.
    lifeline: Arc<OwnedFd>,
}

/// The text of a worker about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    /// The counts of the worker itself.
    pub own: String,
    /// The counts of the earlier workers in its place. Add them to the worker's own counts.
    pub earlier: String,
}

/// The answer of a worker to [`Reports::collect`], or the last text of a worker that does not
/// answer or is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The worker. `None` if it is gone, and no other worker has answered in its place yet.
    pub worker: Option<WorkerInfo>,
    /// Whether the text is the worker's answer to this call. If not, the worker is stuck, has just
    /// started, or is gone. The text is then the last one that it, or the worker that it replaces,
    /// has stored (empty if there is none).
    pub is_current: bool,
    /// The text.
    pub said: Said,
}

impl Reports {
    fn new(wires: Wires, place: usize) -> Self {
        let (process, writes) = (std::process::id(), Mutex::new(()));
        Self(Arc::new(Shared { wires, place, process, writes }))
    }

    pub(crate) fn place(&self) -> usize {
        self.0.place
    }

    /// The descriptors that an executed worker needs, in the order of
    /// [`from_descriptors`](Self::from_descriptors).
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; WIRES] {
        let Wires { page, asks, news, asks_master, lifeline } = &self.0.wires;
        [page.file(), asks.as_fd(), news.as_fd(), asks_master.as_fd(), lifeline.as_fd()]
    }

    /// Makes the reports of this process, which is the worker that has this place.
    pub(crate) fn from_descriptors(place: usize, descriptors: [OwnedFd; WIRES]) -> Self {
        let [page, asks, news, asks_master, lifeline] = descriptors;
        let (page, asks, news) = (Page::of(page), Arc::new(asks), Arc::new(news));
        let (asks_master, lifeline) = (Arc::new(asks_master), Arc::new(lifeline));
        Self::new(Wires { page, asks, news, asks_master, lifeline }, place)
    }

    /// Answers the calls of [`collect`](Self::collect) on this thread's loop, as long as the
    /// returned future runs. The future calls `say` once at the start, and then once for each call
    /// of `collect`. Calls that arrive together may share one call of `say`.
    ///
    /// If `say` panics, the future panics, and this worker no longer answers.
    ///
    /// # Errors
    /// No loop runs on this thread; or no descriptors are left.
    pub fn answer(
        &self,
        mut say: impl FnMut() -> Said + 'static,
    ) -> io::Result<impl Future<Output = ()> + 'static> {
        let asks = AsyncFd::new(sys::duplicate(&*self.0.wires.asks)?)?;
        let this = self.clone();
        let mut say = move || {
            if let Err(error) = this.publish(&mut say) {
                log!(warn, %error, "cannot report this worker's counts: /metrics may lack them");
            }
        };
        Ok(async move {
            loop {
                say();
                // An error means that the loop ends.
                let Ok(mut asked) = asks.readable().await else { return };
                asked.clear_ready();
            }
        })
    }

    /// Is this the worker, and no child that it has forked?
    pub(crate) fn is_own_process(&self) -> bool {
        std::process::id() == self.0.process
    }

    /// Stores the text of `say` without a call of [`collect`](Self::collect). Use this at the end
    /// of the worker, so that its last counts are not lost. If several threads call it, the calls
    /// run one after the other, so `say` must not call it itself. In a forked child of the worker
    /// it has no effect.
    ///
    /// # Errors
    /// The text has more than 64 MiB; no memory is left; or a limit on file sizes (`RLIMIT_FSIZE`)
    /// forbids it.
    pub fn publish(&self, say: impl FnOnce() -> Said) -> io::Result<()> {
        let Shared { wires, place, process, writes } = &*self.0;
        if !self.is_own_process() {
            return Ok(());
        }
        // The lock protects no value, so after a panic nothing is half done.
        let _writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
        let said = say().to_bytes();
        // It may have forked.
        if !self.is_own_process() {
            return Ok(());
        }
        wires.page.write(*place, *process, &said)?;
        ring(&wires.news);
        Ok(())
    }

    /// Asks all workers for their texts, and waits for at most `limit` for the answers. Returns the
    /// texts of all workers, and the last texts of workers that are gone. It does not wait for
    /// workers that are stopped or have just started. The worker that calls it must also run
    /// [`answer`](Self::answer).
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// No loop runs on this thread; or no descriptors or memory are left.
    pub async fn collect(&self, limit: Duration) -> io::Result<Vec<Report>> {
        let wires = &self.0.wires;
        let news = AsyncFd::new(sys::duplicate(&*wires.news)?)?;
        let before = (1..=self.roster()?.places).map(|place| wires.page.number(place));
        let before = before.collect::<io::Result<Vec<_>>>()?;
        let is_new = |place: usize| {
            Ok::<_, io::Error>(
                wires.page.number(place)? > before.get(place - 1).copied().unwrap_or(0),
            )
        };
        ring(&wires.asks);
        let answers = async {
            while self.is_any_missing(is_new)? {
                news.readable().await?.clear_ready();
            }
            io::Result::Ok(())
        };
        // Answers that have not come by then are not awaited.
        timeout(limit, answers).await.unwrap_or(Ok(()))?;
        let roster = self.roster()?;
        (1..=roster.places).map(|place| self.report(&roster, place, is_new(place)?)).collect()
    }

    /// Asks the master what the loops of all workers do, including workers that cannot answer
    /// themselves. Returns an empty list if the master does not answer within `limit`, or is gone.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// No loop runs on this thread; or no descriptors or memory are left.
    pub async fn loops(&self, limit: Duration) -> io::Result<Vec<WorkerLoops>> {
        let wires = &self.0.wires;
        if wires.is_master_gone() {
            return Ok(Vec::new());
        }
        let news = AsyncFd::new(sys::duplicate(&*wires.news)?)?;
        let before = wires.page.number(ROSTER)?;
        ring(&wires.asks_master);
        let answer = async {
            while wires.page.number(ROSTER)? == before {
                news.readable().await?.clear_ready();
            }
            io::Result::Ok(())
        };
        match timeout(limit, answer).await {
            Ok(answered) => answered?,
            Err(_) => return Ok(Vec::new()),
        }
        Ok(Roster::loops_of_text(&self.roster_text()?))
    }

    fn is_any_missing(&self, is_new: impl Fn(usize) -> io::Result<bool>) -> io::Result<bool> {
        for worker in self.roster()?.workers {
            let answers = matches!(worker.state, WorkerState::Serving | WorkerState::Draining);
            if answers && !is_new(worker.place)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn report(&self, roster: &Roster, place: usize, is_new: bool) -> io::Result<Report> {
        let listed = roster.workers.iter().find(|worker| worker.place == place).cloned();
        let written = self.0.wires.page.read(place)?;
        let is_its_own = match (&listed, &written) {
            (Some(listed), Some(written)) => listed.pid == written.pid,
            _ => false,
        };
        Ok(Report {
            is_current: is_its_own && is_new,
            // If a worker has said nothing, only its place is known.
            worker: listed.filter(|_| is_its_own || written.is_none()),
            said: written.map(|written| Said::of_bytes(&written.text)).unwrap_or_default(),
        })
    }

    /// Returns whether another master is in charge: the previous one, because this worker's master
    /// has not taken over yet, or the next one.
    ///
    /// # Errors
    /// No memory is left.
    pub fn is_served_elsewhere(&self) -> io::Result<bool> {
        Ok(self.roster()?.is_served_elsewhere)
    }

    /// Returns whether clients are served without this worker: another worker accepts connections
    /// and does not drain, or another master is in charge (the previous one, or the next one).
    ///
    /// # Errors
    /// No memory is left.
    pub fn is_served_by_others(&self) -> io::Result<bool> {
        Ok(self.roster()?.is_served_but_by(self.0.place))
    }

    /// Waits until this worker's master is in charge. In an upgrade, the new master takes charge
    /// when all its first workers accept. Until then the workers of the previous master serve and
    /// have the counts: ask them instead.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// No loop runs on this thread; or no descriptors or memory are left.
    pub async fn until_in_charge(&self) -> io::Result<()> {
        if self.roster()?.is_in_charge {
            return Ok(());
        }
        let news = AsyncFd::new(sys::duplicate(&*self.0.wires.news)?)?;
        while !self.roster()?.is_in_charge {
            news.readable().await?.clear_ready();
        }
        Ok(())
    }

    /// Returns the last text of the worker that this one replaces. Call it before this worker
    /// stores a text: before [`answer`](Self::answer) runs, and before [`publish`](Self::publish).
    ///
    /// # Errors
    /// No memory is left.
    pub fn left_by_predecessor(&self) -> io::Result<Said> {
        let written = self.0.wires.page.read(self.0.place)?;
        Ok(written.map(|written| Said::of_bytes(&written.text)).unwrap_or_default())
    }

    /// Has the master written that this worker drains, or that another master is in charge? The
    /// master writes the former before it keeps new clients out, and before it sends the signal.
    pub(crate) fn says_that_this_one_need_not_go_on(&self) -> bool {
        let drains =
            |one: &WorkerInfo| one.pid == self.0.process && one.state == WorkerState::Draining;
        let need_not =
            |roster: &Roster| roster.is_served_elsewhere || roster.workers.iter().any(drains);
        self.roster().as_ref().is_ok_and(need_not)
    }

    fn roster(&self) -> io::Result<Roster> {
        let mut roster = Roster::of_text(&self.roster_text()?)
            .ok_or_else(|| io::Error::other("the master has written no list of its workers"))?;
        if self.0.wires.is_master_gone() {
            // The list still contains workers that have ended since it was written.
            roster.workers.retain(|worker| is_running(worker.pid));
        }
        Ok(roster)
    }

    fn roster_text(&self) -> io::Result<String> {
        let written = self.0.wires.page.read(ROSTER)?;
        let text = written.and_then(|written| String::from_utf8(written.text).ok());
        Ok(text.unwrap_or_default())
    }
}

impl Wires {
    fn is_master_gone(&self) -> bool {
        let mut fd = [PollFd::new(&*self.lifeline, PollFlags::IN)];
        poll(&mut fd, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

/// Does a process with this id exist?
fn is_running(pid: u32) -> bool {
    let pid = pid.try_into().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

impl Said {
    /// The first line is the length of `own`.
    fn to_bytes(&self) -> Vec<u8> {
        format!("{}\n{}{}", self.own.len(), self.own, self.earlier).into_bytes()
    }

    /// Parses such bytes. Anything else counts as nothing.
    fn of_bytes(bytes: &[u8]) -> Self {
        let said = || {
            let (length, rest) = str::from_utf8(bytes).ok()?.split_once('\n')?;
            let (own, earlier) = rest.split_at_checked(length.parse().ok()?)?;
            Some(Self { own: own.to_owned(), earlier: earlier.to_owned() })
        };
        said().unwrap_or_default()
    }
}

/// A counter that is full, after 2^64 rings, would not ring any more.
fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests;
