use std::sync::Arc;
use std::thread::sleep;

use super::*;

/// Makes `count` active workers, of which `cpus` can run at the same time.
fn workers(count: usize, cpus: usize) -> Vec<OurTurn> {
    let page = Arc::new(Page::new(count, cpus).unwrap());
    let lifeline = Arc::new(rustix::pipe::pipe().unwrap().0);
    let turn = |_| {
        let place = page.join().unwrap();
        let (page, lifeline) = (page.clone(), lifeline.clone());
        let sibling = Sibling { page, lifeline, place, is_taken: Arc::default() };
        let turn = OurTurn::new(sibling, Some(Targets::new()));
        turn.begins();
        turn
    };
    let workers: Vec<_> = (0..count).map(turn).collect();
    assert!(page.change_active(1, count));
    workers
}

/// However slow the machine is, workers that sleep are not stuck.
fn sleep_all(workers: &[OurTurn]) {
    workers.iter().for_each(|worker| worker.leave(false));
}

/// Has one worker take connections until it steps back, and returns how many. `None`: it does not
/// step back.
fn takes_until_it_steps_back(worker: &OurTurn) -> Option<usize> {
    // A worker compares itself with the others once a millisecond.
    (1..50).find(|_| {
        sleep(Duration::from_millis(1));
        worker.accepted_too_many() && worker.may_step_back()
    })
}

#[test]
fn who_is_far_ahead_steps_back_and_its_siblings_do_not() {
    let workers = workers(4, 2);
    sleep_all(&workers[1..]);
    assert!(takes_until_it_steps_back(&workers[0]).is_some_and(|taken| taken > 4));
    assert!(workers[0].is_out() && workers[0].is_ours());
    workers[0].came_in();
    assert!(!workers[1].accepted_too_many() && !workers[1].is_out());
    // It steps back until the others have caught up.
    for worker in &workers[1..] {
        (0..100).for_each(|_| assert!(!worker.accepted_too_many()));
    }
    sleep(Duration::from_millis(1));
    assert!(!workers[0].accepted_too_many());
}

#[test]
fn nobody_steps_back_where_each_worker_has_a_cpu() {
    let workers = workers(2, 2);
    assert_eq!(takes_until_it_steps_back(&workers[0]), None);
}

#[test]
fn as_many_stay_as_there_are_cpus() {
    let workers = workers(3, 2);
    sleep_all(&workers[1..]);
    assert!(takes_until_it_steps_back(&workers[0]).is_some());
    assert_eq!(takes_until_it_steps_back(&workers[1]), None);
}

#[test]
fn who_comes_in_while_it_is_awake_sets_the_alarm() {
    let workers = workers(2, 2);
    let (first, other) = (&workers[0], &workers[1]);
    let is_set = || first.alarm.is_set(first.alarm.now());
    assert!(first.page().change_active(2, 1) && other.may_go_out());
    // The worker wakes up, and is not one that others rely on.
    first.leave(false);
    other.is_back();
    assert!(!is_set());
    assert!(other.page().change_active(1, 2));
    other.came_in();
    other.may_block_at_once();
    assert!(is_set());
}

#[test]
fn nobody_relies_on_workers_that_are_stuck_or_may_be_dead() {
    let workers = workers(3, 1);
    workers[1].page().set_heard(1, 1);
    workers[2].page().set_heard(2, 1);
    assert_eq!(takes_until_it_steps_back(&workers[0]), None);
    workers[1].page().set_heard(1, 0);
    assert!(takes_until_it_steps_back(&workers[0]).is_some());
    workers[0].came_in();
    // The master of this worker is gone.
    workers[0].is_alone_now();
    assert_eq!(takes_until_it_steps_back(&workers[0]), None);
}

/// As long as one is awake, the alarm does not ring.
#[test]
fn while_a_worker_is_stuck_each_review_has_another_one_look() {
    let workers = workers(3, 4);
    let bell = workers[1].bell().unwrap();
    let rings = || rustix::io::read(&bell, &mut [0; 8]).is_ok();
    while rings() {}
    sleep_all(&workers[1..]);
    workers[0].page().set_heard(0, 1);
    // Its bell is that of the first one, which does not hear it.
    workers[2].is_full();
    assert!(!rings());
    workers[1].review(0);
    assert!(rings());
    workers[0].page().set_heard(0, 0);
    workers[1].review(0);
    assert!(!rings());
}

#[test]
fn a_place_reaches_an_executed_worker_by_its_descriptors() {
    let workers = workers(3, 2);
    let sibling = &workers[1].sibling;
    let copies = || sibling.descriptors().map(|fd| fd.try_clone_to_owned().unwrap());
    assert_eq!(copies().count(), 3 + 3);
    for wrong in [vec![], copies().take(3).collect(), copies().skip(1).collect()] {
        assert!(Sibling::from_descriptors(1, wrong).is_err());
    }
    assert!(Sibling::from_descriptors(3, copies().collect()).is_err(), "there is no such place");
    let there = Sibling::from_descriptors(sibling.place(), copies().collect()).unwrap();
    let there = OurTurn::new(there, Some(Targets::new()));
    assert_eq!(there.page().cpus(), 2);
    // The others see what this worker writes, and this worker sees their changes.
    there.is_full();
    assert!(!workers[1].is_out() && workers[1].page().state(1) == State::FULL);
    let bell = there.bell().unwrap();
    while rustix::io::read(&bell, &mut [0; 8]).is_ok() {}
    workers[0].page().ring(1);
    assert!(rustix::io::read(&bell, &mut [0; 8]).is_ok());
    let now = workers[0].alarm.now();
    workers[0].hear();
    assert!(there.alarm.is_set(now));
}
