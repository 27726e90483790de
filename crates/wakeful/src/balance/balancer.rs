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

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
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

/// For each connection that a loop takes, it looks at this many others, on average.
const LOOKS: usize = 8;

/// Decides which loops wait for connections. See the [module](self).
#[derive(Debug)]
pub(crate) struct Balancer {
    pub(super) this: Weak<Self>,
    pub(super) board: Arc<Board>,
    pub(super) loops: Box<[LoopHandle]>,
    counts: Arc<Counts>,
    pub(super) shares: Box<[CachePadded<Share>]>,
    /// When connections move to other loops; `None`: never.
    pub(super) moves: Option<Moves>,
    pub(super) next_plan: AtomicU64,
    /// Which of the loops that may get a connection gets the next one.
    pub(super) next_taker: AtomicUsize,
    /// How often a thread wanted to check whose turn it is and has not done so yet.
    looks_at_turn: AtomicUsize,
    /// The next check takes this process out of the lists for a while.
    is_to_step_back: AtomicBool,
    /// Whether this process accepts, as far as its siblings know.
    has_begun: AtomicBool,
    /// How many tasks that accept have no room for another connection.
    full: AtomicUsize,
    epoch: Instant,
}

/// Marks a task that accepts and has no room for another connection: see [`Balancer::full`].
#[derive(Debug)]
pub(crate) struct Full(Arc<Balancer>);

impl Drop for Full {
    fn drop(&mut self) {
        if self.0.full.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.look_for_room();
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
        let balance = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            board,
            loops: loops.into(),
            counts,
            shares,
            moves,
            next_plan: AtomicU64::new(0),
            next_taker: AtomicUsize::new(0),
            looks_at_turn: AtomicUsize::new(0),
            is_to_step_back: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            full: AtomicUsize::new(0),
            epoch: Instant::now(),
        });
        let weak = balance.this.clone();
        balance.board.watch(Box::new(move |_| {
            let Some(balance) = weak.upgrade() else { return false };
            balance.even_out(None);
            balance.pass_on_from_stuck();
            balance.mend_all();
            balance.plan_moves();
            if let Some(turn) = balance.board.turn() {
                let changed = turn.review(balance.board.busy());
                balance.look_for_room();
                if let Some(changed) = changed {
                    changed.log();
                }
            }
            true
        }));
        balance
    }

    /// Notes the memberships of a loop that will accept when all loops have started.
    pub(crate) fn enter(&self, number: usize, memberships: impl Iterator<Item = Arc<Membership>>) {
        self.shares[number].enter(memberships.inspect(|one| self.is_mended(number, one)));
        // A new membership starts as if it were its loop's turn. The first loop is always active.
        if number >= self.board.active() {
            self.shares[number].listeners().for_each(|it| self.set_inside(number, it, false));
        }
    }

    /// Called by the tasks of the first loop that begin to accept, when all loops have
    /// [entered](Self::enter). The first call tells the siblings. The loop is awake, and joins the
    /// kernel's list if it is its turn. So if it blocks before that, the siblings notice.
    pub(crate) fn begin(&self) {
        // If each loop has its own socket, there is no list to share.
        if let Some(turn) = self.board.turn()
            && !self.has_begun.swap(true, Ordering::Relaxed)
            && self.shares.iter().any(|share| !share.listeners().is_empty())
        {
            turn.begins();
            self.see_whose_turn_it_is();
        }
    }

    pub(crate) fn turn(&self) -> Option<&OurTurn> {
        self.board.turn()
    }

    /// Called when nobody reports on the siblings any more. From now on this process accepts at all
    /// times, and the kernel wakes its active loops for each connection. Otherwise a connection
    /// would wait if the kernel gave it to a sibling that is then killed.
    pub(crate) fn is_alone(&self) {
        if let Some(turn) = self.board.turn() {
            turn.is_alone_now();
            self.see_whose_turn_it_is();
            for (number, share) in self.shares.iter().enumerate() {
                self.mend_after(number, share.wake_for_all());
            }
        }
    }

    /// This process stops accepting, so its siblings take over.
    pub(crate) fn ends(&self) {
        if let Some(turn) = self.board.turn() {
            turn.ends();
        }
    }

    /// Puts this process's loops into the listeners' lists, or takes them out, depending on whether
    /// it is the process's turn among its siblings.
    pub(crate) fn see_whose_turn_it_is(&self) {
        let Some(turn) = self.board.turn() else { return };
        if self.looks_at_turn.fetch_add(1, Ordering::AcqRel) > 0 {
            // The thread that is already checking checks again.
            return;
        }
        let (mut seen, mut is_in) = (1, false);
        loop {
            is_in |= self.follow_turn(turn);
            let looks = &self.looks_at_turn;
            match looks.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(more) => seen = more,
            }
        }
        // Only now, because this may log. A subscriber that blocks must not keep other threads from
        // following the turn.
        if is_in {
            turn.may_block_at_once();
        }
    }

    /// Returns whether this worker has come in, or would go out and may not. Only one thread at a
    /// time may call this, and no user code may run in it.
    fn follow_turn(&self, turn: &OurTurn) -> bool {
        if self.full.load(Ordering::SeqCst) > 0 && turn.accepts() {
            // A loop ran full while another thread said that there is room.
            turn.is_full();
            // By now it may have room again.
            self.see_whether_there_is_room(turn);
            return false;
        }
        let is_to_step_back = self.is_to_step_back.swap(false, Ordering::SeqCst);
        if is_to_step_back && turn.may_step_back() {
            self.set_all_inside(self.shares.len(), false);
            // The kernel may just have woken this process for a connection. A sibling that stays in
            // the list takes it.
            turn.ring_one_inside();
            return false;
        }
        let mut is_in = is_to_step_back;
        if turn.is_ours() {
            if turn.is_out() {
                let active = self.board.active();
                let some_accept = self.shares[..active].iter().any(|share| share.accepts());
                self.set_all_inside(if some_accept { active } else { self.shares.len() }, true);
                if self.is_shut_out() {
                    // The kernel does not let this process watch a listener. Siblings accept until
                    // it does.
                    turn.is_full();
                    // A loop may have been let in meanwhile, before the siblings heard of this.
                    self.see_whether_there_is_room(turn);
                } else {
                    turn.came_in();
                    is_in = true;
                }
            }
        } else if turn.may_go_out() {
            self.set_all_inside(self.shares.len(), false);
            if self.shares.len() > 1 {
                // The kernel may just have woken a loop of this process that was then taken out. A
                // sibling in the list takes the connection.
                turn.ring_one_inside();
            }
        } else {
            is_in = true;
            if turn.is_out() && self.is_any_inside() {
                // One has come in meanwhile.
                self.set_all_inside(self.shares.len(), false);
                turn.ring_one_inside();
            }
        }
        is_in
    }

    fn is_any_inside(&self) -> bool {
        let is_inside = |share: &Share| share.listeners().any(|listener| share.is_inside(listener));
        self.shares.iter().any(|share| is_inside(share))
    }

    fn is_shut_out(&self) -> bool {
        self.shares.iter().any(|share| share.is_shut_out())
    }

    /// A sibling may be stuck in its turn, full or dead. The connection that the kernel woke it for
    /// goes to another worker.
    pub(crate) fn pass_on_from_sibling(&self) {
        if self.board.turn().is_some_and(OurTurn::is_to_look) {
            self.requeue_one(|_| true);
        }
    }

    /// Notes that a task of this process that accepts has no room for another connection until the
    /// result is dropped, so that siblings accept. `None`: this process has no siblings.
    pub(crate) fn full(self: &Arc<Self>) -> Option<Full> {
        let turn = self.board.turn()?;
        self.full.fetch_add(1, Ordering::SeqCst);
        // Even if the siblings know: until now this task was in the list of its listener, and the
        // kernel may have woken it for a connection.
        turn.is_full();
        Some(Full(self.clone()))
    }

    /// Tells the siblings if this process has room again, and accepts if it is its turn.
    pub(super) fn look_for_room(&self) {
        if let Some(turn) = self.board.turn() {
            self.see_whether_there_is_room(turn);
            self.see_whose_turn_it_is();
        }
    }

    /// Tells the siblings if all tasks that accept have room, and nothing else keeps this process
    /// from accepting.
    fn see_whether_there_is_room(&self, turn: &OurTurn) {
        if self.full.load(Ordering::Acquire) == 0 && !self.is_shut_out() {
            turn.has_room();
        }
    }

    /// Is it another process's turn?
    fn is_out(&self) -> bool {
        self.board.turn().is_some_and(OurTurn::is_out)
    }

    /// Notes that loop `number` took a connection from `listener`.
    pub(crate) fn accepted(&self, number: usize, listener: usize) {
        let share = &self.shares[number];
        share.note(self.now());
        let is_one_of_many = self.board.active() > 1;
        if is_one_of_many || self.board.turn().is_some_and(OurTurn::is_shared) {
            self.go_to_the_end(number, listener);
        }
        if is_one_of_many && !self.is_another_inside(number, listener) && !self.is_out() {
            self.let_others_in(number, listener);
        }
        let every = (self.shares.len() / LOOKS).max(1) as u64;
        if share.accepted.load(Ordering::Relaxed).is_multiple_of(every) {
            self.even_out(Some(number));
        }
    }

    /// Notes that the loop that accepts for all took a connection from `listener`.
    pub(crate) fn accepted_for_all(&self, number: usize, listener: usize) {
        if self.turn().is_some_and(OurTurn::is_shared) {
            self.go_to_the_end(number, listener);
        }
    }

    /// Called after a loop took a connection. If this process has taken far more than its siblings,
    /// this waits for a while in which only they accept.
    pub(crate) async fn step_back_for_siblings(&self) {
        if !self.board.turn().is_some_and(OurTurn::accepted_too_many) {
            return;
        }
        self.is_to_step_back.store(true, Ordering::SeqCst);
        self.see_whose_turn_it_is();
        sleep(STEP_BACK).await;
        // The request to step back may not have been handled yet. By now it is too late for it, so
        // it is withdrawn, and the thread that checks whose turn it is checks again.
        self.is_to_step_back.store(false, Ordering::SeqCst);
        self.see_whose_turn_it_is();
    }

    /// How many loops are active. Loops with lower numbers are active.
    pub(crate) fn active(&self) -> usize {
        self.board.active()
    }

    /// Is loop `number` stuck in its turn?
    pub(crate) fn is_stuck(&self, number: usize) -> bool {
        self.board.stuck()(number)
    }

    /// When connections move to other loops; `None`: never.
    pub(crate) fn moves(&self) -> Option<Moves> {
        self.moves
    }

    pub(super) fn open(&self, number: usize) -> usize {
        self.counts.of(number).open()
    }

    /// The load of a loop: its open connections, and its recent ones, if connections close soon.
    fn load(&self, number: usize, now: u64) -> f64 {
        self.open(number) as f64 + self.shares[number].recent(now)
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Lets loops into the list that have less than the mean, and takes out those that have more:
    /// only `me`, or, with `None`, any loop.
    fn even_out(&self, me: Option<usize>) {
        if self.is_out() {
            return;
        }
        let (now, active) = (self.now(), self.board.active());
        let is_stuck = self.board.stuck();
        let in_turn =
            |number: usize| number < active && self.shares[number].accepts() && !is_stuck(number);
        let target = self.board.target();
        // A loop above the target counts as full only if not all are.
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
                share.listeners().for_each(|listener| self.set_inside(number, listener, true));
            }
        }
        let most = recent::most(mean);
        for number in (0..active).filter(|number| me.is_none_or(|me| me == *number)) {
            if is_full(number) || self.load(number, now) > most {
                let dispensable = |listener: &usize| self.is_dispensable(number, *listener);
                let listeners = self.shares[number].listeners().filter(dispensable);
                listeners.for_each(|listener| self.take_out(number, listener, me));
            }
        }
        for number in active..self.shares.len() {
            let listeners = self.shares[number].listeners();
            listeners.for_each(|listener| self.take_out(number, listener, me));
        }
    }

    /// Takes a loop out of a listener's list. `me` is the loop of this thread. Another loop may be
    /// asleep, and the kernel may just have woken it for a connection, and no other loop: then it
    /// finds nothing when it runs. So a loop that stays is told of the connection.
    fn take_out(&self, number: usize, listener: usize, me: Option<usize>) {
        if self.step_back_from(number, listener) && me != Some(number) {
            self.tell_one_inside(listener);
        }
    }

    /// Has the kernel tell a loop in this listener's list again of a waiting connection.
    fn tell_one_inside(&self, listener: usize) {
        let inside =
            || (0..self.shares.len()).filter(|number| self.shares[*number].is_in_list(listener));
        let asleep = inside().find(|number| self.loops[*number].queue().is_asleep());
        if let Some(number) = asleep.or_else(|| inside().next()) {
            self.go_to_the_end(number, listener);
        }
    }

    /// A loop that is stuck in its turn may have been woken for a connection. Another loop takes
    /// it.
    fn pass_on_from_stuck(&self) {
        let (active, is_stuck) = (self.board.active(), self.board.stuck());
        if !(0..active).any(is_stuck) {
            return;
        }
        self.requeue_one(|number| !is_stuck(number));
    }

    /// For each listener, has the kernel tell one of the free loops again of waiting connections.
    fn requeue_one(&self, is_free: impl Fn(usize) -> bool) {
        let Some(listeners) = self.shares.first().map(|share| share.listeners()) else { return };
        for listener in listeners {
            let free = (0..self.board.active()).filter(|number| is_free(*number));
            let mut inside = free.filter(|number| self.shares[*number].is_in_list(listener));
            if let Some((number, membership)) =
                inside.find_map(|number| Some((number, self.shares[number].membership(listener)?)))
            {
                self.mend_after(number, membership.requeue());
            }
        }
    }

    fn is_another_inside(&self, number: usize, listener: usize) -> bool {
        let mut others = (0..self.board.active()).filter(|other| *other != number);
        others.any(|other| self.shares[other].is_in_list(listener))
    }

    /// Lets other loops in, because this loop is the only one in the list and may be busy for long
    /// from now on. Loops above the target come in only if there are no others.
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
        others(full).for_each(|other| self.set_inside(other, listener, true));
    }

    /// Is another loop in the list that sleeps and waits for a connection?
    fn is_dispensable(&self, number: usize, listener: usize) -> bool {
        let others = (0..self.board.active()).filter(|other| *other != number);
        others
            .filter(|other| self.shares[*other].is_in_list(listener))
            .any(|other| self.loops[other].queue().is_asleep())
    }

    /// Takes the loop of this thread out of the lists of all listeners.
    #[cfg(all(test, not(wakeful_loom)))]
    fn step_back(&self, number: usize) {
        for listener in self.shares[number].listeners() {
            let _ = self.step_back_from(number, listener);
        }
    }

    /// Takes a loop out of a listener's list, unless nobody else is in it. Returns whether it did.
    fn step_back_from(&self, number: usize, listener: usize) -> bool {
        let share = &self.shares[number];
        if !share.is_inside(listener) {
            return false;
        }
        // This check is cheap, and saves system calls: the step back would have to be undone.
        if !self.is_anybody_else_at(number, listener) {
            return false;
        }
        self.set_inside(number, listener, false);
        // Two loops that step back at the same time must not both rely on each other. No loop may
        // rely on one that ends.
        let may = self.is_anybody_else_at(number, listener);
        if !may {
            self.set_inside(number, listener, true);
        }
        may
    }

    /// Is another loop, active or not, in this listener's list?
    fn is_anybody_else_at(&self, number: usize, listener: usize) -> bool {
        let mut others = (0..self.shares.len()).filter(|other| *other != number);
        others.any(|other| self.shares[other].is_in_list(listener))
    }

    /// The first `loops` loops.
    fn set_all_inside(&self, loops: usize, inside: bool) {
        for number in 0..loops {
            let listeners = self.shares[number].listeners();
            listeners.for_each(|listener| self.set_inside(number, listener, inside));
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
