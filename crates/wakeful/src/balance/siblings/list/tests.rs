use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

use super::*;

/// A list of workers. `rung` says whose bells have rung without the worker having looked.
pub(super) struct Model<const PLACES: usize> {
    states: [AtomicUsize; PLACES],
    active: AtomicUsize,
    unclaimed: AtomicUsize,
    rung: [AtomicBool; PLACES],
}

impl<const PLACES: usize> Model<PLACES> {
    fn all_in(active: usize) -> Self {
        Self {
            states: std::array::from_fn(|_| AtomicUsize::new(State::IN.0)),
            active: AtomicUsize::new(active),
            unclaimed: AtomicUsize::new(0),
            rung: std::array::from_fn(|_| AtomicBool::new(false)),
        }
    }

    /// Like `Balancer::follow_turn`.
    fn looks(&self, place: usize) {
        if self.is_wanted(place) {
            self.comes_in(place);
        } else {
            self.may_go_out(place);
        }
    }

    fn who_is_rung_looks(&self) {
        for place in 0..PLACES {
            if self.rung[place].swap(false, SeqCst) {
                self.looks(place);
            }
        }
    }

    fn is(&self) -> Vec<State> {
        (0..PLACES).map(|place| self.state(place)).collect()
    }
}

impl<const PLACES: usize> List for Model<PLACES> {
    fn places(&self) -> usize {
        PLACES
    }

    fn state_word(&self, place: usize) -> &AtomicUsize {
        &self.states[place]
    }

    fn active_word(&self) -> &AtomicUsize {
        &self.active
    }

    fn unclaimed_word(&self) -> &AtomicUsize {
        &self.unclaimed
    }

    fn ring(&self, place: usize) {
        self.rung[place].store(true, SeqCst);
    }
}

const OUT: State = State::OUT;
const IN: State = State::IN;

#[test]
fn the_first_are_in_and_others_come_in_as_more_are_active() {
    let list = Model::<4>::all_in(1);
    (0..4).for_each(|place| list.looks(place));
    assert_eq!(list.is(), [IN, OUT, OUT, OUT]);
    assert!(list.change_active(1, 3) && !list.change_active(1, 4));
    list.who_is_rung_looks();
    assert_eq!(list.is(), [IN, IN, IN, OUT]);
    assert!(list.change_active(3, 2));
    (0..4).for_each(|place| list.looks(place));
    assert_eq!(list.is(), [IN, IN, OUT, OUT]);
}

#[test]
fn when_one_leaves_or_is_stopped_another_one_is_rung() {
    for gone in [State::LEAVES, State::FREE, State::STOPPED] {
        let list = Model::<3>::all_in(1);
        (0..3).for_each(|place| list.looks(place));
        list.leaves(0, gone);
        list.who_is_rung_looks();
        list.looks(2);
        assert_eq!(list.is(), [gone, IN, OUT]);
    }
}

#[test]
fn who_cannot_hear_keeps_nobody_from_coming_in() {
    for gone in [State::LEAVES, State::FREE, State::STOPPED, State::FULL] {
        let list = Model::<3>::all_in(1);
        (0..3).for_each(|place| list.looks(place));
        list.leaves(0, gone);
        // It is the turn of the second worker, which is stuck.
        assert!(list.rung[2].swap(false, SeqCst));
        list.looks(2);
        assert_eq!(list.is(), [gone, OUT, IN]);
        list.looks(1);
        list.looks(2);
        assert_eq!(list.is(), [gone, IN, OUT]);
    }
}

#[test]
fn who_pauses_and_ends_meanwhile_stays_at_its_end() {
    let list = Model::<2>::all_in(1);
    list.looks(1);
    list.pauses(0, State::FULL);
    list.who_is_rung_looks();
    assert_eq!(list.is(), [State::FULL, IN]);
    list.leaves(0, State::LEAVES);
    assert!(!list.change_state(0, State::FULL, State::OUT));
    list.pauses(0, State::STOPPED);
    assert_eq!(list.is(), [State::LEAVES, IN]);
}

#[test]
fn who_steps_back_comes_in_again_and_as_many_stay_as_it_says() {
    let list = Model::<4>::all_in(4);
    assert!(list.may_step_back(0, 2, |_| true) && list.may_step_back(3, 2, |_| true));
    assert!(!list.may_step_back(1, 2, |_| true) && !list.may_step_back(0, 2, |_| true));
    assert_eq!(list.is(), [OUT, IN, IN, OUT]);
    // When a worker leaves, the others stay as they are.
    list.leaves(1, State::LEAVES);
    list.who_is_rung_looks();
    assert_eq!(list.is(), [IN, State::LEAVES, IN, IN]);
    // A worker comes in again by itself, unless it is no longer its turn.
    assert!(list.may_step_back(3, 2, |_| true) && list.may_step_back(0, 1, |_| true));
    assert!(list.change_active(4, 2));
    [0, 3].into_iter().for_each(|place| list.looks(place));
    assert_eq!(list.is(), [IN, State::LEAVES, IN, OUT]);
    // A worker that takes no connections does not count as one that stays.
    assert!(!list.may_step_back(0, 1, |place| place != 2));
    // The last worker that is in never goes out.
    assert!(list.may_step_back(0, 0, |_| true) && !list.may_step_back(2, 0, |_| true));
}

#[test]
fn who_is_alone_stays() {
    let list = Model::<2>::all_in(1);
    list.leaves(0, State::JOINED);
    list.looks(1);
    // It is not the first worker's turn before it accepts.
    assert_eq!(list.is(), [State::JOINED, IN]);
}

#[test]
fn however_they_go_out_and_leave_at_once_somebody_is_in() {
    const ROUNDS: usize = if cfg!(miri) { 10 } else { 5_000 };
    for round in 0..ROUNDS {
        let list = Model::<3>::all_in(1);
        let together = Barrier::new(3);
        std::thread::scope(|scope| {
            for place in 0..3 {
                let (list, together) = (&list, &together);
                scope.spawn(move || {
                    together.wait();
                    match place {
                        0 if round % 2 == 0 => list.leaves(0, State::FREE),
                        _ => list.looks(place),
                    }
                });
            }
        });
        list.who_is_rung_looks();
        assert!(list.are_in().next().is_some(), "{:?}", list.is());
        let first = list.accepting().next().unwrap();
        assert_eq!(list.state(first), IN, "{:?}", list.is());
    }
}
