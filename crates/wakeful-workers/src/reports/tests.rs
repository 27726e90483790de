use std::thread;
use std::time::Instant;

use wakeful::time::sleep;

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

fn listed(place: usize, state: WorkerState) -> WorkerInfo {
    let pid = std::process::id();
    WorkerInfo { number: place - 1, pid, state, forked: Duration::ZERO, place }
}

fn said(own: &str) -> Said {
    Said { own: own.to_owned(), earlier: String::new() }
}

/// A desk whose master is gone when the descriptor closes.
fn new_desk() -> (Desk, OwnedFd) {
    let (lifeline, master) = rustix::pipe::pipe().unwrap();
    (Desk::new(lifeline).unwrap(), master)
}

fn list(desk: &mut Desk, is_served_elsewhere: bool, workers: &[WorkerInfo]) {
    let loops = |_: &WorkerInfo| vec![LoopInfo::asleep()];
    desk.list(true, is_served_elsewhere, workers.iter().cloned(), loops);
}

/// A desk for workers in these states, all in one process, and the reports that they have.
fn desk(states: &[WorkerState]) -> ((Desk, OwnedFd), Vec<Reports>) {
    let (mut desk, master) = new_desk();
    let reports = states.iter().map(|_| {
        let place = desk.take();
        desk.reports(place)
    });
    let reports = reports.collect();
    let workers = states.iter().enumerate().map(|(number, state)| listed(number + 1, *state));
    list(&mut desk, false, &workers.collect::<Vec<_>>());
    ((desk, master), reports)
}

#[test]
fn what_is_said_is_read() {
    for (own, earlier) in [("", ""), ("a\nb\n", ""), ("", "c"), ("täglich 3\n", "4\n5")] {
        let said = Said { own: own.to_owned(), earlier: earlier.to_owned() };
        assert_eq!(Said::of_bytes(&said.to_bytes()), said);
    }
    for nonsense in [&b""[..], b"5", b"5\nabc", b"1\n\xc3\xa4", b"1\n\xff", b"-1\n"] {
        assert_eq!(Said::of_bytes(nonsense), Said::default());
    }
}

/// Each on a thread of its own, as if it were a process.
fn answer(reports: Reports, text: &'static str) {
    thread::spawn(move || {
        wakeful::block_on(async move {
            reports.answer(move || said(text)).unwrap().await;
        });
    });
}

#[test]
fn who_is_asked_collects_what_all_say() {
    let (_desk, reports) = desk(&[WorkerState::Serving, WorkerState::Draining]);
    let asked = reports[0].clone();
    answer(reports[0].clone(), "one");
    answer(reports[1].clone(), "two");
    wakeful::block_on(async {
        for _ in 0..100 {
            let all = asked.collect(LIMIT).await.unwrap();
            let texts: Vec<_> = all.iter().map(|report| report.said.own.as_str()).collect();
            assert_eq!(texts, ["one", "two"]);
            assert!(all.iter().all(|report| report.is_current));
        }
    });
}

#[test]
fn a_child_of_a_worker_says_nothing_in_its_place() {
    let (_desk, mut reports) = desk(&[WorkerState::Draining; 2]);
    reports.iter().for_each(|one| one.publish(|| said("of the worker")).unwrap());
    let mut of_child = reports.remove(0);
    // As if that were the parent.
    Arc::get_mut(&mut of_child.0).unwrap().process += 1;
    of_child.publish(|| unreachable!("it is asked for nothing")).unwrap();
    wakeful::block_on(async {
        for one in reports[0].collect(Duration::from_millis(1)).await.unwrap() {
            assert_eq!(one.said.own, "of the worker");
        }
    });
}

#[test]
fn several_may_ask_at_once() {
    let (_desk, reports) = desk(&[WorkerState::Serving; 4]);
    reports.iter().for_each(|one| answer(one.clone(), "text"));
    let askers: Vec<_> = reports
        .into_iter()
        .map(|asker| {
            thread::spawn(move || {
                wakeful::block_on(async {
                    for _ in 0..50 {
                        let all = asker.collect(LIMIT).await.unwrap();
                        assert!(all.iter().all(|one| one.is_current && one.said.own == "text"));
                    }
                });
            })
        })
        .collect();
    askers.into_iter().for_each(|asker| asker.join().unwrap());
}

#[test]
fn who_does_not_answer_is_waited_for_no_longer_than_the_limit() {
    let (_desk, reports) = desk(&[WorkerState::Serving, WorkerState::Serving]);
    reports[1].publish(|| said("before")).unwrap();
    answer(reports[0].clone(), "now");
    wakeful::block_on(async {
        let all = reports[0].collect(Duration::from_millis(50)).await.unwrap();
        assert!(all[0].is_current && !all[1].is_current);
        assert_eq!(all[1].said.own, "before");
        assert_eq!(all[1].worker.as_ref().unwrap().number, 1);
    });
}

#[test]
fn nobody_waits_for_who_is_stopped_starting_or_gone() {
    let ((mut desk, _master), reports) = desk(&[
        WorkerState::Serving,
        WorkerState::Stopped,
        WorkerState::Starting,
        WorkerState::Serving,
    ]);
    answer(reports[0].clone(), "text");
    wakeful::block_on(async {
        let asked = Instant::now();
        // What the last one waits for is told by the master while the question is open.
        let asker = reports[0].clone();
        let question = wakeful::spawn(async move { asker.collect(LIMIT).await });
        sleep(Duration::from_millis(20)).await;
        desk.free(4);
        let left = [WorkerState::Serving, WorkerState::Stopped, WorkerState::Starting];
        let left = left.into_iter().enumerate();
        let left: Vec<_> = left.map(|(number, state)| listed(number + 1, state)).collect();
        list(&mut desk, false, &left);
        let all = question.await.unwrap().unwrap();
        assert!(asked.elapsed() < LIMIT);
        let current: Vec<_> = all.iter().map(|report| report.is_current).collect();
        assert_eq!(current, [true, false, false, false]);
        assert_eq!(all[3].worker, None);
    });
}

#[test]
fn what_a_worker_leaves_is_its_successor_s() {
    let ((mut desk, _master), reports) = desk(&[WorkerState::Serving]);
    assert_eq!(reports[0].left_by_predecessor().unwrap(), Said::default());
    reports[0].publish(|| said("5")).unwrap();
    assert_eq!(desk.take(), 2);
    desk.free(1);
    assert_eq!(desk.take(), 1);
    assert_eq!(desk.reports(1).left_by_predecessor().unwrap(), said("5"));
}

#[test]
fn it_is_no_living_worker_s_before_it_has_said_something() {
    let ((mut desk, _master), reports) = desk(&[WorkerState::Serving]);
    reports[0].publish(|| said("5")).unwrap();
    // Another process has the place now.
    let other = WorkerInfo { pid: 1, ..listed(1, WorkerState::Starting) };
    list(&mut desk, false, &[other]);
    let all = wakeful::block_on(reports[0].collect(Duration::ZERO)).unwrap();
    assert_eq!((all[0].worker.clone(), all[0].said.own.as_str()), (None, "5"));
}

#[test]
fn a_master_in_charge_is_waited_for() {
    let (mut desk, _master) = new_desk();
    let place = desk.take();
    let reports = desk.reports(place);
    assert!(!reports.is_served_by_others().unwrap());
    wakeful::block_on(async {
        let waiting = reports.clone();
        let waiting = wakeful::spawn(async move { waiting.until_in_charge().await });
        sleep(Duration::from_millis(10)).await;
        assert!(!waiting.is_finished());
        list(&mut desk, false, &[listed(1, WorkerState::Serving)]);
        waiting.await.unwrap().unwrap();
        assert!(!reports.is_served_by_others().unwrap());
        list(&mut desk, true, &[listed(1, WorkerState::Draining)]);
        assert!(reports.is_served_by_others().unwrap(), "another master has taken over");
    });
}

#[test]
fn a_master_says_what_the_loops_do_when_it_is_asked() {
    let ((mut desk, master), reports) = desk(&[WorkerState::Serving]);
    let asker = reports[0].clone();
    let asking = thread::spawn(move || wakeful::block_on(asker.loops(LIMIT)).unwrap());
    let mut fd = [PollFd::new(&desk, PollFlags::IN)];
    assert_eq!(poll(&mut fd, None), Ok(1));
    // Nothing else has changed.
    list(&mut desk, false, &[listed(1, WorkerState::Serving)]);
    let all = asking.join().unwrap();
    assert_eq!(all, [WorkerLoops { pid: std::process::id(), loops: vec![LoopInfo::asleep()] }]);
    let ask = |limit| wakeful::block_on(reports[0].loops(limit)).unwrap();
    assert_eq!(ask(Duration::from_millis(20)), [], "this one does not answer");
    drop(master);
    assert_eq!(ask(LIMIT), [], "and this one is gone");
}

#[test]
fn nobody_waits_for_who_has_ended_since_the_master_is_gone() {
    let ((mut desk, master), reports) = desk(&[WorkerState::Serving, WorkerState::Serving]);
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let ended = WorkerInfo { pid: ended.id(), ..listed(2, WorkerState::Serving) };
    list(&mut desk, false, &[listed(1, WorkerState::Serving), ended]);
    answer(reports[0].clone(), "text");
    let collect = |limit| wakeful::block_on(reports[0].collect(limit)).unwrap();
    // The other one never answers. The first may not, in so short a time, on a busy machine.
    let all = (0..100).map(|_| collect(Duration::from_millis(20))).find(|all| all[0].is_current);
    assert!(all.expect("the first answers")[1].worker.is_some(), "the master has not said so");
    drop(master);
    let all = collect(LIMIT);
    assert!(all[0].is_current && all[1].worker.is_none());
}
