use super::*;

/// A crew, and what was ordered.
struct Ship {
    crew: Crew,
    now: Instant,
    started: Vec<(usize, WorkerId)>,
    drained: Vec<WorkerId>,
}

impl Ship {
    fn new(wanted: usize) -> Self {
        let crew = Crew::new(wanted);
        Self { crew, now: Instant::now(), started: Vec::new(), drained: Vec::new() }
    }

    /// Carries out all orders. Returns the workers that were started.
    fn obey(&mut self) -> Vec<WorkerId> {
        let before = self.started.len();
        while let Some(order) = self.crew.next(self.now) {
            match order {
                Order::Start(place) => {
                    self.started.push((place, self.crew.started(place, self.now)));
                }
                Order::Drain(id) => self.drained.push(id),
            }
        }
        self.started[before..].iter().map(|(_, id)| *id).collect()
    }

    /// A crew of `wanted` workers that all accept.
    fn begun(wanted: usize) -> (Self, Vec<WorkerId>) {
        let mut ship = Self::new(wanted);
        let first = ship.obey();
        assert_eq!(first.len(), wanted);
        for (number, id) in first.iter().enumerate() {
            assert_eq!(ship.crew.ready(*id), number + 1 == wanted);
        }
        assert_eq!(ship.obey(), []);
        ship.now += YOUNG;
        (ship, first)
    }
}

#[test]
fn a_reload_replaces_one_after_the_other_and_drains_each_when_its_successor_accepts() {
    let (mut ship, first) = Ship::begun(3);
    ship.crew.replace_all();
    for place in 0..3 {
        let new = ship.obey();
        assert_eq!(new.len(), 1);
        assert_eq!(ship.drained, first[..place]);
        assert_eq!(ship.crew.ready(new[0]), place == 2);
    }
    assert_eq!(ship.obey(), []);
    assert_eq!(ship.drained, first);
    for old in first {
        assert_eq!(ship.crew.lost(old, false, ship.now), Loss::Expected);
    }
    assert_eq!((ship.obey(), ship.started.len()), (Vec::new(), 6));
}

#[test]
fn a_replacement_that_fails_leaves_the_old_ones() {
    let (mut ship, first) = Ship::begun(2);
    ship.crew.replace_all();
    let new = ship.obey();
    assert_eq!(ship.crew.lost(new[0], false, ship.now), Loss::Replacement);
    ship.now += LONGEST_PAUSE;
    assert_eq!((ship.obey(), ship.drained.len()), (Vec::new(), 0));
    // The next replacement is tried whatever happened to the last one.
    ship.crew.replace_all();
    let new = ship.obey();
    assert_eq!(new.len(), 1);
    ship.crew.ready(new[0]);
    ship.obey();
    assert_eq!(ship.drained, first[..1]);
}

#[test]
fn a_replacement_that_is_asked_for_before_all_accept_and_fails_leaves_the_first_ones() {
    let mut ship = Ship::new(2);
    let first = ship.obey();
    assert!(!ship.crew.ready(first[0]));
    ship.crew.replace_all();
    assert_eq!(ship.obey(), [], "one starts already");
    assert!(ship.crew.ready(first[1]), "all accept");
    let new = ship.obey();
    assert_eq!(new.len(), 1);
    assert_eq!(ship.crew.lost(new[0], false, ship.now), Loss::Replacement);
    assert_eq!((ship.obey(), ship.drained.len()), (Vec::new(), 0));
    ship.crew.replace_all();
    for place in 0..2 {
        let new = ship.obey();
        assert_eq!(ship.crew.ready(new[0]), place == 1, "a replacement completes as any other");
    }
}

#[test]
fn a_second_reload_amid_the_first_replaces_what_the_first_has_started_too() {
    let (mut ship, _) = Ship::begun(2);
    ship.crew.replace_all();
    let early = ship.obey();
    ship.crew.ready(early[0]);
    ship.crew.replace_all();
    let mut completed = false;
    while !completed {
        let new = ship.obey();
        assert_eq!(new.len(), 1);
        completed = ship.crew.ready(new[0]);
    }
    ship.obey();
    assert!(ship.drained.contains(&early[0]));
    let serving: Vec<_> = ship.crew.members.iter().filter(|m| m.state == State::Ready).collect();
    assert_eq!(serving.len(), 2);
    assert!(serving.iter().all(|member| member.generation == 2));
}

#[test]
fn a_second_reload_amid_the_first_goes_on_when_what_the_first_has_started_fails() {
    let (mut ship, _) = Ship::begun(2);
    ship.crew.replace_all();
    let early = ship.obey();
    ship.crew.replace_all();
    assert_eq!(ship.crew.lost(early[0], false, ship.now), Loss::Superseded);
    for number in 1..=2 {
        let new = ship.obey();
        assert_eq!(new.len(), 1);
        assert_eq!(ship.crew.ready(new[0]), number == 2);
    }
    // It does not if it has been stopped.
    ship.crew.replace_all();
    let early = ship.obey();
    ship.crew.replace_all();
    assert!(ship.crew.stop_replacing());
    assert_eq!(ship.crew.lost(early[0], false, ship.now), Loss::Replacement);
    assert_eq!(ship.obey(), []);
}

#[test]
fn who_dies_young_is_followed_after_pauses_that_grow_and_end() {
    let (mut ship, first) = Ship::begun(1);
    let mut id = first[0];
    // The worker was old enough.
    assert_eq!(ship.crew.lost(id, false, ship.now), Loss::Sudden);
    id = ship.obey()[0];
    let mut pause = FIRST_PAUSE;
    for _ in 0..10 {
        ship.crew.ready(id);
        assert_eq!(ship.crew.lost(id, false, ship.now), Loss::Sudden);
        assert_eq!(ship.obey(), []);
        assert_eq!(ship.crew.next_at(), Some(ship.now + pause));
        ship.now += pause;
        id = ship.obey()[0];
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    assert_eq!(pause, LONGEST_PAUSE);
    // After a worker has lived for long, the pauses start again.
    ship.crew.ready(id);
    ship.now += YOUNG;
    ship.crew.lost(id, false, ship.now);
    assert_eq!(ship.obey().len(), 1);
}

#[test]
fn more_and_fewer_are_wanted() {
    let (mut ship, first) = Ship::begun(2);
    ship.crew.set_wanted(3);
    let third = ship.obey();
    assert_eq!(third.len(), 1);
    // The replacement need not accept first.
    ship.crew.set_wanted(1);
    assert_eq!(ship.obey(), []);
    assert_eq!(ship.drained, [first[1], third[0]]);
    ship.crew.set_wanted(0);
    ship.obey();
    assert_eq!(ship.drained.len(), 3);
    for id in [first[0], first[1], third[0]] {
        assert_eq!(ship.crew.lost(id, false, ship.now), Loss::Expected);
    }
    assert!(!ship.crew.is_over());
    ship.crew.set_wanted(2);
    assert_eq!(ship.obey().len(), 2);
}

#[test]
fn at_the_end_all_drain_and_none_is_started() {
    let (mut ship, first) = Ship::begun(2);
    ship.crew.replace_all();
    let new = ship.obey();
    ship.crew.end();
    assert_eq!(ship.obey(), []);
    assert_eq!(ship.drained.len(), 3);
    for id in first.into_iter().chain(new) {
        assert!(!ship.crew.is_over());
        assert_eq!(ship.crew.lost(id, false, ship.now), Loss::Expected);
    }
    assert!(ship.crew.is_over());
    assert_eq!(ship.crew.next_at(), None);
}

#[test]
fn who_ends_or_wants_none_before_the_first_accept_has_not_begun() {
    for wanted in [1, 0] {
        let mut ship = Ship::new(2);
        let first = ship.obey();
        if wanted > 0 {
            ship.crew.end();
        } else {
            ship.crew.set_wanted(0);
        }
        assert!(!first.iter().any(|id| ship.crew.ready(*id)));
    }
}

#[test]
fn one_of_the_first_that_never_accepts_is_told_apart() {
    let mut ship = Ship::new(2);
    let first = ship.obey();
    ship.crew.ready(first[0]);
    assert_eq!(ship.crew.lost(first[1], false, ship.now), Loss::First);
}

/// A later failure would otherwise end all workers, as if none of the first could serve.
#[test]
fn one_of_the_first_that_is_no_longer_wanted_leaves_a_crew_that_has_begun() {
    let mut ship = Ship::new(2);
    let first = ship.obey();
    assert!(!ship.crew.ready(first[0]));
    assert!(ship.crew.set_wanted(1), "all that are wanted accept");
    ship.obey();
    assert_eq!(ship.crew.lost(first[1], false, ship.now), Loss::Expected);
    ship.crew.replace_all();
    let new = ship.obey();
    assert_eq!(ship.crew.lost(new[0], false, ship.now), Loss::Replacement);
}

/// The worker of one place is missing, and that of the other one is replaced meanwhile.
#[test]
fn a_replacement_that_fails_while_a_first_worker_is_missing_leaves_the_old_one() {
    for is_forked in [true, false] {
        let mut ship = Ship::new(2);
        let first = ship.obey();
        ship.crew.ready(first[0]);
        ship.crew.replace_all();
        assert_eq!(ship.crew.lost(first[1], true, ship.now), Loss::Sudden);
        assert_eq!(ship.crew.next(ship.now), Some(Order::Start(0)));
        if is_forked {
            let new = ship.crew.started(0, ship.now);
            assert_eq!(ship.crew.lost(new, false, ship.now), Loss::Replacement);
        } else {
            assert!(ship.crew.cannot_start(0, ship.now), "the old one serves");
        }
    }
}

#[test]
fn one_of_the_first_that_serves_before_it_says_so_is_replaced() {
    let mut ship = Ship::new(1);
    let first = ship.obey();
    assert_eq!(ship.crew.lost(first[0], true, ship.now), Loss::Sudden);
    ship.now += FIRST_PAUSE;
    let next = ship.obey();
    assert!(ship.crew.ready(next[0]));
}

#[test]
fn a_process_that_cannot_be_had_is_tried_again_after_a_pause() {
    let (mut ship, first) = Ship::begun(1);
    ship.crew.replace_all();
    let mut pause = FIRST_PAUSE;
    for _ in 0..3 {
        assert_eq!(ship.crew.next(ship.now), Some(Order::Start(0)));
        assert!(ship.crew.cannot_start(0, ship.now));
        assert_eq!(ship.crew.next(ship.now), None);
        assert_eq!(ship.crew.next_at(), Some(ship.now + pause));
        ship.now += pause;
        pause *= 2;
    }
    let new = ship.obey();
    assert_eq!(ship.crew.next_at(), None, "nobody asks before it accepts");
    assert!(ship.crew.ready(new[0]), "the reload is over");
    ship.obey();
    assert_eq!(ship.drained, first);
    // The same where a place is empty.
    ship.crew.lost(new[0], false, ship.now);
    ship.now = ship.crew.next_at().unwrap();
    assert_eq!(ship.crew.next(ship.now), Some(Order::Start(0)));
    assert!(ship.crew.cannot_start(0, ship.now));
    ship.now = ship.crew.next_at().unwrap();
    assert_eq!(ship.obey().len(), 1);
}

#[test]
fn one_of_the_first_that_cannot_be_had_is_not_tried_again() {
    let mut ship = Ship::new(2);
    let place = ship.crew.next(ship.now);
    assert_eq!(place, Some(Order::Start(0)));
    ship.crew.started(0, ship.now);
    assert_eq!(ship.crew.next(ship.now), Some(Order::Start(1)));
    assert!(!ship.crew.cannot_start(1, ship.now));
}

#[test]
fn fewer_are_wanted_and_that_completes_a_reload() {
    let (mut ship, _) = Ship::begun(2);
    ship.crew.replace_all();
    let new = ship.obey();
    assert!(!ship.crew.ready(new[0]));
    assert!(ship.crew.set_wanted(1), "the other one is not wanted");
    ship.obey();
    assert!(!ship.crew.set_wanted(2), "there is no reload any more");
}

#[test]
fn where_clients_wait_in_a_place_that_leaves_one_more_worker_accepts_and_drains() {
    let (mut ship, first) = Ship::begun(2);
    ship.crew.set_wanted(1);
    ship.obey();
    assert_eq!(ship.drained, first[1..]);
    assert_eq!(ship.crew.inside(1), Inside::Draining);
    // This is so although the old worker has not ended.
    ship.crew.clear(1);
    assert_eq!(ship.crew.inside(1), Inside::Accepting);
    let more = ship.obey();
    assert_eq!(ship.started.last(), Some(&(1, more[0])));
    assert_eq!(ship.drained.len(), 1, "it does not accept yet");
    // If the worker dies, another one follows after a pause.
    assert_eq!(ship.crew.lost(more[0], false, ship.now), Loss::Sudden);
    assert_eq!((ship.obey(), ship.crew.next_at()), (Vec::new(), Some(ship.now + FIRST_PAUSE)));
    ship.now += FIRST_PAUSE;
    let more = ship.obey();
    assert!(!ship.crew.ready(more[0]));
    ship.obey();
    assert_eq!(ship.drained, [first[1], more[0]]);
    assert_eq!(ship.crew.inside(1), Inside::Draining);
    for id in [first[1], more[0]] {
        assert_eq!(ship.crew.lost(id, false, ship.now), Loss::Expected);
    }
    assert_eq!(ship.crew.inside(1), Inside::Nobody);
    assert_eq!(ship.obey(), []);
}

#[test]
fn where_clients_wait_nobody_is_started_while_all_are_to_drain_or_end() {
    let (mut ship, _) = Ship::begun(3);
    ship.crew.set_wanted(2);
    ship.obey();
    ship.crew.set_wanted(0);
    ship.crew.clear(2);
    assert_eq!((ship.obey(), ship.crew.next_at()), (Vec::new(), None));
    ship.crew.set_wanted(2);
    let places: Vec<_> = ship.obey().len().checked_sub(2).into_iter().collect();
    assert_eq!((places, ship.started.last().unwrap().0), (vec![1], 2));
    ship.crew.end();
    ship.obey();
    assert_eq!(ship.drained.len(), 6, "also one that starts");
}

#[test]
fn a_place_that_is_wanted_again_is_not_left() {
    let (mut ship, _) = Ship::begun(2);
    ship.crew.set_wanted(1);
    ship.obey();
    ship.crew.clear(1);
    ship.crew.set_wanted(2);
    let new = ship.obey();
    ship.crew.ready(new[0]);
    ship.obey();
    assert_eq!(ship.drained.len(), 1);
}

#[test]
fn where_clients_wait_at_the_end_and_no_worker_is_one_is_started_and_drains() {
    let (mut ship, first) = Ship::begun(3);
    assert_eq!(ship.crew.lost(first[1], false, ship.now), Loss::Sudden);
    ship.crew.end();
    assert_eq!(ship.obey(), []);
    assert_eq!(ship.drained, [first[0], first[2]]);
    // This worker is stuck in its turn.
    ship.crew.lost(first[2], false, ship.now);
    assert!(ship.crew.clear_at_the_end(0) && ship.crew.clear_at_the_end(1));
    let [zero, one] = ship.obey()[..] else { panic!("one in each place") };
    ship.crew.lost(first[0], false, ship.now);
    ship.crew.ready(zero);
    ship.obey();
    ship.crew.lost(zero, false, ship.now);
    let new = [one];
    assert!(ship.crew.is_clearing());
    ship.crew.ready(new[0]);
    assert_eq!(ship.obey(), []);
    assert_eq!(ship.drained.last(), Some(&new[0]));
    assert!(!ship.crew.is_clearing() && !ship.crew.is_over());
    assert_eq!(ship.crew.lost(new[0], false, ship.now), Loss::Expected);
    assert!(ship.crew.is_over());
}

#[test]
fn a_worker_for_clients_that_wait_at_the_end_is_tried_once() {
    for starts in [true, false] {
        let (mut ship, first) = Ship::begun(1);
        ship.crew.lost(first[0], false, ship.now);
        ship.crew.end();
        assert!(ship.crew.clear_at_the_end(0));
        if starts {
            let new = ship.obey();
            ship.crew.ready(new[0]);
            assert_eq!(ship.crew.lost(new[0], false, ship.now), Loss::Expected);
            assert!(!ship.crew.clear_at_the_end(0));
        } else {
            assert_eq!(ship.crew.next(ship.now), Some(Order::Start(0)));
            ship.crew.cannot_start(0, ship.now);
        }
        assert_eq!(ship.obey(), []);
        assert!(ship.crew.is_over());
    }
}

#[test]
fn who_waits_before_anybody_has_accepted_is_not_served_at_the_end() {
    let mut ship = Ship::new(1);
    let first = ship.obey();
    assert_eq!(ship.crew.lost(first[0], false, ship.now), Loss::First);
    ship.crew.end();
    assert!(!ship.crew.clear_at_the_end(0) && ship.crew.is_over());
}

#[test]
fn who_waits_while_nobody_is_wanted_is_served_at_the_end() {
    let (mut ship, first) = Ship::begun(1);
    ship.crew.set_wanted(0);
    ship.obey();
    ship.crew.lost(first[0], false, ship.now);
    ship.crew.end();
    assert!(ship.crew.clear_at_the_end(0) && ship.crew.is_clearing());
    let new = ship.obey();
    ship.crew.ready(new[0]);
    assert_eq!(ship.obey(), []);
    assert_eq!(ship.crew.lost(new[0], false, ship.now), Loss::Expected);
    assert!(ship.crew.is_over());
}
