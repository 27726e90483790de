//! One worker's part: whether it is its turn to wait for connections, and how it learns that.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Sibling;
use super::list::{List, State};
use super::page::Page;
use crate::balance::activity::{Activity, Targets};
use crate::balance::alarm::{Alarm, PATIENCE};
use crate::balance::recent;
use crate::balance::watch::Crowd;
use crate::driver::epoll::Timer;
use crate::sys::panics;

/// How long a worker that is ahead of its siblings takes no connections. It is long enough for the
/// siblings to take some, and too short to matter for the latency at saturation.
pub(crate) const STEP_BACK: Duration = Duration::from_millis(2);

/// One worker's part in the turns of all workers. See the [module](super).
#[derive(Debug)]
pub(crate) struct OurTurn {
    sibling: Sibling,
    alarm: Alarm,
    /// Whether it is always this worker's turn, because its group spreads connections.
    spreads: bool,
    /// Whether the master is gone.
    is_alone: AtomicBool,
    /// The millisecond when it last compared itself with its siblings.
    compared: AtomicU32,
    reviews: Mutex<Reviews>,
}

/// What this worker has seen. Each worker reviews by itself. What the reviews decide is in the
/// page.
#[derive(Debug)]
struct Reviews {
    activity: Activity,
    /// How busy each worker had been at the last review.
    busy: Box<[u64]>,
    at: u64,
}

/// How a review has changed the number of active workers.
#[must_use]
pub(crate) struct Change {
    was: usize,
    active: usize,
    utilisation: f64,
}

impl Change {
    pub(crate) fn log(self) {
        let Self { was, active, utilisation } = self;
        panics::log!(debug, was, active, utilisation, "active workers");
    }
}

impl OurTurn {
    /// `targets` has the utilisation up to which workers are active; `None`: this worker always
    /// is.
    pub(crate) fn new(sibling: Sibling, targets: Option<Targets>) -> Self {
        let page = &sibling.page;
        let alarm = Alarm::shared(page.timer().clone(), page.due());
        let activity = Activity::new(page.places(), targets.unwrap_or_default().least(1));
        let busy = vec![0; page.places()].into();
        let reviews = Mutex::new(Reviews { activity, busy, at: 0 });
        let (is_alone, compared) = (AtomicBool::new(false), AtomicU32::new(0));
        Self { sibling, alarm, spreads: targets.is_none(), is_alone, compared, reviews }
    }

    fn page(&self) -> &Page {
        &self.sibling.page
    }

    pub(crate) fn timer(&self) -> &Timer {
        self.alarm.timer()
    }

    /// Returns a duplicate of this worker's bell. It is readable when [`is_ours`](Self::is_ours)
    /// may have changed.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn bell(&self) -> io::Result<OwnedFd> {
        self.sibling.bell().try_clone_to_owned()
    }

    /// Returns a duplicate of the lifeline. It is readable when the master is gone.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn lifeline(&self) -> io::Result<OwnedFd> {
        self.sibling.lifeline().try_clone_to_owned()
    }

    /// Is the master gone? This asks the kernel, so it does not depend on what this worker has
    /// heard.
    pub(crate) fn is_orphaned(&self) -> bool {
        let mut lifeline = [PollFd::from_borrowed_fd(self.sibling.lifeline(), PollFlags::IN)];
        matches!(poll(&mut lifeline, Some(&Timespec::default())), Ok(1..))
    }

    /// Notes that the master is gone. From now on it is always this worker's turn.
    pub(crate) fn is_alone_now(&self) {
        self.is_alone.store(true, Ordering::SeqCst);
        // The master reports no more that this worker continues.
        self.page().change_state(self.sibling.place, State::STOPPED, State::OUT);
    }

    /// Notes that this worker accepts, and is in the kernel's list.
    pub(crate) fn begins(&self) {
        self.page().begins(self.sibling.place);
        self.hear();
    }

    /// Notes that this worker accepts no more. Its siblings do.
    pub(crate) fn ends(&self) {
        if self.page().state(self.sibling.place) != State::LEAVES {
            self.page().leaves(self.sibling.place, State::LEAVES);
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        let is_always = self.spreads || self.is_alone.load(Ordering::SeqCst);
        is_always || self.page().is_wanted(self.sibling.place)
    }

    /// Notes that this worker has no room for another connection. Its siblings accept.
    pub(crate) fn is_full(&self) {
        self.page().pauses(self.sibling.place, State::FULL);
    }

    /// Notes that this worker has room again.
    pub(crate) fn has_room(&self) {
        self.page().change_state(self.sibling.place, State::FULL, State::OUT);
    }

    /// Rings a worker in the list. It looks for a connection that the kernel woke another worker
    /// for.
    pub(crate) fn ring_one_inside(&self) {
        if let Some(place) = self.page().are_in().next() {
            self.page().ring(place);
        }
    }

    /// Has a sibling look for a connection that the kernel woke this worker for.
    pub(crate) fn others_take_over(&self) {
        self.page().others_take_over(None);
    }

    /// Called when the bell has rung. Returns whether this worker must look for connections that
    /// the kernel woke siblings for. If not, a sibling does.
    pub(crate) fn is_to_look(&self) -> bool {
        self.page().is_to_look(self.sibling.place)
    }

    /// Does a sibling accept that is not stuck in its turn, whether it is in the kernel's list or
    /// not? Without the master nobody knows: a sibling may be dead.
    pub(crate) fn do_siblings_accept(&self) -> bool {
        let (me, now) = (self.sibling.place, self.alarm.now());
        let accepts = |place| place != me && !self.is_stuck(place, now);
        !self.is_alone.load(Ordering::SeqCst) && self.page().accepting().any(accepts)
    }

    /// Does this worker accept, whether it is in the kernel's list or not?
    pub(crate) fn accepts(&self) -> bool {
        self.page().state(self.sibling.place).accepts()
    }

    pub(crate) fn is_out(&self) -> bool {
        self.page().state(self.sibling.place) == State::OUT
    }

    /// Are other workers in the list, too?
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.page().active() > 1
    }

    /// Notes that this worker is in the kernel's list again. After this,
    /// [`may_block_at_once`](Self::may_block_at_once) must be called.
    pub(crate) fn came_in(&self) {
        self.page().comes_in(self.sibling.place);
    }

    /// Called after this worker has come in while it is awake. When it woke up it was out, and did
    /// not set the alarm, and a worker that went to sleep since may have stopped the alarm. So it
    /// sets the alarm now, because a turn may block before its next report. This may log, and so
    /// block: the caller must keep no other thread from its work.
    pub(crate) fn may_block_at_once(&self) {
        if self.page().heard(self.sibling.place) != 0 {
            self.hear();
        }
    }

    /// Notes that this worker leaves the kernel's list, unless nobody else is in it, or it is its
    /// turn after all. Returns whether it may. If not,
    /// [`may_block_at_once`](Self::may_block_at_once) must be called.
    pub(crate) fn may_go_out(&self) -> bool {
        self.page().may_go_out(self.sibling.place)
    }

    /// Notes that this worker took a connection. Returns whether it has lately taken far more than
    /// its siblings. `false` if there are no more active workers than CPUs, or its group spreads.
    pub(crate) fn accepted_too_many(&self) -> bool {
        let (page, me) = (self.page(), self.sibling.place);
        let now = (page.now() / 1_000_000) as u32;
        // If two loops write at the same time, one accept may be lost, which does not matter.
        let mine = recent::with_one_more(page.recent(me), now);
        page.set_recent(me, mine);
        // The comparison runs at most once a millisecond, because there may be many siblings.
        let is_free = self.spreads || page.active() <= page.cpus();
        if is_free || self.compared.swap(now, Ordering::Relaxed) == now {
            return false;
        }
        // Workers that are stuck take no connections, so they do not count in the mean.
        let ticks = self.alarm.now();
        let (mut sum, mut count) = (0.0, 0.0);
        for place in page.accepting().take(page.active()).filter(|it| !self.is_stuck(*it, ticks)) {
            sum += recent::count(page.recent(place), now);
            count += 1.0;
        }
        count > 0.0 && recent::count(mine, now) > recent::most(sum / count)
    }

    /// Notes that this worker is out for a while although it is its turn, unless then fewer workers
    /// than CPUs are in the list and not stuck. Returns whether it may. If not,
    /// [`may_block_at_once`](Self::may_block_at_once) must be called.
    pub(crate) fn may_step_back(&self) -> bool {
        // Without the master nobody reports which workers are dead.
        if self.is_alone.load(Ordering::SeqCst) {
            return false;
        }
        let (page, ticks) = (self.page(), self.alarm.now());
        let takes = |place: usize| !self.is_stuck(place, ticks);
        page.may_step_back(self.sibling.place, page.cpus(), takes)
    }

    /// Reports how long each loop of this worker has worked, on average, in nanoseconds, and
    /// reviews how many workers should be active. If a worker in the list is stuck, another one
    /// looks for connections: the alarm does not ring as long as any of them is awake.
    ///
    /// The caller logs the result when nothing is left to do: the subscriber may block.
    pub(crate) fn review(&self, busy: u64) -> Option<Change> {
        let page = self.page();
        page.set_busy(self.sibling.place, busy);
        let mut reviews = panics::try_lock(&self.reviews)?;
        let now = page.now();
        let Reviews { activity, busy: before, at } = &mut *reviews;
        let passed = now.saturating_sub(std::mem::replace(at, now)).max(1) as f64;
        let (mut together, mut accepting) = (0.0, 0);
        let ticks = self.alarm.now();
        for place in page.accepting() {
            accepting += 1;
            let busy = page.busy(place);
            // A new worker in this place begins at 0.
            let more = busy.saturating_sub(std::mem::replace(&mut before[place], busy)) as f64;
            // A worker that is stuck reports nothing, so it counts as busy.
            together += if self.is_stuck(place, ticks) { 1.0 } else { (more / passed).min(1.2) };
        }
        let said = page.active();
        let was = said.clamp(1, accepting.max(1));
        activity.follow(was);
        let active = activity.review(now, together).clamp(1, accepting.max(1));
        drop(reviews);
        let changed = active != said && page.change_active(said, active) && active != was;
        if page.are_in().any(|place| self.is_stuck(place, ticks)) {
            self.tell_of_stuck();
        }
        changed.then_some(Change { was, active, utilisation: together })
    }

    pub(crate) fn hear(&self) {
        Crowd::hear(self, self.sibling.place);
    }

    pub(crate) fn is_back(&self) {
        Crowd::is_back(self, self.sibling.place);
    }

    pub(crate) fn leave(&self, often: bool) {
        Crowd::leave(self, self.sibling.place, often);
    }
}

impl Crowd for OurTurn {
    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn heard(&self, place: usize) -> u64 {
        self.page().heard(place)
    }

    fn set_heard(&self, place: usize, at: u64) {
        self.page().set_heard(place, at);
    }

    fn is_active(&self, place: usize) -> bool {
        self.page().state(place) == State::IN
    }

    fn active_members(&self) -> impl Iterator<Item = usize> {
        self.page().are_in()
    }

    fn activate_one_more(&self) -> Option<usize> {
        let (active, all) = (self.page().active(), self.page().accepting().count());
        (active < all && self.page().change_active(active, active + 1)).then_some(active + 1)
    }

    fn log_one_more(&self, active: usize) {
        panics::log!(
            info,
            active,
            "every active worker is stuck for {PATIENCE:?}: one more worker takes new connections"
        );
    }

    /// Rings a worker that is not stuck. Perhaps it must take connections that the kernel woke the
    /// stuck ones for.
    fn tell_of_stuck(&self) {
        let now = self.alarm.now();
        let well = self.active_members().find(|place| !self.is_stuck(*place, now));
        if let Some(place) = well {
            self.page().ring(place);
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
