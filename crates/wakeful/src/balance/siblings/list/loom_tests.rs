//! The interleavings of workers that go out of the kernel's list, and of one that leaves or dies
//! meanwhile, by model checking. How to run them is in `ready_queue/loom_tests`.

use std::sync::Arc;

use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;

struct Model {
    states: [AtomicUsize; 3],
    active: AtomicUsize,
    rung: [AtomicBool; 3],
}

impl Model {
    fn new(states: [State; 3]) -> Arc<Self> {
        Arc::new(Self {
            states: states.map(|state| AtomicUsize::new(state.0)),
            active: AtomicUsize::new(1),
            rung: [false; 3].map(AtomicBool::new),
        })
    }

    /// Like `Balancer::follow_turn`.
    fn looks(&self, place: usize) {
        if self.is_wanted(place) {
            self.change_state(place, State::OUT, State::IN);
        } else {
            self.may_go_out(place);
        }
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

    fn ring(&self, place: usize) {
        self.rung[place].store(true, SeqCst);
    }
}

fn together(states: [State; 3], acts: [fn(&Model); 2]) {
    loom::model(move || {
        let model = Model::new(states);
        let threads = acts.map(|act| {
            let model = model.clone();
            thread::spawn(move || act(&model))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        model.check();
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
