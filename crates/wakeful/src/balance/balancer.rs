//! Decides which loops of a group wait for a shared listener's connections, so that each gets its
//! share.
//!
//! The kernel gives a connection to the first waiting loop in its list, and does not rotate the
//! list, so one loop would get nearly all. So a loop that took a connection goes to the end of the
//! list. This evens out new connections, but not long-lived ones. So a loop with far more open
//! connections than the mean, or above the group's target while another is below, steps back
//! completely. When that is over, another loop, which is awake, lets it in again. Loops that are
//! not active are not in the list.
//!
//! A loop that steps back relies on others, which may be busy for long. So a loop steps back only
//! if a sleeping loop is in the list. And a loop that takes a connection as the only one in the
//! list first lets the others in.
//!
//! `share` is one loop's part of it, with its memberships; `move_plan` decides which open
//! connections move to other loops.
//!
//! Invariant: each listener that a loop accepts from has at least one loop in its list. A loop that
//! steps back from a listener then checks whether another loop is left there, and returns if not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;

use super::board::Board;
use super::counts::Counts;
use super::move_settings::Moves;
use super::recent;
use super::share::Share;
use super::siblings::{OurTurn, STEP_BACK};
use crate::driver::membership::Membership;
use crate::event_loop::LoopHandle;
use crate::time::sleep;

/// A loop looks at so many others for each connection that it takes, in the mean.
const LOOKS: usize = 8;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Balancer {
    pub(super) board: Arc<Board>,
    loops: Box<[LoopHandle]>,
    counts: Arc<Counts>,
    pub(super) shares: Box<[CachePadded<Share>]>,
    /// When connections move, if they do.
    pub(super) moves: Option<Moves>,
    pub(super) next_plan: AtomicU64,
    /// Where the next one goes, of those that may have it.
    pub(super) next_taker: AtomicUsize,
    /// Times that somebody has wanted a look whose turn it is, and nobody has looked.
    looks_at_turn: AtomicUsize,
    /// Whoever looks next is to take this process out for a while.
    is_to_step_back: AtomicBool,
    /// So many loops have no room for another connection.
    full: AtomicUsize,
    epoch: Instant,
}

/// A loop has no room for another connection: see [`Balancer::full`].
#[derive(Debug)]
pub(crate) struct Full(Arc<Balancer>);

impl Drop for Full {
    fn drop(&mut self) {
        if self.0.full.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(turn) = self.0.board.turn()
        {
            self.0.see_whether_there_is_room(turn);
            self.0.see_whose_turn_it_is();
        }
    }
}

impl Balancer {
    pub(crate) fn new(
        board: Arc<Board>,
        loops: &[LoopHandle],
        counts: Arc<Counts>,
        moves: Option<Moves>,
    ) -> Arc<Self> {
        let shares = (0..board.loops()).map(|_| CachePadded::default()).collect();
        let balance = Arc::new(Self {
            board,
            loops: loops.into(),
            counts,
            shares,
            moves,
            next_plan: AtomicU64::new(0),
            next_taker: AtomicUsize::new(0),
            looks_at_turn: AtomicUsize::new(0),
            is_to_step_back: AtomicBool::new(false),
            full: AtomicUsize::new(0),
            epoch: Instant::now(),
        });
        let weak = Arc::downgrade(&balance);
        balance.board.watch(Box::new(move |_| {
            let Some(balance) = weak.upgrade() else { return false };
            balance.even_out(None);
            balance.pass_on_from_stuck();
            balance.shares.iter().for_each(|share| share.mend());
            balance.plan_moves();
            if let Some(turn) = balance.board.turn() {
                turn.review(balance.board.busy());
                balance.see_whether_there_is_room(turn);
                balance.see_whose_turn_it_is();
            }
            true
        }));
        balance
    }

    /// A loop begins to accept: these are its memberships.
    pub(crate) fn enter(&self, number: usize, memberships: impl Iterator<Item = Arc<Membership>>) {
        self.shares[number].enter(memberships);
        // It is a loop's turn when its membership is made.
        if number >= self.board.active() {
            self.step_back(number);
        }
        // With a socket for each loop there is no list to share.
        if let Some(turn) = self.board.turn()
            && number + 1 == self.shares.len()
            && self.shares.iter().any(|share| !share.listeners().is_empty())
        {
            turn.begins();
            self.see_whose_turn_it_is();
        }
    }

    pub(crate) fn turn(&self) -> Option<&OurTurn> {
        self.board.turn()
    }

    /// Nobody tells of siblings any more: this process accepts at all times, and its active loops
    /// hear of each connection. One that the kernel gave to a sibling which is killed would wait.
    pub(crate) fn is_alone(&self) {
        if let Some(turn) = self.board.turn() {
            turn.is_alone_now();
            self.see_whose_turn_it_is();
            self.shares.iter().for_each(|share| share.wake_for_all());
        }
    }

    /// This process stops accepting: its siblings accept.
    pub(crate) fn ends(&self) {
        if let Some(turn) = self.board.turn() {
            turn.ends();
        }
    }

    /// Puts this process's loops into the listeners' lists, or takes them out, as its siblings want
    /// it.
    pub(crate) fn see_whose_turn_it_is(&self) {
        let Some(turn) = self.board.turn() else { return };
        if self.looks_at_turn.fetch_add(1, Ordering::AcqRel) > 0 {
            // Whoever is at it looks again.
            return;
        }
        let mut seen = 1;
        loop {
            self.follow_turn(turn);
            let looks = &self.looks_at_turn;
            match looks.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(more) => seen = more,
            }
        }
    }

    /// For one thread at a time.
    fn follow_turn(&self, turn: &OurTurn) {
        if self.is_to_step_back.swap(false, Ordering::SeqCst) && turn.may_step_back() {
            set_all_inside(&self.shares, false);
            // What this process may just have been woken for goes to one that stays.
            turn.ring_one_inside();
        } else if turn.is_ours() {
            if turn.is_out() {
                let active = &self.shares[..self.board.active()];
                let some_accept = active.iter().any(|share| share.accepts());
                set_all_inside(if some_accept { active } else { &self.shares }, true);
                if self.is_shut_out() {
                    // The kernel does not let it watch a listener: others accept, until it does.
                    turn.is_full();
                } else {
                    turn.came_in();
                }
            }
        } else if turn.may_go_out() {
            set_all_inside(&self.shares, false);
            if self.shares.len() > 1 {
                // Another loop of this process may just have been woken, and then was taken out.
                turn.ring_one_inside();
            }
        } else if turn.is_out() {
            // Again, if a loop has come in meanwhile.
            set_all_inside(&self.shares, false);
        }
    }

    fn is_shut_out(&self) -> bool {
        self.shares.iter().any(|share| share.is_shut_out())
    }

    /// A sibling may not come back from its turn, or is dead: what it was woken for goes to another
    /// one.
    pub(crate) fn pass_on_from_sibling(&self) {
        if self.board.turn().is_some_and(|turn| !turn.is_out()) {
            self.requeue_one(|_| true);
        }
    }

    /// A loop of this process has no room for another connection until this is dropped: siblings
    /// accept. `None`: it has none.
    pub(crate) fn full(self: &Arc<Self>) -> Option<Full> {
        let turn = self.board.turn()?;
        if self.full.fetch_add(1, Ordering::AcqRel) == 0 {
            turn.is_full();
        }
        Some(Full(self.clone()))
    }

    /// Has it room, and nothing else that keeps it from accepting?
    fn see_whether_there_is_room(&self, turn: &OurTurn) {
        if self.full.load(Ordering::Acquire) == 0 && !self.is_shut_out() {
            turn.has_room();
        }
    }

    /// Is it another process's turn?
    fn is_out(&self) -> bool {
        self.board.turn().is_some_and(OurTurn::is_out)
    }

    /// A loop took a connection from `listener`.
    pub(crate) fn accepted(&self, number: usize, listener: usize) {
        let share = &self.shares[number];
        share.note(self.now());
        let is_one_of_many = self.board.active() > 1;
        if is_one_of_many || self.board.turn().is_some_and(OurTurn::is_shared) {
            share.go_to_the_end(listener);
        }
        if is_one_of_many && !self.is_another_inside(number, listener) && !self.is_out() {
            self.let_others_in(number, listener);
        }
        let every = (self.shares.len() / LOOKS).max(1) as u64;
        if share.accepted.load(Ordering::Relaxed).is_multiple_of(every) {
            self.even_out(Some(number));
        }
    }

    /// A loop that accepts for all took a connection from `listener`.
    pub(crate) fn accepted_for_all(&self, number: usize, listener: usize) {
        if self.turn().is_some_and(OurTurn::is_shared) {
            self.shares[number].go_to_the_end(listener);
        }
    }

    /// A loop took a connection. If this process has taken far more than its siblings, this waits
    /// while it leaves the rest to them.
    pub(crate) async fn step_back_for_siblings(&self) {
        if !self.board.turn().is_some_and(OurTurn::accepted_too_many) {
            return;
        }
        self.is_to_step_back.store(true, Ordering::SeqCst);
        self.see_whose_turn_it_is();
        sleep(STEP_BACK).await;
        // If whoever looks has not come to it yet, it is too late for it. He looks again.
        self.is_to_step_back.store(false, Ordering::SeqCst);
        self.see_whose_turn_it_is();
    }

    /// How many loops are active: the first so many.
    pub(crate) fn active(&self) -> usize {
        self.board.active()
    }

    /// Does a loop not come back from its turn?
    pub(crate) fn is_stuck(&self, number: usize) -> bool {
        self.board.stuck()(number)
    }

    /// When connections move, if they do.
    pub(crate) fn moves(&self) -> Option<Moves> {
        self.moves
    }

    pub(super) fn open(&self, number: usize) -> usize {
        self.counts.of(number).open()
    }

    /// What a loop has: the connections that are open, and those that come to it, if they go soon.
    fn load(&self, number: usize, now: u64) -> f64 {
        self.open(number) as f64 + self.shares[number].recent(now)
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Lets those in that have less than the mean, and `me`, or everybody, out who has more.
    fn even_out(&self, me: Option<usize>) {
        if self.is_out() {
            return;
        }
        let (now, active) = (self.now(), self.board.active());
        let is_stuck = self.board.stuck();
        let in_turn =
            |number: usize| number < active && self.shares[number].accepts() && !is_stuck(number);
        let target = self.board.target();
        // One that is above the target counts only if all are.
        let all_full =
            (0..active).filter(|n| in_turn(*n)).all(|n| self.board.utilisation(n) > target);
        let is_full = |number: usize| !all_full && self.board.utilisation(number) > target;
        let (mut sum, mut count) = (0.0, 0.0);
        for number in (0..active).filter(|number| in_turn(*number) && !is_full(*number)) {
            sum += self.load(number, now);
            count += 1.0;
        }
        if count == 0.0 {
            return;
        }
        let mean: f64 = sum / count;
        for number in (0..active).filter(|number| in_turn(*number) && !is_full(*number)) {
            if self.load(number, now) <= mean {
                let share = &self.shares[number];
                share.listeners().for_each(|listener| share.set_inside(listener, true));
            }
        }
        let most = recent::most(mean);
        for number in (0..active).filter(|number| me.is_none_or(|me| me == *number)) {
            if is_full(number) || self.load(number, now) > most {
                let dispensable = |listener: &usize| self.is_dispensable(number, *listener);
                let listeners = self.shares[number].listeners().filter(dispensable);
                listeners.for_each(|listener| self.step_back_from(number, listener));
            }
        }
        (active..self.shares.len()).for_each(|number| self.step_back(number));
    }

    /// What a loop was woken for that does not come back from its turn goes to another one.
    fn pass_on_from_stuck(&self) {
        let (active, is_stuck) = (self.board.active(), self.board.stuck());
        if !(0..active).any(is_stuck) {
            return;
        }
        self.requeue_one(|number| !is_stuck(number));
    }

    /// The kernel tells one of these loops again of what waits, at each listener.
    fn requeue_one(&self, is_free: impl Fn(usize) -> bool) {
        let Some(listeners) = self.shares.first().map(|share| share.listeners()) else { return };
        for listener in listeners {
            let free = (0..self.board.active()).filter(|number| is_free(*number));
            let mut inside = free.filter(|number| self.shares[*number].is_inside(listener));
            if let Some(membership) =
                inside.find_map(|number| self.shares[number].membership(listener))
            {
                // If it fails, it is mended with the next review.
                let _ = membership.requeue();
            }
        }
    }

    fn is_another_inside(&self, number: usize, listener: usize) -> bool {
        let mut others = (0..self.board.active()).filter(|other| *other != number);
        others.any(|other| self.shares[other].is_inside(listener))
    }

    /// A loop is the only one in the list, and may be busy for long from now on. Those that are
    /// above the target come in only if there is nobody else.
    #[cold]
    fn let_others_in(&self, number: usize, listener: usize) {
        let target = self.board.target();
        let others = |full: bool| {
            (0..self.board.active()).filter(move |other| {
                *other != number
                    && self.shares[*other].accepts_from(listener)
                    && (self.board.utilisation(*other) > target) == full
            })
        };
        let full = others(false).next().is_none();
        others(full).for_each(|other| self.shares[other].set_inside(listener, true));
    }

    /// Does another loop that is in the list sleep, and wait for a connection?
    fn is_dispensable(&self, number: usize, listener: usize) -> bool {
        let others = (0..self.board.active()).filter(|other| *other != number);
        others
            .filter(|other| self.shares[*other].is_inside(listener))
            .any(|other| self.loops[other].queue().is_asleep())
    }

    /// From all listeners.
    fn step_back(&self, number: usize) {
        for listener in self.shares[number].listeners() {
            self.step_back_from(number, listener);
        }
    }

    fn step_back_from(&self, number: usize, listener: usize) {
        let share = &self.shares[number];
        if !share.is_inside(listener) {
            return;
        }
        // Cheap, and spares the kernel a step back that would be taken back.
        if !self.is_anybody_else_at(number, listener) {
            return;
        }
        share.set_inside(listener, false);
        // Two who step back at once must not both rely on the other, nor on one that ends.
        if !self.is_anybody_else_at(number, listener) {
            share.set_inside(listener, true);
        }
    }

    /// Is another loop, active or not, in this listener's list?
    fn is_anybody_else_at(&self, number: usize, listener: usize) -> bool {
        let mut others = (0..self.shares.len()).filter(|other| *other != number);
        others.any(|other| self.shares[other].is_inside(listener))
    }
}

fn set_all_inside(shares: &[CachePadded<Share>], inside: bool) {
    for share in shares {
        share.listeners().for_each(|listener| share.set_inside(listener, inside));
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
