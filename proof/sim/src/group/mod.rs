//! A group of loops on the model's clock, each with a CPU of its own: connections are placed on
//! loops, and moved between them, by a policy.
//!
//! Each connection has random gaps, and all the same rate. Every 10 ms the group is reviewed, as
//! the real one is: by [`Activity`] itself, which is told how busy the loops were. Between two
//! reviews no connection changes its loop, so each loop is simulated by itself. A move is made
//! between two requests: what has arrived for the connection and is not read goes along.

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

/// What came of it. But for the moves, it begins when the load has [settled](SETTLED).
#[derive(Debug, Clone)]
pub struct Seen {
    /// The group and its load.
    pub setting: Setting,
    /// Of all loops together. A request that is not answered at the end counts as if it were, then.
    pub total: Outcome,
    /// Those requests.
    pub unanswered: usize,
    /// How many loops were active, on average.
    pub active: f64,
    /// The most that ever were.
    pub most_active: usize,
    /// For which share of its time the busiest loop worked.
    pub busiest: f64,
    /// Moves from the start.
    pub moves: u64,
    /// And how many of them came when the load had settled.
    pub late_moves: u64,
    /// When the last one was, in nanoseconds.
    pub last_move: Option<u64>,
}

impl Seen {
    /// For which share of its time an active loop worked, on average.
    #[must_use]
    pub fn mean_busy(&self) -> f64 {
        self.total.work / self.total.elapsed / self.active
    }

    /// Was there more to do than could be done?
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        self.unanswered * 100 > self.total.responses.len()
    }
}

/// Simulates a group whose loops have the governor with these limits, if they have it.
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

/// What is counted on the way.
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
