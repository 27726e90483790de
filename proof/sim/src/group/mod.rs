//! A group of loops on the model's clock. Each loop has its own CPU. A policy places connections on
//! loops and moves them between loops.
//!
//! Each connection has random gaps, and all have the same rate. Every 10 ms the group is reviewed
//! like a real one: by [`Activity`] itself, which is told how busy the loops were. Between two
//! reviews no connection changes its loop, so each loop is simulated separately. A move happens
//! between two requests: what has arrived for the connection and was not read goes with it.

mod member;
mod placement;
pub mod report;
mod setting;
mod traffic;
pub mod verdict;

use wakeful::internals::Activity;
use wakeful::internals::GovernorLimits;

use self::member::Member;
pub use self::member::SETTLED;
use self::placement::Placement;
pub use self::placement::{Moving, REVIEW};
pub use self::setting::{Placing, Setting};
use self::traffic::Traffic;
use crate::costs::Costs;
use crate::outcome::Outcome;

/// The result for a group. Except for the moves, it begins when the load has [settled](SETTLED).
#[derive(Debug, Clone)]
pub struct Seen {
    /// The group and its load.
    pub setting: Setting,
    /// All loops together. A request that is not answered at the end counts as answered at the end.
    pub total: Outcome,
    /// How many requests were not answered at the end.
    pub unanswered: usize,
    /// How many loops were active, on average.
    pub active: f64,
    /// The most loops that were ever active.
    pub most_active: usize,
    /// The share of its time for which the busiest loop worked.
    pub busiest: f64,
    /// Moves since the start.
    pub moves: u64,
    /// How many of these moves came after the load had settled.
    pub late_moves: u64,
    /// When the last move was, in nanoseconds.
    pub last_move: Option<u64>,
}

impl Seen {
    /// Returns the share of its time for which an active loop worked, on average.
    #[must_use]
    pub fn mean_busy(&self) -> f64 {
        self.total.work / self.total.elapsed / self.active
    }

    /// Returns whether there was more to do than could be done.
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        self.unanswered * 100 > self.total.responses.len()
    }
}

/// Simulates a group. Its loops have the governor with these limits, if they have a governor.
#[must_use]
pub fn simulate(setting: Setting, limits: GovernorLimits, costs: &Costs) -> Seen {
    let Setting { placing, loops, seconds, .. } = setting;
    let policy = setting.idle(limits);
    let mut members: Vec<_> =
        (0..loops).map(|_| Member::new(policy, costs, setting.work)).collect();
    let mut traffic = Traffic::new(&setting);
    let mut activity = Activity::new(loops, setting.targets);
    let mut placement = Placement::new(loops, setting.connections, setting.moving);
    if placing.concentrates() {
        placement.activate(activity.active());
    }
    let mut tally = Tally::default();
    let end = seconds * 1_000_000_000;
    for now in (REVIEW..=end).step_by(REVIEW as usize) {
        while let Some((at, connection)) = traffic.next_before(now as f64) {
            if let Some(home) = placement.home(connection) {
                members[home].arrives(at, connection);
            }
        }
        let busy: f64 = members.iter_mut().map(|member| member.run_until(now as f64)).sum();
        if placing.concentrates() {
            placement.activate(activity.review(now, busy / REVIEW as f64));
            for moved in placement.moves(now) {
                let unread = members[moved.from].leaves(moved.connection, now as f64);
                members[moved.to].joins(unread, now as f64);
                tally.moved(now);
            }
        }
        for connection in traffic.replaced(now as f64) {
            if placing.concentrates() {
                placement.place(connection);
            } else {
                placement.place_in_turn(connection);
            }
        }
        tally.reviewed(now, placement.active());
    }
    tally.seen(setting, members, end)
}

/// Counts that are kept during the simulation.
#[derive(Debug, Default)]
struct Tally {
    reviews: u64,
    active: u64,
    most_active: usize,
    moves: u64,
    late_moves: u64,
    last_move: Option<u64>,
}

impl Tally {
    fn moved(&mut self, now: u64) {
        self.moves += 1;
        self.late_moves += u64::from(now > SETTLED);
        self.last_move = Some(now);
    }

    fn reviewed(&mut self, now: u64, active: usize) {
        self.most_active = self.most_active.max(active);
        if now > SETTLED {
            self.reviews += 1;
            self.active += active as u64;
        }
    }

    fn seen(self, setting: Setting, members: Vec<Member<'_>>, end: u64) -> Seen {
        let elapsed = (end - SETTLED) as f64;
        let mut total = Outcome { elapsed, ..Outcome::default() };
        let (mut busiest, mut unanswered) = (0.0_f64, 0);
        for member in members {
            let (one, missing) = member.finish(end as f64);
            busiest = busiest.max(one.work / elapsed);
            unanswered += missing;
            total.add(one);
        }
        total.responses.sort_unstable();
        Seen {
            setting,
            total,
            unanswered,
            active: self.active as f64 / self.reviews as f64,
            most_active: self.most_active,
            busiest,
            moves: self.moves,
            late_moves: self.late_moves,
            last_move: self.last_move,
        }
    }
}

#[cfg(test)]
mod tests;
