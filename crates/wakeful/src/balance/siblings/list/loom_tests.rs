//! The interleavings of workers that go out of the kernel's list, and of one that leaves or dies
//! meanwhile, by model checking. How to run them is in `ready_queue/loom_tests`.

use std::sync::Arc;

use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;
use crate::ready_queue::loom_tests::check;

struct Model {
    states: [AtomicUsize; 3],
    active: AtomicUsize,
    unclaimed: AtomicUsize,
    rung: [AtomicBool; 3],
    /// Whether a worker that was in looked for connections.
    looked: AtomicBool,
    /// Like `Balancer::looks_at_turn`, of the worker at place 1.
    looks_at_turn: AtomicUsize,
}

impl Model {
    fn new(states: [State; 3]) -> Arc<Self> {
        Arc::new(Self {
            states: states.map(|state| AtomicUsize::new(state.0)),
            active: AtomicUsize::new(1),
            unclaimed: AtomicUsize::new(0),
            looked: AtomicBool::new(false),
            looks_at_turn: AtomicUsize::new(0),
            rung: [false; 3].map(AtomicBool::new),
        })
    }

    /// Like `Balancer::follow_turn`.
    fn looks(&self, place: usize) {
        if self.is_wanted(place) {
            self.comes_in(place);
        } else {
            self.may_go_out(place);
        }
    }

    /// Like `Balancer::see_whose_turn_it_is`.
    fn sees_whose_turn_it_is(&self) {
        if self.looks_at_turn.fetch_add(1, SeqCst) > 0 {
            return;
        }
        let mut seen = 1;
        loop {
            self.looks(1);
            match self.looks_at_turn.compare_exchange(seen, 0, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(more) => seen = more,
            }
        }
    }

    /// Like the task that hears the bell.
    fn hears(&self, place: usize) {
        self.looks(place);
        if self.is_to_look(place) {
            self.looked.store(true, SeqCst);
        }
    }

    /// Like `Balancer::look_for_room`.
    fn has_room(&self, place: usize) {
        self.change_state(place, State::FULL, State::OUT);
        self.looks(place);
    }

    /// At the end the bells ring until nobody rings another one. Then somebody must have looked for
    /// a connection that was not taken.
    fn check_that_one_looked(&self) {
        while let Some(place) = (0..3).find(|place| self.rung[*place].swap(false, SeqCst)) {
            self.hears(place);
        }
        assert!(self.looked.load(SeqCst));
    }

    /// At the end each worker whose bell rang looks. Then the first worker that accepts must be in.
    fn check(&self) {
        for place in 0..3 {
            if self.rung[place].load(SeqCst) {
                self.looks(place);
            }
        }
        let first = self.accepting().next().expect("somebody accepts");
        assert_eq!(self.state(first), State::IN);
    }
}

impl List for Model {
    fn places(&self) -> usize {
        3
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
        // Like a write to an eventfd, which is not lost either.
        self.rung[place].swap(true, SeqCst);
    }
}

fn together(states: [State; 3], acts: [fn(&Model); 2]) {
    together_until(states, acts, Model::check);
}

fn together_until(states: [State; 3], acts: [fn(&Model); 2], check: fn(&Model)) {
    loom::model(move || {
        let model = Model::new(states);
        let threads = acts.map(|act| {
            let model = model.clone();
            thread::spawn(move || act(&model))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        check(&model);
    });
}

/// With a third thread. At the end somebody must have looked.
fn three_together(states: [State; 3], acts: [fn(&Model); 2], third: fn(&Model)) {
    check(Some(3), move || {
        let model = Model::new(states);
        let threads = acts.map(|act| {
            let model = model.clone();
            thread::spawn(move || act(&model))
        });
        third(&model);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        model.check_that_one_looked();
    });
}

#[test]
fn loom_one_goes_out_while_the_only_other_one_dies() {
    together(
        [State::IN, State::IN, State::FREE],
        [|model| model.leaves(0, State::FREE), |model| model.looks(1)],
    );
}

#[test]
fn loom_two_go_out_at_once() {
    together(
        [State::JOINED, State::IN, State::IN],
        [|model| model.looks(1), |model| model.looks(2)],
    );
}

#[test]
fn loom_one_goes_out_while_more_become_active_and_the_first_leaves() {
    together(
        [State::IN, State::IN, State::OUT],
        [
            |model| {
                model.change_active(1, 2);
                model.leaves(0, State::LEAVES);
            },
            |model| model.looks(1),
        ],
    );
}

#[test]
fn loom_two_step_back_at_once() {
    together(
        [State::IN, State::IN, State::FREE],
        [
            |model| {
                if model.may_step_back(0, 1, |_| true) {
                    model.looks(0);
                }
            },
            |model| {
                model.may_step_back(1, 1, |_| true);
            },
        ],
    );
}

#[test]
fn loom_one_steps_back_while_the_only_other_one_dies() {
    together(
        [State::IN, State::IN, State::FREE],
        [
            |model| model.leaves(0, State::FREE),
            |model| {
                model.may_step_back(1, 1, |_| true);
            },
        ],
    );
}

/// Two loops of the worker at place 1: one runs full, while the other one looks whose turn it is.
fn full_while_it_looks(states: [State; 3]) {
    loom::model(move || {
        let model = Model::new(states);
        let looking = model.clone();
        let looks = thread::spawn(move || looking.looks(1));
        model.pauses(1, State::FULL);
        looks.join().unwrap();
        assert_eq!(model.state(1), State::FULL);
    });
}

#[test]
fn loom_one_runs_full_while_it_goes_out() {
    full_while_it_looks([State::IN, State::IN, State::FREE]);
}

#[test]
fn loom_one_runs_full_while_it_comes_in() {
    full_while_it_looks([State::FULL, State::OUT, State::FREE]);
}

/// The kernel wakes the worker at place 0, which is full, for a connection.
#[test]
fn loom_one_has_room_while_another_one_that_is_full_takes_no_connection() {
    together_until(
        [State::FULL, State::FULL, State::FREE],
        [|model| model.others_take_over(None), |model| model.has_room(1)],
        Model::check_that_one_looked,
    );
}

#[test]
fn loom_two_have_room_while_another_one_that_is_full_takes_no_connection() {
    three_together(
        [State::FULL; 3],
        [|model| model.has_room(1), |model| model.has_room(2)],
        |model| model.others_take_over(None),
    );
}

#[test]
fn loom_one_begins_while_another_one_that_is_full_takes_no_connection() {
    together_until(
        [State::FULL, State::JOINED, State::FREE],
        [|model| model.others_take_over(None), |model| model.begins(1)],
        Model::check_that_one_looked,
    );
}

/// The worker at place 1 has not heard its bell yet.
#[test]
fn loom_one_goes_out_whose_bell_rang_for_a_connection() {
    together_until(
        [State::FULL, State::IN, State::IN],
        [|model| model.others_take_over(None), |model| model.looks(2)],
        Model::check_that_one_looked,
    );
}

/// Two loops of the worker at place 1: one hears the bell while the other one looks whose turn it
/// is.
#[test]
fn loom_one_hears_its_bell_while_it_goes_out() {
    three_together(
        [State::IN, State::IN, State::FREE],
        [|model| model.pauses(0, State::FULL), |model| model.sees_whose_turn_it_is()],
        |model| {
            if model.rung[1].swap(false, SeqCst) {
                model.sees_whose_turn_it_is();
                if model.is_to_look(1) {
                    model.looked.store(true, SeqCst);
                }
            }
        },
    );
}
