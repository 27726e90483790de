//! Workers tell each other what they count: see [`Reports`].

mod desk;
mod page;
mod roster;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wakeful::readiness::AsyncFd;
use wakeful::time::timeout;

pub(crate) use self::desk::Desk;
use self::page::Page;
use self::roster::Roster;
pub use self::roster::{WorkerInfo, WorkerState};

/// In the page. The places of workers follow.
const ROSTER: usize = 0;

/// Lets any worker answer for all: it collects what each of them says of itself, as text.
///
/// A scrape of `/metrics` reaches one worker, but asks for the counts of all. So each worker runs
/// [`answer`](Self::answer), and the one that is asked calls [`collect`](Self::collect). What a
/// worker has said stays when the worker dies: the next worker in its place gets it as
/// [`left_by_predecessor`](Self::left_by_predecessor), so that counts never fall.
///
/// The texts are in memory that the master made before its workers. Nothing in it is locked, so a
/// worker that is killed or stopped delays nobody for longer than a limit. Between questions
/// nothing is written and nobody wakes.
///
/// # Threads
/// `Send` and `Sync`. A clone belongs to the same worker.
#[derive(Debug, Clone)]
pub struct Reports(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    wires: Wires,
    place: usize,
    /// The worker. A child that it forks has no place.
    process: u32,
    /// One thread at a time writes to a place.
    writes: Mutex<()>,
}

/// What master and workers have in common.
#[derive(Debug, Clone)]
struct Wires {
    page: Page,
    /// All who answer watch it, and nobody empties it: each ring wakes all of them.
    asks: Arc<OwnedFd>,
    /// As `asks`, for those who wait for answers, or for a change of the list.
    news: Arc<OwnedFd>,
}

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    /// Its own counts.
    pub own: String,
    /// What is to be added to them: the counts of earlier workers.
    pub earlier: String,
}

/// The answer of a worker, or what it or an earlier worker has left.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Whose it is. `None`: the worker that said it is gone, and nobody has answered from its place
    /// since.
    pub worker: Option<WorkerInfo>,
    /// Was it said in answer to this question? If not, the worker is stuck, has just started, or is
    /// gone, and this is what was said last. (Empty, if there is nothing.)
    pub is_current: bool,
    /// What was said.
    pub said: Said,
}

impl Reports {
    /// Answers on this thread's loop, for as long as the future runs. `say` is called once at the
    /// start, and once for each question, or for several together.
    ///
    /// If `say` panics, so does the future, and this worker answers no more.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors left.
    pub fn answer(
        &self,
        mut say: impl FnMut() -> Said + 'static,
    ) -> io::Result<impl Future<Output = ()> + 'static> {
        let asks = AsyncFd::new(self.0.wires.asks.try_clone()?)?;
        let this = self.clone();
        let mut say = move || {
            if let Err(error) = this.publish(&mut say) {
                tracing::warn!(%error, "this worker cannot report what it counts");
            }
        };
        Ok(async move {
            loop {
                say();
                // An error is that of a loop that ends.
                let Ok(mut asked) = asks.readable().await else { return };
                asked.clear_ready();
            }
        })
    }

    /// Says something without being asked. Call it at the end of the worker, so that its last
    /// counts are not lost. Texts of several threads come one after the other, each made after the
    /// one before. In a forked child of the worker nothing happens.
    ///
    /// # Errors
    /// More than 64 MiB; no memory; a limit of file sizes (RLIMIT_FSIZE).
    pub fn publish(&self, say: impl FnOnce() -> Said) -> io::Result<()> {
        let Shared { wires, place, process, writes } = &*self.0;
        if std::process::id() != *process {
            return Ok(());
        }
        // The lock guards no value, so after a panic nothing is half done.
        let _writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
        wires.page.write(*place, *process, &say().to_bytes())?;
        ring(&wires.news);
        Ok(())
    }

    /// Asks all workers, waits for at most `limit` for their answers, and returns what each has
    /// said, and what those have left that are gone. Stopped workers, and those that have just
    /// started, are not waited for. The worker that asks has to [`answer`](Self::answer), too.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors left; no memory.
    pub async fn collect(&self, limit: Duration) -> io::Result<Vec<Report>> {
        let wires = &self.0.wires;
        let news = AsyncFd::new(wires.news.try_clone()?)?;
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
        // What has not come by then is not waited for.
        timeout(limit, answers).await.unwrap_or(Ok(()))?;
        let roster = self.roster()?;
        (1..=roster.places).map(|place| self.report(&roster, place, is_new(place)?)).collect()
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
            // Of somebody who has said nothing, only the place is known.
            worker: listed.filter(|_| is_its_own || written.is_none()),
            said: written.map(|written| Said::of_bytes(&written.text)).unwrap_or_default(),
        })
    }

    /// Returns whether another master is in charge: the one before, as this one has not taken over
    /// yet, or the next one.
    ///
    /// # Errors
    /// No memory.
    pub fn is_served_elsewhere(&self) -> io::Result<bool> {
        Ok(self.roster()?.is_served_elsewhere)
    }

    /// Does another worker accept that was not told to end, or is another master in charge (the one
    /// before, or the next one)?
    ///
    /// # Errors
    /// No memory.
    pub fn is_served_by_others(&self) -> io::Result<bool> {
        Ok(self.roster()?.is_served_but_by(self.0.place))
    }

    /// Completes when the master is in charge: all its first workers have accepted. Before an
    /// upgrade is complete, the workers of the earlier master are those that should be asked.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors left; no memory.
    pub async fn until_in_charge(&self) -> io::Result<()> {
        if self.roster()?.is_in_charge {
            return Ok(());
        }
        let news = AsyncFd::new(self.0.wires.news.try_clone()?)?;
        while !self.roster()?.is_in_charge {
            news.readable().await?.clear_ready();
        }
        Ok(())
    }

    /// Returns what the earlier worker in the place of this one said last. Ask before this worker
    /// says anything.
    ///
    /// # Errors
    /// No memory.
    pub fn left_by_predecessor(&self) -> io::Result<Said> {
        let written = self.0.wires.page.read(self.0.place)?;
        Ok(written.map(|written| Said::of_bytes(&written.text)).unwrap_or_default())
    }

    fn roster(&self) -> io::Result<Roster> {
        let written = self.0.wires.page.read(ROSTER)?;
        let roster =
            written.and_then(|written| Roster::of_text(str::from_utf8(&written.text).ok()?));
        roster.ok_or_else(|| io::Error::other("the master has written no list of its workers"))
    }
}

impl Said {
    /// The length of `own` is the first line.
    fn to_bytes(&self) -> Vec<u8> {
        format!("{}\n{}{}", self.own.len(), self.own, self.earlier).into_bytes()
    }

    /// Of anything else it is nothing.
    fn of_bytes(bytes: &[u8]) -> Self {
        let said = || {
            let (length, rest) = str::from_utf8(bytes).ok()?.split_once('\n')?;
            let (own, earlier) = rest.split_at_checked(length.parse().ok()?)?;
            Some(Self { own: own.to_owned(), earlier: earlier.to_owned() })
        };
        said().unwrap_or_default()
    }
}

/// A counter that is full, after 2^64 rings, would ring no more.
fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests;
