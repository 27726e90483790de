use std::panic::Location;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::heartbeat::WorkText;
use crate::heartbeat::{Heartbeat, Running};

const TIMEOUT: Duration = Duration::from_secs(30);
/// A quarter of the time-out and of the longest beat together.
const LOOK: Duration = Duration::from_nanos(30_030_000_000 / 4 + 1);

/// A watchdog, a page of some loops, and the time.
struct World {
    watchdog: Watchdog,
    page: Heartbeats,
    loops: Vec<Heartbeat>,
    now: Instant,
}

impl World {
    fn new(loops: usize) -> Self {
        Self::with_guests(loops, 0)
    }

    fn with_guests(loops: usize, guests: usize) -> Self {
        let mut watchdog = Watchdog::new(TIMEOUT).unwrap();
        let page = watchdog.page(loops, guests).unwrap();
        let loops = (0..loops).map(|number| beats_of(&page, number)).collect();
        Self { watchdog, page, loops, now: Instant::now() }
    }

    /// Lets time pass, and has the watchdog look. Returns the numbers of the stuck loops, and
    /// whether there is a next look.
    fn look_after(&mut self, time: Duration) -> (Vec<usize>, bool) {
        self.now += time;
        let look = self.watchdog.look(self.now);
        assert!(look.next.is_none_or(|next| next > self.now && next <= self.now + LOOK));
        (look.stuck.iter().map(|stuck| stuck.number).collect(), look.next.is_some())
    }

    /// Has the watchdog look `times` times, each time when it wanted to.
    fn look_in_time(&mut self, times: u32) -> Vec<usize> {
        (0..times).fold(Vec::new(), |_, _| self.look_after(LOOK).0)
    }

    fn is_rung(&self) -> bool {
        let mut fds = [PollFd::new(&self.watchdog, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }
}

fn beats_of(page: &Heartbeats, number: usize) -> Heartbeat {
    Heartbeat::new(&page.line(number)).unwrap()
}

#[test]
fn a_loop_in_one_turn_for_longer_than_the_timeout_is_stuck_and_one_that_sleeps_never_is() {
    let mut world = World::new(2);
    world.loops[0].wakes();
    assert_eq!(world.look_in_time(4), [0; 0], "seen for the first time, and three quarters");
    assert_eq!(world.look_in_time(1), [0], "two looks that are the time-out apart");
    assert_eq!(world.look_in_time(1), [0], "it still is");
    world.loops[0].goes_on();
    assert_eq!(world.look_in_time(1), [0; 0]);
    world.loops[0].sleeps();
    let hour = Duration::from_secs(3_600);
    for _ in 0..10 {
        assert_eq!(world.look_after(hour), (vec![], false));
    }
}

#[test]
fn a_loop_that_takes_turns_is_never_stuck() {
    let mut world = World::new(1);
    world.loops[0].wakes();
    for _ in 0..100 {
        world.loops[0].goes_on();
        assert_eq!(world.look_after(LOOK), (vec![], true));
    }
    // Nor is a loop stuck that sleeps between the looks, and is awake at each of them.
    for _ in 0..100 {
        world.loops[0].sleeps();
        world.loops[0].wakes();
        assert_eq!(world.look_after(LOOK), (vec![], true));
    }
}

#[test]
fn a_pause_of_everybody_counts_for_nothing_wherever_it_falls() {
    for looks_before in 1..=4 {
        let mut world = World::new(1);
        world.loops[0].wakes();
        assert_eq!(world.look_in_time(looks_before), [0; 0]);
        // A SIGSTOP of the whole process group, or a suspended machine.
        assert_eq!(world.look_after(Duration::from_secs(86_400)).0, [0; 0]);
        assert_eq!(world.look_in_time(5 - looks_before - 1), [0; 0], "{looks_before}");
        assert_eq!(world.look_in_time(1), [0], "{looks_before}");
    }
}

#[test]
fn a_watchdog_that_is_always_a_little_late_counts_the_distance_that_it_planned() {
    let mut world = World::new(1);
    world.loops[0].wakes();
    for _ in 0..4 {
        assert_eq!(world.look_after(LOOK + LOOK / 2).0, [0; 0]);
    }
    assert_eq!(world.look_after(LOOK + LOOK / 2).0, [0]);
    // A watchdog that always looks far too late cannot know whether a loop is stuck.
    let mut world = World::new(1);
    world.loops[0].wakes();
    for _ in 0..100 {
        assert_eq!(world.look_after(LOOK * 2).0, [0; 0]);
    }
}

#[test]
fn looks_before_their_time_count_for_what_they_are() {
    let mut world = World::new(1);
    world.loops[0].wakes();
    let step = TIMEOUT / 1_000;
    let looks = (0..).find(|_| !world.look_after(step).0.is_empty()).unwrap();
    // The first look sees the beat begin. The longest beat adds 30 ms.
    assert_eq!(looks, 1_001);
}

#[test]
fn a_watchdog_rests_while_all_sleep_and_the_first_that_wakes_rings_once() {
    let mut world = World::new(2);
    assert_eq!(world.look_after(LOOK), (vec![], false));
    assert!(!world.is_rung());
    world.loops[0].wakes();
    world.loops[1].wakes();
    world.loops[0].goes_on();
    assert!(world.is_rung());
    let rings = || {
        let mut count = [0; 8];
        rustix::io::read(&world.watchdog, &mut count).map(|_| u64::from_ne_bytes(count))
    };
    assert_eq!(rings(), Ok(1));
    world.look_after(LOOK);
    for number in [0, 1] {
        world.loops[number].sleeps();
        world.loops[number].wakes();
    }
    assert!(!world.is_rung(), "it watches");
    world.loops.iter().for_each(Heartbeat::sleeps);
    assert_eq!(world.look_after(LOOK), (vec![], false));
    world.loops[1].wakes();
    assert!(world.is_rung(), "it rested");
}

#[test]
fn a_watchdog_that_is_rung_by_one_worker_watches_all_and_rests_when_all_do() {
    let mut world = World::new(1);
    let other = world.watchdog.page(1, 0).unwrap();
    let its = beats_of(&other, 0);
    assert!(!world.look_after(LOOK).1);
    world.loops[0].wakes();
    assert!(world.look_after(LOOK).1);
    its.wakes();
    assert!(!world.is_rung(), "it watches the other one, too");
    world.loops[0].sleeps();
    assert!(world.look_after(LOOK).1);
    assert_eq!(world.look_in_time(3), [0; 0]);
    let look = world.watchdog.look(world.now + LOOK);
    assert!(look.stuck[0].heartbeats == other && look.stuck[0].heartbeats != world.page);
    world.watchdog.remove(&other);
    assert_eq!(world.look_after(LOOK * 2), (vec![], false));
}

/// A worker may be killed before its ring, or between its ring and its mark. When another worker
/// uses the page, nothing of that must be left.
#[test]
fn a_page_whose_worker_was_killed_is_as_new_after_a_reset() {
    let mut world = World::new(2);
    world.look_after(LOOK);
    world.loops[0].wakes();
    world.loops[1].wakes();
    let running = Running::new(&world.page.line(1));
    running.runs(Location::caller());
    world.page.begin_set_up();
    assert_eq!(world.look_in_time(4), [0; 0]);
    world.watchdog.reset(&world.page);
    assert!(!world.page.are_in_set_up());
    assert_eq!(world.watchdog.loops(&world.page), [LoopState::Asleep, LoopState::Asleep]);
    // The next worker's numbers start again. Its first beat is not a continuation of the old one's.
    world.loops = vec![beats_of(&world.page, 0), beats_of(&world.page, 1)];
    world.loops[1].wakes();
    assert_eq!(world.look_in_time(4), [0; 0]);
    let look = world.watchdog.look(world.now + LOOK);
    assert_eq!((look.stuck[0].number, look.stuck[0].running.as_deref()), (1, None));
}

#[test]
fn a_watchdog_knows_what_a_loop_runs_and_for_how_long() {
    let mut world = World::new(1);
    let running = Running::new(&world.page.line(0));
    world.loops[0].wakes();
    let place = Location::caller();
    let shown = Some(format!("{}:{}", place.file(), place.line()));
    running.runs(place);
    let at_least = Duration::ZERO;
    let state = LoopState::Awake { at_least, running: shown.clone(), work: None };
    assert_eq!(world.watchdog.loops(&world.page), [state]);
    let mut text = WorkText::new();
    text.add(b"GET /reports");
    running.works_on(7, &text);
    assert!(running.is_other_work(8) && !running.is_other_work(7));
    world.look_in_time(5);
    let stuck = &world.watchdog.look(world.now).stuck[0];
    assert_eq!((&stuck.running, stuck.at_least), (&shown, LOOK * 4));
    assert_eq!(stuck.work.as_deref(), Some("GET /reports"));
    running.runs_none();
    assert!(running.is_other_work(7));
    let at_least = LOOK * 4;
    let state = LoopState::Awake { at_least, running: None, work: None };
    assert_eq!(world.watchdog.loops(&world.page), [state]);
    running.runs(place);
    running.works_on(7, &text);
    // This is another task from the same place.
    running.runs(place);
    let stuck = &world.watchdog.look(world.now).stuck[0];
    assert_eq!((&stuck.running, &stuck.work), (&shown, &None));
}

/// Tokio may run its own tasks for long without a turn of the loop.
#[test]
fn a_loop_that_has_a_guest_is_asked_once_before_it_is_called_stuck() {
    let mut world = World::with_guests(2, 2);
    let lines = [0, 1].map(|number| world.page.line(number));
    let question = lines[1].watch_questions().unwrap();
    let is_asked = || rustix::io::read(question, &mut [0; 8]).is_ok();
    world.loops.iter().for_each(Heartbeat::wakes);
    world.look_in_time(2);
    assert!(!is_asked());
    world.look_in_time(1);
    assert!(is_asked());
    world.loops[1].goes_on();
    assert_eq!(world.look_in_time(2), [0], "the other one has no guest, and does not go on");
    assert!(!is_asked());
    assert_eq!(world.look_in_time(2), [0]);
    assert!(is_asked(), "again, in another beat");
    assert_eq!(world.look_in_time(1), [0, 1], "it does not answer");
    assert!(!is_asked());
}

#[test]
fn a_page_reaches_an_executed_worker_by_its_descriptors() {
    let mut world = World::with_guests(2, 1);
    let copies = || world.page.descriptors().map(|fd| fd.try_clone_to_owned().unwrap());
    assert_eq!(copies().count(), 3);
    let there = Heartbeats::from_descriptors(copies().collect()).unwrap();
    for wrong in [vec![], copies().take(1).collect(), copies().skip(1).collect()] {
        assert!(Heartbeats::from_descriptors(wrong).is_err());
    }
    assert!(there.fits(2, 1).is_ok() && there.fits(3, 0).is_err() && there.fits(2, 2).is_err());
    world.look_after(LOOK);
    beats_of(&there, 1).wakes();
    assert!(world.is_rung());
    assert_eq!(world.look_in_time(5), [1]);
}

#[test]
fn what_a_damaged_worker_writes_leads_to_no_more_than_a_wrong_verdict() {
    let mut world = World::new(2);
    let page = world.page.clone();
    let running = || (0..2).map(|number| page.running(number));
    let words = || page.beats().chain(page.watches()).chain(page.places()).chain(running());
    for damage in [usize::MAX, 1, 0x0a0a_0a0a, usize::MAX / 2] {
        words().for_each(|word| word.store(damage, std::sync::atomic::Ordering::Relaxed));
        world.look_in_time(6);
        assert!(world.watchdog.loops(&page).len() == 2);
    }
    world.watchdog.reset(&page);
    assert_eq!(world.look_after(LOOK), (vec![], false));
    world.loops[0].wakes();
    assert!(world.is_rung());
}

#[test]
fn a_timeout_without_end_finds_nothing_and_needs_no_look() {
    let mut world = World::new(1);
    world.watchdog.set_timeout(Duration::MAX);
    world.loops[0].wakes();
    let look = world.watchdog.look(world.now);
    assert!(look.stuck.is_empty());
    world.watchdog.set_timeout(TIMEOUT);
    assert_eq!(world.look_in_time(5), [0]);
}
