use super::*;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use wakeful_awake::Reluctance;

const SILENCE_NS: u64 = 50_000_000;

/// A holder whose device is a file. The last word in the file is the last request.
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
        price: None,
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
    holder.woken(|| 0);
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
    for (window, lasts) in [(100_000, TICK), (16_700_000, 16_700_000)] {
        assert!(holder.replaces_spin(1, window));
        holder.state = State::Held { quiet_since: None };
        assert_eq!(holder.before_sleep(), Some(Duration::from_nanos(lasts)));
    }
    assert!(wishes(&file).is_empty());
}

#[test]
fn an_event_begins_the_silence_anew() {
    let (mut holder, file) = holder(State::Unheld);
    held(&file, &mut holder);
    holder.found_nothing(10);
    holder.woken(|| 0);
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
    holder.woken(|| 0);
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
    // The second refusal has this machine as its reason, because the gain of a hold is not known
    // yet.
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
    // A hold that ends between two turns ends only once.
    holder.state = State::Held { quiet_since: None };
    holder.leave_turn(3);
    holder.release();
    assert_eq!(wishes(&file), [2, -1, -1]);
}

#[test]
fn a_keeper_that_is_lost_within_a_foreign_loop_s_turn_leaves_nothing_to_end() {
    let (mut holder, file) = holder(State::Unheld);
    holder.silence = Duration::from_secs(3600);
    held(&file, &mut holder);
    holder.leave_turn(1);
    holder.enter_turn();
    assert!(holder.is_held());
    // No keeper listens there.
    holder.means = Means::Keeper(Keeper::new(PathBuf::from("/nonexistent/keeper.sock")));
    holder.begin();
    assert!(holder.is_lost());
    let leash = holder.foreign.leash.as_ref().unwrap();
    assert!(!leash.enter_turn(), "the thread sleeps until there is a hold");
}

#[test]
fn what_a_foreign_loop_holds_by_another_descriptor_than_before_ends_as_well() {
    let (mut first, first_file) = holder(State::Unheld);
    first.silence = Duration::from_secs(3600);
    held(&first_file, &mut first);
    first.leave_turn(1);
    first.enter_turn();
    // The same happens after the end of a keeper and a connection to the next one.
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

/// Lets gaps pass in which the holder sleeps as in a loop, until its hold is as `is_held` says.
/// Returns how many gaps that took.
fn until_held(holder: &mut Holder, gap: u64, is_held: bool, now: &mut u64) -> u32 {
    for gaps in 0..1_000 {
        holder.weigh(*now);
        if holder.is_held() == is_held {
            return gaps;
        }
        *now += gap;
        holder.woken(|| *now);
        if matches!(holder.state, State::Unheld) {
            assert!(holder.hold().unwrap());
            holder.state = State::Held { quiet_since: None };
        }
    }
    panic!("{:?}", holder.state);
}

#[test]
fn what_is_too_rare_for_the_price_of_a_hold_ends_it_and_what_is_not_begins_one() {
    let (mut holder, file) = holder(State::Unheld);
    held(&file, &mut holder);
    holder.price = Some(Box::new(Price::new(holder.silence, 0.1, holder.process)));
    assert!(holder.is_priced());
    let mut now = 0;
    // At 1 ms for the longest spin, an event is worth a hold of 20 ms.
    assert!(until_held(&mut holder, 1_000 * SILENCE_NS, false, &mut now) <= 8);
    assert_eq!(holder.shown(), HoldState::TooDear);
    assert_eq!((wishes(&file), holder.before_sleep()), (vec![2, -1], None));
    // An event alone does not make the holder ask for another hold.
    holder.woken(|| now);
    assert_eq!((wishes(&file), holder.before_sleep()), (vec![2, -1], None));
    until_held(&mut holder, 100_000, true, &mut now);
    assert_eq!(wishes(&file), [2, -1, 2]);
    let lasts = holder.before_sleep().unwrap();
    assert!(
        lasts >= Duration::from_nanos(TICK) && lasts < Duration::from_nanos(SILENCE_NS),
        "{lasts:?}"
    );
}

#[test]
fn what_was_there_before_the_loop_slept_is_no_gap() {
    let (mut holder, file) = holder(State::Unheld);
    held(&file, &mut holder);
    holder.price = Some(Box::new(Price::new(holder.silence, 0.1, holder.process)));
    // Nine of ten waits do not sleep. The others are not worth a hold.
    for number in 0..2_000 {
        let now = number * 1_000 * SILENCE_NS;
        holder.weigh(now);
        let gap = if number % 10 == 0 { SILENCE_NS } else { 500 };
        holder.woken(|| now + gap);
    }
    assert_eq!(holder.shown(), HoldState::TooDear);
}

#[test]
fn timers_are_no_events_for_the_price() {
    let (mut holder, file) = holder(State::Unheld);
    held(&file, &mut holder);
    holder.price = Some(Box::new(Price::new(holder.silence, 0.1, holder.process)));
    // A timer every millisecond, and an event every hundredth time.
    for number in 0..10_000 {
        let now = number * 1_000_000;
        holder.weigh(now);
        match number % 100 {
            99 => holder.woken(|| now + 1_000_000),
            _ => holder.found_nothing(now + 1_000_000),
        }
    }
    assert_eq!(holder.shown(), HoldState::TooDear);
}

#[test]
fn without_a_price_no_clock_is_read_for_an_event() {
    let (mut holder, _file) = holder(State::Silent);
    holder.weigh(1);
    holder.woken(|| unreachable!("the clock is read"));
    assert!(!holder.is_priced() && matches!(holder.state, State::Unheld));
}
