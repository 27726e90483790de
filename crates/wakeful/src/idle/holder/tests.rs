use super::*;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use wakeful_awake::Reluctance;

const SILENCE_NS: u64 = 50_000_000;

/// A holder whose device is a file: the last word in it is the last wish.
fn holder(state: State) -> (Holder, File) {
    let name = format!("wakeful-holder-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.unwrap();
    std::fs::remove_file(path).unwrap();
    let open = || Ok(OwnedFd::from(file.try_clone().unwrap()));
    let holder = Holder {
        silence: Duration::from_nanos(SILENCE_NS),
        tolerated: Duration::from_micros(2),
        process: Process::current().unwrap(),
        means: Means::Device(Device::open_by(open).unwrap()),
        state,
        why_not: HoldState::Measuring,
        machine: Box::leak(Box::new(Machine::new())),
        foreign: Foreign::default(),
    };
    (holder, file)
}

fn wishes(file: &File) -> Vec<i32> {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes.chunks_exact(4).map(|word| i32::from_ne_bytes(word.try_into().unwrap())).collect()
}

fn held(file: &File, holder: &mut Holder) {
    assert!(holder.hold().unwrap());
    holder.state = State::Held { quiet_since: None };
    assert_eq!(wishes(file), [2]);
}

#[test]
fn a_loop_that_has_seen_nothing_holds_nothing_and_asks_nothing() {
    let (mut holder, file) = holder(State::Silent);
    assert_eq!(holder.before_sleep(), None);
    holder.found_nothing(1);
    assert!(matches!(holder.state, State::Silent));
    assert!(wishes(&file).is_empty());
}

#[test]
fn where_it_is_of_no_use_it_stays_so() {
    let (mut holder, file) = holder(State::Useless);
    holder.woken();
    assert_eq!(holder.before_sleep(), None);
    holder.release();
    assert!(matches!(holder.state, State::Useless));
    assert!(wishes(&file).is_empty());
}

#[test]
fn timers_within_the_silence_do_not_end_it_and_do_not_prolong_it() {
    let (mut holder, file) = holder(State::Unheld);
    held(&file, &mut holder);
    assert_eq!(holder.before_sleep(), Some(holder.silence));
    for now in [10, 10 + SILENCE_NS / 2, 9 + SILENCE_NS] {
        holder.found_nothing(now);
        assert!(holder.is_held(), "at {now}");
    }
    holder.found_nothing(10 + SILENCE_NS);
    assert!(!holder.is_held());
    assert_eq!(wishes(&file), [2, -1]);
}

#[test]
fn in_the_place_of_a_spin_it_lasts_as_long_but_no_shorter_than_a_tick() {
    let (mut holder, file) = holder(State::Silent);
    for (window, lasts) in [(100_000, TICK), (16_700_000, Duration::from_nanos(16_700_000))] {
        assert!(holder.replaces_spin(1, window));
        holder.state = State::Held { quiet_since: None };
        assert_eq!(holder.before_sleep(), Some(lasts));
    }
    assert!(wishes(&file).is_empty());
}

#[test]
fn an_event_begins_the_silence_anew() {
    let (mut holder, file) = holder(State::Unheld);
    held(&file, &mut holder);
    holder.found_nothing(10);
    holder.woken();
    holder.found_nothing(10 + SILENCE_NS);
    assert!(holder.is_held());
    // A clock that jumps back ends nothing.
    holder.found_nothing(0);
    assert!(holder.is_held());
    assert_eq!(wishes(&file), [2]);
}

#[test]
fn an_event_behind_a_silence_asks_again() {
    let (mut holder, file) = holder(State::Unheld);
    held(&file, &mut holder);
    holder.release();
    assert!(matches!(holder.state, State::Silent));
    holder.woken();
    assert!(matches!(holder.state, State::Unheld));
    assert_eq!(wishes(&file), [2, -1]);
}

#[test]
fn the_end_of_a_loop_gives_back_what_it_holds() {
    let (mut holder, file) = holder(State::Unheld);
    held(&file, &mut holder);
    drop(holder);
    assert_eq!(wishes(&file), [2, -1]);
}

#[test]
fn a_machine_that_would_rather_not_ends_a_hold_with_the_next_sleep() {
    let (mut holder, file) = holder(State::Unheld);
    held(&file, &mut holder);
    assert_eq!((holder.before_sleep(), holder.shown()), (Some(holder.silence), HoldState::Held));
    holder.machine.found(Some(Reluctance::Stolen(20)));
    // The reason of the second refusal is this machine's, whose gain is not known yet.
    assert_eq!(holder.before_sleep(), None);
    assert!(matches!(holder.state, State::Unheld));
    assert_eq!(wishes(&file), [2, -1]);
}

#[test]
fn a_foreign_loop_that_takes_no_more_turns_holds_no_longer_than_a_silence() {
    let (mut holder, file) = holder(State::Unheld);
    held(&file, &mut holder);
    holder.leave_turn(1);
    while wishes(&file) != [2, -1] {
        std::thread::yield_now();
    }
    assert!(holder.foreign.is_between, "nobody has told the loop");
    while !holder.foreign.leash.as_ref().unwrap().is_through() {
        std::thread::yield_now();
    }
    holder.enter_turn();
    assert!(matches!(holder.state, State::Silent));
    // The next stretch of traffic.
    assert!(holder.hold().unwrap());
    holder.state = State::Held { quiet_since: None };
    holder.leave_turn(2);
    holder.leave_turn(2);
    while wishes(&file) != [2, -1, 2, -1] {
        std::thread::yield_now();
    }
}

#[test]
fn a_foreign_loop_s_turns_go_on_with_a_hold_and_do_not_prolong_it() {
    let (mut holder, file) = holder(State::Unheld);
    holder.silence = Duration::from_secs(3600);
    held(&file, &mut holder);
    for done in [1, 2, 2] {
        holder.leave_turn(done);
        holder.enter_turn();
        assert!(holder.is_held());
    }
    assert_eq!(wishes(&file), [2]);
    // The hour is over.
    holder.foreign.deadline = Some(Instant::now());
    holder.leave_turn(2);
    assert!(!holder.is_held());
    assert_eq!(wishes(&file), [2, -1]);
    // What ends it between two turns ends it once.
    holder.state = State::Held { quiet_since: None };
    holder.leave_turn(3);
    holder.release();
    assert_eq!(wishes(&file), [2, -1, -1]);
}

#[test]
fn what_a_foreign_loop_holds_by_another_descriptor_than_before_ends_as_well() {
    let (mut first, first_file) = holder(State::Unheld);
    first.silence = Duration::from_secs(3600);
    held(&first_file, &mut first);
    first.leave_turn(1);
    first.enter_turn();
    // As behind the end of a keeper, and a connection to the next one.
    let (mut second, file) = holder(State::Unheld);
    std::mem::swap(&mut first.means, &mut second.means);
    held(&file, &mut first);
    first.foreign.deadline = None;
    first.silence = Duration::from_millis(1);
    first.leave_turn(2);
    while wishes(&file) != [2, -1] {
        std::thread::yield_now();
    }
    assert_eq!(wishes(&first_file), [2]);
}
