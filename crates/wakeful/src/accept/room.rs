//! How a server at its limit of connections makes room for waiting ones: it asks idle connections
//! to close, the longest idle first.
//!
//! A loop that waits for a permit checks its listener now and then ([`LOOK`]). If a connection
//! waits, the loop [`ask`](Room::ask)s all loops to give places up. Each loop looks through its
//! connections that may be asked (`draining.rs` keeps them), a few at a time. For each connection
//! that it asks, it reduces the number of wanted places by one. A connection that was asked ends as
//! in a drain. While the server is below its limit, nothing here runs.
//!
//! The kernel does not report how many connections wait. So the first request is for one place.
//! While connections still wait, each further request is for twice as many places as were given up
//! before.
//!
//! With [`WhenFull::Replace`] no connection waits: the connection that takes the last place asks
//! for another place at once, and the next connection gets it.

use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};

use super::draining::Draining;
use super::gives_way::Standing;
use super::when_full::WhenFull;
use crate::task::yield_now;

/// How often a loop that waits for a permit checks whether a connection waits.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// How long the connections that were asked have to leave, before others are asked. An idle
/// HTTP/1.1 connection needs 200 ms.
const TO_LEAVE: Duration = Duration::from_millis(250);

/// A request later than this after the previous one belongs to another shortage. As long as
/// connections wait, the next request comes with the first check after [`TO_LEAVE`].
const ANOTHER: Duration = Duration::from_millis(500);

/// The most places that are wanted at a time.
const MOST: usize = 256;

/// How many connections a loop checks before it lets other tasks run.
const LOOKS: usize = 64;

/// What the loops of a server share: how many places are wanted.
#[derive(Debug)]
pub(super) struct Room {
    when_full: WhenFull,
    epoch: Instant,
    /// In milliseconds since the epoch; 0: never.
    asked_at: AtomicU64,
    /// How many places were asked for then.
    asked_for: AtomicUsize,
    /// How many of these places no connection has given up yet.
    wanted: AtomicUsize,
    /// Busy connections are asked too, because there are not enough idle ones.
    asks_busy: AtomicBool,
    loops: Box<[Sender<()>]>,
}

impl Room {
    /// Also returns the receiver of each loop, in the order of the loops' numbers.
    pub(super) fn new(loops: usize, when_full: WhenFull) -> (Arc<Self>, Vec<Receiver<()>>) {
        let (loops, asked): (Vec<_>, Vec<_>) =
            (0..loops).map(|_| async_channel::bounded(1)).unzip();
        let room = Self {
            when_full,
            epoch: Instant::now(),
            asked_at: AtomicU64::new(0),
            asked_for: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            asks_busy: AtomicBool::new(false),
            loops: loops.into(),
        };
        (Arc::new(room), asked)
    }

    pub(super) fn when_full(&self) -> WhenFull {
        self.when_full
    }

    /// Asks for a place. Called when a connection waits and there is no permit for it.
    #[cold]
    pub(super) fn ask(&self) {
        if self.when_full == WhenFull::Replace {
            self.asks_busy.store(true, Ordering::Relaxed);
            return self.want(1);
        }
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let before = self.asked_at.load(Ordering::Relaxed);
        let passed = Duration::from_millis(now.saturating_sub(before));
        if before != 0 && passed < TO_LEAVE {
            return;
        }
        // If several loops ask at once, all but one return here.
        if self
            .asked_at
            .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        let goes_on = before != 0 && passed < ANOTHER;
        let left = self.wanted.load(Ordering::Relaxed);
        let number = match (goes_on, left, self.asked_for.load(Ordering::Relaxed)) {
            (false, ..) => 1,
            (true, 0, number) => (2 * number).min(MOST),
            (true, _, number) => number,
        };
        self.asked_for.store(number, Ordering::Relaxed);
        self.asks_busy.store(goes_on && left > 0, Ordering::Relaxed);
        self.want(number);
    }

    fn want(&self, number: usize) {
        // `Relaxed` is enough, because the channels order this store.
        self.wanted.store(number, Ordering::Relaxed);
        for asked in &self.loops {
            // A full channel means that the loop has not handled the previous message yet. When it
            // does, it also sees this request.
            let _ = asked.try_send(());
        }
    }

    fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Takes one of the wanted places, unless other loops have taken all of them.
    fn takes_one(&self) -> bool {
        let one_less = |wanted: usize| wanted.checked_sub(1);
        self.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// One loop's part: asks its connections whenever places are wanted. Ends with the server.
pub(super) async fn give_way(asked: Rc<Receiver<()>>, room: Weak<Room>, connections: Draining) {
    while asked.recv().await.is_ok() {
        let Some(room) = room.upgrade() else { return };
        let idle = |standing| match standing {
            Standing::Idle(since) => Some(since),
            Standing::Busy(_) | Standing::Open(_) | Standing::Stays => None,
        };
        ask_first_by(idle, &room, &connections).await;
        if room.asks_busy.load(Ordering::Relaxed) {
            let busy = |standing| match standing {
                Standing::Idle(since) => Some(Busy::NoMore(since)),
                Standing::Open(since) => Some(Busy::Open(since)),
                Standing::Busy(requests) => Some(Busy::Requests(Reverse(requests))),
                Standing::Stays => None,
            };
            ask_first_by(busy, &room, &connections).await;
        }
    }
}

/// The order in which busy connections are asked.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Busy {
    /// The connection has become idle since the idle ones were asked.
    NoMore(Instant),
    /// A connection that may close before its request is answered. The one that has been open for
    /// longest is the first.
    Open(Instant),
    /// A connection that closes when its request is answered. The one with the most requests is the
    /// first: it has had its turn, and probably finishes soon.
    Requests(Reverse<u64>),
}

/// Asks as many connections as are wanted, in the order of `key`; those without a key are not
/// asked.
async fn ask_first_by<K: Ord>(
    key: impl Fn(Standing) -> Option<K>,
    room: &Room,
    connections: &Draining,
) {
    // The first of the connections checked so far, in order.
    let mut first: Vec<(K, usize)> = Vec::new();
    let mut place = 0;
    while room.wanted() > 0 && place < connections.places() {
        for place in place..place + LOOKS {
            let Some(key) = connections.standing(place).and_then(&key) else { continue };
            let at = first.partition_point(|(other, _)| *other <= key);
            if at < MOST {
                first.truncate(MOST - 1);
                first.insert(at, (key, place));
            }
        }
        place += LOOKS;
        yield_now().await;
    }
    for (before, place) in first {
        // The connection may have received something since. It is asked only if its key is still no
        // greater than before.
        let is_same =
            || connections.standing(place).and_then(&key).is_some_and(|now| now <= before);
        if is_same() && room.takes_one() {
            connections.ask(place);
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use crate::accept::{DrainingStarted, GivesWay};
    use crate::block_on;
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Waker};

    struct Stands(Cell<Standing>);

    impl GivesWay for Stands {
        fn standing(&self) -> Standing {
            self.0.get()
        }
    }

    /// The places of the connections that are asked, when `wanted` places are wanted.
    fn asked(standings: &[Standing], wanted: usize, asks_busy: bool) -> Vec<usize> {
        let connections = Draining::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = standings
            .iter()
            .map(|standing| connections.started_or_asked(Rc::new(Stands(Cell::new(*standing)))))
            .collect();
        // A connection that only waits for the drain, and may not be asked.
        waiting.push(connections.started());
        for one in &mut waiting {
            assert!(Pin::new(one).poll(&mut cx).is_pending());
        }
        let (room, mut asked) = Room::new(1, WhenFull::Wait);
        room.wanted.store(wanted, Ordering::Relaxed);
        room.asks_busy.store(asks_busy, Ordering::Relaxed);
        room.loops[0].try_send(()).unwrap();
        room.loops[0].close();
        block_on(give_way(Rc::new(asked.remove(0)), Arc::downgrade(&room), connections));
        let mut is_asked = |one: &mut DrainingStarted| Pin::new(one).poll(&mut cx).is_ready();
        let is_asked: Vec<bool> = waiting.iter_mut().map(&mut is_asked).collect();
        let asked: Vec<_> = (0..waiting.len()).filter(|place| is_asked[*place]).collect();
        assert_eq!(room.wanted(), wanted - asked.len());
        asked
    }

    #[test]
    fn those_that_are_idle_for_longest_are_asked_and_busy_ones_where_these_are_not_enough() {
        let now = Instant::now();
        let idle = |seconds| Standing::Idle(now + Duration::from_secs(seconds));
        let (busy, stays) = (Standing::Busy, Standing::Stays);
        let standings = [idle(3), stays, busy(7), idle(1), busy(9), idle(2), stays];
        assert_eq!(asked(&standings, 1, true), [3]);
        assert_eq!(asked(&standings, 2, true), [3, 5]);
        assert_eq!(asked(&standings, 4, true), [0, 3, 4, 5]);
        assert_eq!(asked(&standings, 9, true), [0, 2, 3, 4, 5]);
        assert_eq!(asked(&standings, 9, false), [0, 3, 5]);
        assert!(asked(&standings, 0, true).is_empty());
        // A connection that may close in the middle of a request comes before those that finish
        // theirs.
        let open = |seconds| Standing::Open(now + Duration::from_secs(seconds));
        let standings = [busy(7), open(2), idle(9), open(1), stays];
        assert_eq!(asked(&standings, 1, true), [2]);
        assert_eq!(asked(&standings, 2, true), [2, 3]);
        assert_eq!(asked(&standings, 9, true), [0, 1, 2, 3]);
        // More connections than are checked without a break.
        let many: Vec<_> = (0..1000).map(|place| idle(1000 - place)).collect();
        assert_eq!(asked(&many, 3, false), [997, 998, 999]);
    }

    /// Idle from the second check on.
    struct BecomesIdle(Instant, Cell<u32>);

    impl GivesWay for BecomesIdle {
        fn standing(&self) -> Standing {
            let looks = self.1.replace(self.1.get() + 1);
            if looks == 0 { Standing::Open(self.0) } else { Standing::Idle(self.0) }
        }
    }

    #[test]
    fn one_that_becomes_idle_while_the_others_are_looked_at_is_asked() {
        let connections = Draining::default();
        let mut cx = Context::from_waker(Waker::noop());
        let becomes_idle = Rc::new(BecomesIdle(Instant::now(), Cell::new(0)));
        let mut waiting = connections.started_or_asked(becomes_idle);
        assert!(Pin::new(&mut waiting).poll(&mut cx).is_pending());
        let (room, mut asked) = Room::new(1, WhenFull::Replace);
        room.ask();
        room.loops[0].close();
        block_on(give_way(Rc::new(asked.remove(0)), Arc::downgrade(&room), connections));
        assert!(Pin::new(&mut waiting).poll(&mut cx).is_ready());
    }

    struct Panics;

    impl GivesWay for Panics {
        fn standing(&self) -> Standing {
            panic!("a connection that does not say how it stands, on purpose");
        }
    }

    #[test]
    fn one_that_panics_keeps_no_other_from_being_asked() {
        let connections = Draining::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut panics = connections.started_or_asked(Rc::new(Panics));
        let idle = Rc::new(Stands(Cell::new(Standing::Idle(Instant::now()))));
        let mut idle = connections.started_or_asked(idle);
        assert!(Pin::new(&mut panics).poll(&mut cx).is_pending());
        assert!(Pin::new(&mut idle).poll(&mut cx).is_pending());
        let (room, mut asked) = Room::new(1, WhenFull::Replace);
        room.ask();
        room.loops[0].close();
        block_on(give_way(Rc::new(asked.remove(0)), Arc::downgrade(&room), connections));
        assert!(Pin::new(&mut idle).poll(&mut cx).is_ready());
        assert!(Pin::new(&mut panics).poll(&mut cx).is_pending());
    }

    #[test]
    fn where_the_next_one_replaces_another_each_asks_for_one_place_at_once() {
        let (room, asked) = Room::new(2, WhenFull::Replace);
        for _ in 0..3 {
            room.ask();
            assert_eq!(room.wanted(), 1);
            assert!(asked.iter().all(|asked| asked.try_recv().is_ok()));
            assert!(room.asks_busy.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn more_is_asked_for_only_while_connections_wait() {
        let (room, asked) = Room::new(2, WhenFull::Wait);
        let hears = || asked.iter().filter(|asked| asked.try_recv().is_ok()).count();
        room.ask();
        assert_eq!((room.wanted(), hears()), (1, 2));
        // While the connections that were asked have time to leave, nobody else is asked.
        room.ask();
        assert_eq!((room.wanted(), hears()), (1, 0));
        let mut room = room;
        let passes = |room: &mut Arc<Room>, time: Duration| {
            let room = Arc::get_mut(room).unwrap();
            room.epoch = room.epoch.checked_sub(time).unwrap();
        };
        // How many places were not given up, and how many are asked for next.
        for (left, wanted, asks_busy) in [(0, 2, false), (0, 4, false), (1, 4, true), (0, 8, false)]
        {
            while room.wanted() > left {
                assert!(room.takes_one());
            }
            passes(&mut room, TO_LEAVE + LOOK);
            room.ask();
            assert_eq!((room.wanted(), hears()), (wanted, 2));
            assert_eq!(room.asks_busy.load(Ordering::Relaxed), asks_busy);
        }
        passes(&mut room, ANOTHER);
        room.ask();
        assert_eq!(room.wanted(), 1);
    }
}
