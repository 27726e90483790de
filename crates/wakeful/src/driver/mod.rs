//! The kernel's side of a loop: which descriptors it watches, and how it waits for them.
//!
//! [`Driver`] knows the registered descriptors ([`source`]) and turns the kernel's events into
//! wakes. [`epoll`] makes the system calls, [`high`] handles high-priority sockets first, and with
//! [`bell`] other threads end a wait. There is one backend today. A second one would become an enum
//! beside [`epoll::Epoll`] (no `dyn` on the hot path), with the operations that `Driver` calls:
//! add, remove, wait.
//!
//! Each loop that watches a listener with others has a [`membership`] in the kernel's list.
//!
//! [`registered`] is a descriptor that its owner uses, `mode` how it is watched, `readiness` what
//! is known of one direction, [`waiters`] the tasks that wait for it. [`interest`] and [`seen`] are
//! for code that makes its own system calls. [`listener_members`] has all loops' memberships in one
//! listener's list; `joined` is a loop with such a membership. `close_in_child` closes what a
//! forked child has inherited.
//!
//! Invariant: an event reaches the source that it was meant for, or none. Its token carries the
//! generation of the registration; if a descriptor number, or a slot, was reused in the meantime,
//! its generation differs.

pub(crate) mod bell;
#[allow(unsafe_code)]
pub(crate) mod busy_poll;
#[allow(unsafe_code)]
mod close_in_child;
#[allow(unsafe_code)]
pub(crate) mod epoll;
mod exclusive;
mod high;
pub(crate) mod interest;
mod joined;
pub(crate) mod listener_members;
pub(crate) mod membership;
mod mode;
mod readiness;
pub(crate) mod registered;
pub(crate) mod seen;
#[allow(unsafe_code)]
pub(crate) mod source;
mod token;
pub(crate) mod waiters;

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{Event, EventFlags};
use slab::Slab;

use self::bell::EventFdBell;
use self::busy_poll::BusyPoll;
use self::epoll::{Epoll, Timeout, Timer};
use self::high::High;
use self::joined::Joined;
use self::listener_members::ListenerMembers;
use self::membership::{Joining, Membership};
use self::mode::Mode;
use self::source::Source;
use self::token::Token;
use crate::priority::Priority;
use crate::sys::fork_check::Process;
use crate::sys::{failures, limits};

struct Slot {
    token: Token,
    source: Rc<Source>,
}

/// The descriptors of one loop, and how the loop waits for them. It is used on the loop's thread
/// only.
pub(crate) struct Driver {
    /// Shared with the memberships of the loop's listeners. Other loops use it to open and close
    /// them.
    epoll: Arc<Epoll>,
    /// Made for the first high-priority socket.
    high: OnceCell<High>,
    process: Process,
    /// Made only for a loop that another event loop drives, or that has a guest.
    timer: RefCell<Option<Timer>>,
    /// Whether the timer is armed. It may have fired since.
    is_armed: Cell<bool>,
    slots: RefCell<Slab<Slot>>,
    /// The sources that other loops watch, too. There are only a few.
    shared: RefCell<Vec<Rc<Source>>>,
    /// Whether one of the shared listeners may have lost its last task that accepts.
    look_at_shared: Cell<bool>,
    next_generation: Cell<u32>,
    /// Events of the last wait that are not dispatched yet.
    events: RefCell<Vec<Event>>,
    batch: usize,
    /// Whether a signal ended the last wait.
    interrupted: Cell<bool>,
    /// Whether the loop has ended. Nobody will wait for events again.
    ended: Cell<bool>,
}

/// The events of the last wait, while they are dispatched.
struct Batch<'a> {
    driver: &'a Driver,
    events: Vec<Event>,
    dispatched: usize,
}

impl Batch<'_> {
    /// Called when all events are dispatched.
    #[inline]
    fn end(mut self) {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        self.driver.events.replace(events);
        std::mem::forget(self);
    }
}

impl Drop for Batch<'_> {
    /// After a panic, the remaining events go back into the driver.
    #[cold]
    fn drop(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        events.drain(..self.dispatched);
        self.driver.events.replace(events);
    }
}

impl Driver {
    /// A driver for the loop of `process` that fetches at most `batch` events at a time, and the
    /// bell that ends its waits.
    pub(crate) fn new(process: Process, batch: usize) -> io::Result<(Self, EventFdBell)> {
        let epoll = Arc::new(Epoll::new()?);
        let bell = EventFdBell::new(process)?;
        epoll
            .add(bell.as_fd(), EventFlags::IN | EventFlags::ET, Token::BELL.0)
            .map_err(limits::explain_call("epoll_ctl"))?;
        let driver = Self {
            epoll,
            high: OnceCell::new(),
            process,
            timer: RefCell::new(None),
            is_armed: Cell::new(false),
            slots: RefCell::default(),
            shared: RefCell::default(),
            look_at_shared: Cell::new(false),
            // The number starts near its end, so that it wraps around in every run that opens a few
            // descriptors.
            next_generation: Cell::new(u32::MAX - 8),
            events: RefCell::new(Vec::with_capacity(batch)),
            batch,
            interrupted: Cell::new(false),
            ended: Cell::new(false),
        };
        Ok((driver, bell))
    }

    /// Has the kernel busy-poll for this loop.
    pub(crate) fn busy_poll(&self, settings: BusyPoll) -> io::Result<()> {
        settings.apply(self.as_fd())
    }

    /// Gives `source` a place in the table and starts to watch it, together with other loops if it
    /// is a `shared` listener.
    fn register(
        &self,
        source: &Rc<Source>,
        shared: Option<(&Arc<OwnedFd>, &Arc<ListenerMembers>, Joining)>,
    ) -> io::Result<Token> {
        if self.ended.get() {
            return Err(ended());
        }
        let generation = self.next_generation.get();
        self.next_generation.set(generation.wrapping_add(1));
        let token = {
            let mut slots = self.slots.borrow_mut();
            let vacant = slots.vacant_entry();
            let token = Token::new(vacant.key(), generation);
            vacant.insert(Slot { token, source: source.clone() });
            token
        };
        // Nothing is borrowed here, because a missing kernel feature is logged, and a log line may
        // run user code.
        let watched = match shared {
            Some((listener, memberships, joining)) => {
                self.watch_with_others(source, token, listener, memberships, joining)
            }
            None => self.watch(source, token),
        };
        if watched.is_err() {
            self.forget(token);
        }
        watched.map(|()| token)
    }

    fn watch_with_others(
        &self,
        source: &Rc<Source>,
        token: Token,
        listener: &Arc<OwnedFd>,
        memberships: &Arc<ListenerMembers>,
        joining: Joining,
    ) -> io::Result<()> {
        self.process.check_quickly()?;
        let membership = Membership::new(
            self.epoll.clone(),
            listener.clone(),
            token.0,
            self.process,
            memberships.is_exclusive(),
        );
        match joining {
            Joining::AtOnce => membership.want(true)?,
            Joining::AtFirstWait => membership.is_possible()?,
        }
        source.set_joined(Joined::new(membership, memberships));
        self.shared.borrow_mut().push(source.clone());
        self.look_at_shared();
        Ok(())
    }

    fn watch(&self, source: &Source, token: Token) -> io::Result<()> {
        self.process.check_quickly()?;
        let (epoll, flags) = (self.epoll_of(source), source.mode().flags());
        failures::at(failures::Call::Watch)
            .and_then(|()| epoll.add(source.fd(), flags, token.0))
            // EPERM: epoll cannot watch this kind of descriptor, for example a regular file.
            .map_err(limits::explain)
    }

    /// The epoll that watches `source`.
    fn epoll_of(&self, source: &Source) -> &Epoll {
        match (source.priority(), self.high.get()) {
            (Priority::High, Some(high)) => &high.epoll,
            _ => &self.epoll,
        }
    }

    /// Has `source` watched with this priority from now on. After an error everything is as before.
    fn set_priority(&self, source: &Source, token: Token, priority: Priority) -> io::Result<()> {
        if priority == source.priority() {
            return Ok(());
        }
        if self.ended.get() {
            return Err(ended());
        }
        self.process.check_quickly()?;
        if priority == Priority::High && self.high.get().is_none() {
            let _ = self.high.set(High::within(&self.epoll, self.batch)?);
        }
        let old = self.epoll_of(source);
        let before = source.set_priority(priority);
        // What is ready now is an event of the new epoll, so nothing is lost in between. An event
        // that both epolls report counts once.
        self.watch(source, token).inspect_err(|_| {
            source.set_priority(before);
        })?;
        old.remove(source.fd());
        Ok(())
    }

    fn forget(&self, token: Token) {
        let slot = self.slots.borrow_mut().try_remove(token.slot());
        debug_assert!(slot.as_ref().is_some_and(|slot| slot.token == token));
        if let Some(slot) = slot.filter(|slot| slot.source.mode() == Mode::Exclusive) {
            self.shared.borrow_mut().retain(|source| !Rc::ptr_eq(source, &slot.source));
        }
    }

    /// Asks the kernel once, waiting for up to `timeout`, and once more if high-priority sockets
    /// may have events. Returns how many events there are for [`dispatch`](Self::dispatch), with
    /// those of high-priority sockets first. A wait that a signal ends returns no events.
    pub(crate) fn wait(&self, timeout: Timeout) -> io::Result<usize> {
        if timeout != Timeout::Zero && self.look_at_shared.get() {
            // The kernel gives an exclusive wake to one sleeping loop. It must not be a loop on
            // which no task accepts, because then the connection would wait although other loops
            // could take it.
            self.step_back_from_listeners();
        }
        let mut events = self.events.borrow_mut();
        if !events.is_empty() {
            // The kernel reports an edge once, so these are dispatched first.
            return Ok(events.len());
        }
        if let Some(high) = self.high.get() {
            let waited = high.wait(&self.epoll, &mut events, self.batch, timeout);
            return self.counted(waited, &events);
        }
        self.counted(self.epoll.wait(&mut events, self.batch, timeout), &events)
    }

    /// Must be called before another event loop waits for this loop's descriptor: see
    /// [`wait`](Self::wait).
    #[inline]
    pub(crate) fn before_foreign_wait(&self) {
        if self.look_at_shared.get() {
            self.step_back_from_listeners();
        }
    }

    /// Is a descriptor watched level-triggered? Such a descriptor stays ready in the kernel after a
    /// wait has reported it.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_level_triggered(&self) -> bool {
        self.high.get().is_some() || !self.shared.borrow().is_empty()
    }

    /// Notes that a shared listener may have lost its last task that accepts. The next wait that
    /// may sleep checks. Must be called wherever a waiter leaves, or may have failed to register.
    fn look_at_shared(&self) {
        self.look_at_shared.set(true);
    }

    #[cold]
    fn step_back_from_listeners(&self) {
        self.look_at_shared.set(false);
        for number in 0.. {
            // The list is not borrowed here, because a step back may log, and a log line may run
            // user code.
            let source = self.shared.borrow().get(number).cloned();
            let Some(source) = source else { break };
            source.step_back_if_idle();
        }
    }

    /// Are there events that [`dispatch`](Self::dispatch) has not handled? This happens only after
    /// a panic in a dispatch, or after a wait that failed halfway.
    pub(crate) fn has_left_over(&self) -> bool {
        !self.events.borrow().is_empty()
    }

    /// Notes in each source what the last [`wait`](Self::wait) brought, and wakes the tasks that
    /// wait for it. Returns how many events were for sources (a rung bell is not).
    pub(crate) fn dispatch(&self) -> usize {
        // A waker may run user code, which may register and deregister, so nothing is borrowed
        // while one runs. Only `wait` uses the buffer that is taken here, and `wait` comes later.
        let mut batch = Batch { driver: self, events: self.events.take(), dispatched: 0 };
        let mut dispatched = 0;
        for event in &batch.events {
            batch.dispatched += 1;
            let token = Token(event.data.u64());
            let source = match self.slots.borrow().get(token.slot()) {
                Some(slot) if slot.token == token => slot.source.clone(),
                // The event belongs to no source (for example, to the bell), or a handler of an
                // earlier event of this batch has deregistered the source.
                _ => continue,
            };
            dispatched += 1;
            if source.mode() == Mode::Exclusive {
                self.look_at_shared();
            }
            source.on_event(event.flags);
        }
        batch.end();
        dispatched
    }

    /// Makes the epoll descriptor readable at a deadline, `after` from now, or never. It is for a
    /// loop that another event loop drives.
    pub(crate) fn arm_timer(&self, after: Option<Duration>) -> io::Result<()> {
        self.make_timer()?;
        if after.is_none() && !self.is_armed.get() {
            return Ok(());
        }
        self.timer.borrow().as_ref().map_or(Ok(()), |timer| timer.arm(after))?;
        self.is_armed.set(after.is_some());
        Ok(())
    }

    /// Makes the timer that [`arm_timer`](Self::arm_timer) arms, so that arming needs no
    /// descriptor. Later there may be none left.
    pub(crate) fn make_timer(&self) -> io::Result<()> {
        let mut timer = self.timer.borrow_mut();
        if timer.is_none() {
            let new = Timer::new()?;
            self.epoll
                .add(new.as_fd(), EventFlags::IN | EventFlags::ET, Token::TIMER.0)
                .map_err(limits::explain_call("epoll_ctl"))?;
            *timer = Some(new);
        }
        Ok(())
    }

    /// Has `alarm` wake this loop, or another sleeping loop that watches it too. The wake is not
    /// reported as an event.
    pub(crate) fn watch_alarm(&self, alarm: &Timer) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE;
        Ok(exclusive::add(&self.epoll, alarm.as_fd(), flags, Token::ALARM.0)?)
    }

    /// Has each write to `question`, an eventfd that nobody reads, end a wait of this loop. The
    /// wake is not reported as an event.
    #[cfg(any(feature = "tokio", test))]
    pub(crate) fn watch_questions(&self, question: BorrowedFd<'_>) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(self.epoll.add(question, flags, Token::ALARM.0)?)
    }

    /// The number of `events`, after a wait that a signal may have ended.
    #[inline]
    fn counted(&self, waited: rustix::io::Result<()>, events: &[Event]) -> io::Result<usize> {
        self.interrupted.set(waited == Err(rustix::io::Errno::INTR));
        match waited {
            Ok(()) => Ok(events.len()),
            Err(rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(limits::explain_call("epoll_pwait")(error)),
        }
    }

    /// Did a signal end the last wait? If so, it is unknown what is ready.
    #[inline]
    pub(crate) fn was_interrupted(&self) -> bool {
        self.interrupted.get()
    }

    /// The maximum number of events of a wait.
    #[inline]
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// How many descriptors are registered.
    pub(crate) fn registered(&self) -> usize {
        self.slots.borrow().len()
    }

    /// How many descriptors may be ready in the kernel's list at a time: those that are registered,
    /// and the loop's own.
    pub(crate) fn most_ready(&self) -> usize {
        // The bell, the timer, the alarm, the question, and the epoll of high-priority sockets.
        const OWN: usize = 5;
        self.registered() + OWN
    }

    /// Ends the driver with its loop. From now on an operation that would have to wait fails
    /// instead. Present waiters are woken, so that they see this. In a forked child they are not,
    /// because they are the parent's.
    pub(crate) fn end(&self) {
        self.ended.set(true);
        let sources: Vec<_> = self.slots.borrow().iter().map(|(_, s)| s.source.clone()).collect();
        if self.process.is_forked() {
            sources.iter().for_each(|source| source.leak_wakers());
            close_in_child::close(sources.iter().map(|source| &**source));
            return;
        }
        sources.iter().for_each(|source| source.end());
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("registered", &self.registered()).finish_non_exhaustive()
    }
}

pub(super) fn ended() -> io::Error {
    io::Error::other("the event loop that this descriptor belongs to has ended")
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use crate::driver::epoll::Timeout;
    use crate::driver::registered::Registered;

    #[test]
    fn a_dispatch_that_a_panic_ends_leaves_the_buffer_and_the_other_events() {
        const SOCKETS: usize = 3;
        let (driver, _bell) = Driver::new(Process::current().unwrap(), 8).unwrap();
        let driver = Rc::new(driver);
        // A new socket is writable, so each has an event.
        let pairs = [(); SOCKETS].map(|()| std::os::unix::net::UnixStream::pair().unwrap());
        let _watched = pairs.each_ref().map(|(near, _)| Registered::new(&driver, near).unwrap());
        assert_eq!(driver.wait(Timeout::Zero).unwrap(), SOCKETS);
        // A dispatch that ends after one event.
        drop(Batch { driver: &driver, events: driver.events.take(), dispatched: 1 });
        assert!(driver.has_left_over());
        assert_eq!(driver.wait(Timeout::Never).unwrap(), SOCKETS - 1, "they do not wait");
        assert_eq!(driver.dispatch(), SOCKETS - 1);
        assert_eq!(driver.dispatch(), 0);
        for timeout in [Timeout::Zero, Timeout::After(Duration::from_micros(1))] {
            assert_eq!(driver.wait(timeout).unwrap(), 0);
        }
        assert!(!driver.has_left_over() && driver.events.borrow().capacity() >= 8);
    }
}
