//! What the workers of one master know of each other: which of them wait for connections.
//!
//! For a connection the kernel wakes the first worker in its list of waiters. A worker that is
//! awake, and would take the connection, is not in that list: the kernel wakes another one, often
//! in vain. So under light load only a few workers are in the list, as only a few loops of a group
//! are active. The workers share a page of memory. Each writes on its line how busy it has been.
//! Each worker that is awake reads the lines, and decides how many workers are *active*. These are
//! the first ones of those that accept.
//!
//! * A worker enters and leaves the list by itself: no process changes the epoll of another one. If
//!   a worker should enter and may be asleep, its bell, an eventfd, wakes it.
//! * At least one worker is always in the list: see `list`. A worker that ends rings those that
//!   should replace it. If it is killed or stopped, the master rings them.
//! * A worker without room that the kernel wakes for a connection rings one that has room. If none
//!   has, it leaves a note in the page, and the first that has room looks for the connection.
//! * Two masters share the sockets during an upgrade, and each has a page. So each has one of its
//!   workers look for connections once a second, until the other master is gone.
//! * A worker whose group spreads connections is in the list whenever it has room.
//! * If all workers in the list are stuck in their turns, or stopped, an alarm wakes another one:
//!   see `balance::watch`.
//! * Workers that are all busy take connections as fast as they get CPU time, which may differ much
//!   if there are more workers than CPUs. So a worker that has lately taken far more than the mean
//!   steps back for [`STEP_BACK`], if at least as many workers as CPUs stay: no CPU becomes idle.
//! * Without a master nobody reports dead workers. Then all workers are in the list, and the kernel
//!   wakes all of them for each connection.
//!
//! The page has no lock, and a worker may be killed at any instruction. `page` has the layout,
//! `list` the changes of state, and `our_turn` what one worker does with them.

mod list;
mod our_turn;
mod page;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::list::{List, State};
pub(crate) use self::our_turn::{OurTurn, STEP_BACK};
use self::page::Page;

/// If there are more workers than this, they do not take turns. Each place needs a descriptor in
/// each worker.
const MOST: usize = 512;

const TAKEN: &str = "another group has the place of this sibling until that group has ended: give each \
                     group a sibling of its own, from `Siblings::join`";

/// Lets the worker processes of a master take turns waiting for connections. A connection then
/// wakes a worker only if none is awake, and light load stays with few workers. The master keeps
/// this value, gives each worker a place ([`Sibling`]), and reports workers that are dead or
/// stopped.
///
/// # Threads
/// `Send` and `Sync`.
#[derive(Debug)]
pub struct Siblings {
    page: Arc<Page>,
    lifeline: Arc<OwnedFd>,
}

impl Siblings {
    /// Makes places for up to `most` workers at a time. `most` is from 1 to 512; a number out of
    /// this range becomes the nearest number in it. Further workers get no place, and always wait
    /// for connections. `lifeline` is the end of a pipe that becomes readable when the master is
    /// gone. The call opens one descriptor for each place, and two more. Call it before the first
    /// worker is forked.
    ///
    /// # Errors
    /// No descriptors or memory are left; memfd_create(2) is forbidden; or this is not a 64-bit
    /// machine. Workers can run without places: they then always wait for connections.
    pub fn new(most: usize, lifeline: OwnedFd) -> io::Result<Self> {
        if cfg!(not(target_pointer_width = "64")) {
            // Where `usize` has only 32 bits, a word is too small for a clock.
            return Err(io::ErrorKind::Unsupported.into());
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let page = Arc::new(Page::new(most.clamp(1, MOST), cpus)?);
        Ok(Self { page, lifeline: Arc::new(lifeline) })
    }

    /// Returns a place for a worker, or `None` if none is free. Call it before the fork.
    #[must_use]
    pub fn join(&self) -> Option<Sibling> {
        let place = self.page.join()?;
        let (page, lifeline, is_taken) = (self.page.clone(), self.lifeline.clone(), Arc::default());
        Some(Sibling { page, lifeline, place, is_taken })
    }

    /// Reports that a worker is dead. Other workers then wait for connections instead of it.
    pub fn remove(&self, sibling: &Sibling) {
        self.page.free(sibling.place);
    }

    /// Reports that a worker is stopped (for example, by SIGSTOP). Other workers then wait for
    /// connections until it [continues](Self::goes_on).
    pub fn is_stopped(&self, sibling: &Sibling) {
        self.page.set_heard(sibling.place, 0);
        self.page.pauses(sibling.place, State::STOPPED);
    }

    /// Has a worker look for connections that wait at its listeners. Call this now and then while
    /// other processes accept from the same sockets that have no places here, such as the workers
    /// of the previous master in an upgrade. The kernel may have woken one of those for a
    /// connection that it does not take. A call costs at most a write to an eventfd for each
    /// worker.
    pub fn look_for_connections(&self) {
        self.page.others_take_over(None);
    }

    /// Reports that a worker that was [stopped](Self::is_stopped) continues.
    pub fn goes_on(&self, sibling: &Sibling) {
        if self.page.change_state(sibling.place, State::STOPPED, State::OUT) {
            self.page.ring(sibling.place);
        }
    }
}

/// A worker's place among its siblings, for
/// [`LoopGroupBuilder::sibling`](crate::LoopGroupBuilder::sibling). It is for one group at a time.
/// A clone refers to the same place.
///
/// For a worker that is started by `exec`, pass the [`descriptors`](Self::descriptors) and the
/// [`place`](Self::place).
///
/// # Threads
/// `Send` and `Sync`.
#[derive(Debug, Clone)]
pub struct Sibling {
    page: Arc<Page>,
    lifeline: Arc<OwnedFd>,
    place: usize,
    /// Whether a group of this process has taken the place.
    is_taken: Arc<AtomicBool>,
}

impl Sibling {
    /// Returns the descriptors that a worker started by `exec` needs, in the order in which
    /// [`from_descriptors`](Self::from_descriptors) takes them: the end of the master's pipe, the
    /// page, the alarm, and a bell for each place. All are close-on-exec, except the end of the
    /// pipe: it has the flag only if the pipe was made with it.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.lifeline()].into_iter().chain(self.page.descriptors())
    }

    /// Returns the number of the place.
    #[must_use]
    pub fn place(&self) -> usize {
        self.place
    }

    /// Restores the place in a worker started by `exec`, from its number and its
    /// [`descriptors`](Self::descriptors).
    ///
    /// # Errors
    /// The descriptors do not belong to a page with such a place, or belong to a page of another
    /// version of this library: the worker's program file differs from that of the master. In this
    /// case, run the worker without a place.
    pub fn from_descriptors(place: usize, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let mut descriptors = descriptors.into_iter();
        let lifeline = descriptors.next();
        let page = Page::from_descriptors(descriptors).filter(|page| place < page.places());
        let (lifeline, page) = lifeline.zip(page).ok_or_else(|| {
            let text = "these are not the descriptors of a sibling, or those of another version of wakeful";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let (page, lifeline) = (Arc::new(page), Arc::new(lifeline));
        Ok(Self { page, lifeline, place, is_taken: Arc::default() })
    }

    /// Takes the place for a group. From then on only the group's loops write on the place's line.
    ///
    /// # Errors
    /// Another group has the place.
    pub(crate) fn take(&self) -> io::Result<Arc<Taken>> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, TAKEN));
        }
        Ok(Arc::new(Taken(self.is_taken.clone())))
    }

    /// A descriptor that is readable when this worker should check whether it is its turn.
    fn bell(&self) -> BorrowedFd<'_> {
        self.page.bell(self.place)
    }

    /// A descriptor that is readable when the master is gone.
    fn lifeline(&self) -> BorrowedFd<'_> {
        self.lifeline.as_fd()
    }
}

/// A group's right to a sibling's place. It lasts until the last loop of the group drops it.
#[derive(Debug)]
pub(crate) struct Taken(Arc<AtomicBool>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
