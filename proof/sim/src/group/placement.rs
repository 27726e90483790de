//! Which connection is on which loop.

/// The time between two reviews, in nanoseconds.
pub const REVIEW: u64 = 10_000_000;

/// When connections are moved to other loops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moving {
    /// Connections are moved when an active loop has this many times as many connections as the
    /// active loops have on average, or this many times fewer.
    pub ratio: f64,
    /// The most moves per second.
    pub most: f64,
    /// The time between two moves of the same connection, in nanoseconds.
    pub rest: u64,
}

impl Default for Moving {
    fn default() -> Self {
        Self { ratio: 1.25, most: 1_000.0, rest: 1_000_000_000 }
    }
}

/// A move of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) connection: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

#[derive(Debug)]
pub(super) struct Placement {
    moving: Moving,
    active: usize,
    /// The connections of each loop.
    members: Vec<Vec<usize>>,
    /// The loop of each connection.
    homes: Vec<Option<usize>>,
    /// Until when each connection stays where it is.
    rests: Vec<u64>,
    /// How many moves may be made.
    budget: f64,
    /// How many connections were placed in turn.
    turn: usize,
}

impl Placement {
    /// Makes a placement in which all loops are active.
    pub(super) fn new(loops: usize, connections: usize, moving: Moving) -> Self {
        Self {
            moving,
            active: loops,
            members: vec![Vec::new(); loops],
            homes: vec![None; connections],
            rests: vec![0; connections],
            budget: 0.0,
            turn: 0,
        }
    }

    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// Makes the first `loops` loops active, and no others.
    pub(super) fn activate(&mut self, loops: usize) {
        self.active = loops;
    }

    pub(super) fn home(&self, connection: usize) -> Option<usize> {
        self.homes[connection]
    }

    /// Places a new connection, which takes the place of the one that had this number, on the
    /// active loop with the fewest connections.
    pub(super) fn place(&mut self, connection: usize) {
        self.close(connection);
        let emptiest = (0..self.active).min_by_key(|it| self.members[*it].len());
        self.open(connection, emptiest.unwrap_or(0));
    }

    /// Does the same, but takes the next active loop, however many connections it has.
    pub(super) fn place_in_turn(&mut self, connection: usize) {
        self.close(connection);
        self.open(connection, self.turn % self.active);
        self.turn += 1;
    }

    fn close(&mut self, connection: usize) {
        if let Some(home) = self.homes[connection].take() {
            self.members[home].retain(|it| *it != connection);
        }
    }

    fn open(&mut self, connection: usize, home: usize) {
        self.members[home].push(connection);
        self.homes[connection] = Some(home);
        self.rests[connection] = 0;
    }

    /// Returns the moves that are due at a review: away from loops that are no longer active, and
    /// from the active loop with the most connections to the one with the fewest.
    pub(super) fn moves(&mut self, now: u64) -> Vec<Moved> {
        let share = self.moving.most * REVIEW as f64 / 1e9;
        self.budget = (self.budget + share).min(share.max(1.0));
        let mut moves = Vec::new();
        while self.budget >= 1.0 {
            let Some(moved) = self.next_move(now) else { break };
            self.budget -= 1.0;
            self.members[moved.from].retain(|it| *it != moved.connection);
            self.members[moved.to].push(moved.connection);
            self.homes[moved.connection] = Some(moved.to);
            self.rests[moved.connection] = now + self.moving.rest;
            moves.push(moved);
        }
        moves
    }

    fn next_move(&self, now: u64) -> Option<Moved> {
        let count = |it: &usize| self.members[*it].len();
        let emptiest = (0..self.active).min_by_key(count)?;
        let fullest = (0..self.active).max_by_key(count)?;
        let left = (self.active..self.members.len()).rev();
        let uneven = self.is_uneven(count(&fullest), count(&emptiest)).then_some(fullest);
        left.chain(uneven).find_map(|from| {
            let rested = |connection: &&usize| self.rests[**connection] <= now;
            let connection = *self.members[from].iter().find(rested)?;
            Some(Moved { connection, from, to: emptiest })
        })
    }

    fn is_uneven(&self, most: usize, fewest: usize) -> bool {
        let all: usize = self.members[..self.active].iter().map(Vec::len).sum();
        let mean = all as f64 / self.active as f64;
        let ratio = self.moving.ratio;
        // If two loops differ by one connection, a move would only make the other loop the fuller
        // one.
        most > fewest + 1 && (most as f64 > ratio * mean || (fewest as f64) * ratio < mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn full(loops: usize, connections: usize, moving: Moving) -> Placement {
        let mut placement = Placement::new(loops, connections, moving);
        placement.activate(1);
        (0..connections).for_each(|connection| placement.place(connection));
        placement
    }

    fn counts(placement: &Placement) -> Vec<usize> {
        placement.members.iter().map(Vec::len).collect()
    }

    /// Reviews until nothing moves. Returns how many moves that took.
    fn settle(placement: &mut Placement, now: &mut u64) -> usize {
        let mut moves = 0;
        for _ in 0..1_000 {
            *now += REVIEW;
            moves += placement.moves(*now).len();
        }
        assert_eq!(placement.moves(*now + REVIEW), [], "it has settled");
        moves
    }

    #[test]
    fn a_new_connection_goes_to_the_active_loop_with_the_fewest() {
        let mut placement = full(4, 6, Moving::default());
        assert_eq!(counts(&placement), [6, 0, 0, 0]);
        placement.activate(3);
        for connection in 0..4 {
            placement.place(connection);
        }
        assert_eq!(counts(&placement), [2, 2, 2, 0]);
        assert!(placement.home(0).is_some_and(|home| home > 0));
    }

    #[test]
    fn loops_that_become_active_get_their_share() {
        for (before, active) in [(1, 2), (1, 8), (4, 5), (20, 25), (64, 65)] {
            let (mut placement, mut now) = (full(128, 1_280, Moving::default()), 0);
            placement.activate(before);
            settle(&mut placement, &mut now);
            placement.activate(active);
            settle(&mut placement, &mut now);
            let mean = 1_280.0 / active as f64;
            for count in &counts(&placement)[..active] {
                let ratio = *count as f64 / mean;
                assert!((0.75..=1.25).contains(&ratio), "{before} to {active}: {count}, {mean}");
            }
        }
    }

    #[test]
    fn loops_that_leave_give_away_all_that_they_have() {
        let (mut placement, mut now) = (full(8, 100, Moving::default()), 0);
        placement.activate(8);
        settle(&mut placement, &mut now);
        placement.activate(3);
        settle(&mut placement, &mut now);
        assert_eq!(counts(&placement)[3..], [0; 5]);
        assert!(counts(&placement)[..3].iter().all(|count| (30..=37).contains(count)));
    }

    #[test]
    fn moves_are_so_many_a_second_and_each_connection_rests() {
        let moving = Moving { most: 250.0, rest: 2 * SECOND, ..Moving::default() };
        let mut placement = full(2, 1_000, moving);
        let mut moved_at = vec![None; 1_000];
        let mut moves = 0;
        for review in 1..=400 {
            let now = review * REVIEW;
            placement.activate(if review % 200 < 100 { 2 } else { 1 });
            for moved in placement.moves(now) {
                moves += 1;
                let last = moved_at[moved.connection].replace(now);
                assert!(last.is_none_or(|last| now - last >= 2 * SECOND), "{last:?}, {now}");
            }
        }
        assert!((500..=1_001).contains(&moves), "{moves} in 4 s");
        assert!(moved_at.iter().any(Option::is_some));
    }

    #[test]
    fn one_connection_more_than_the_others_moves_nothing() {
        let (mut placement, mut now) = (full(2, 3, Moving::default()), 0);
        placement.activate(2);
        assert_eq!(settle(&mut placement, &mut now), 1);
        assert_eq!(counts(&placement), [2, 1]);
    }
}
