use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::*;
use crate::accept::{ConnectionServer, Serving, SharedListener};
use crate::balance::siblings::Siblings;
use crate::balance::watch::Crowd;
use crate::event_loop::Spent;
use crate::group::{LoopGroup, LoopGroupBuilder, Targets};
use crate::net::TcpStream;
use crate::sys::failures;
use crate::sys::held_log::HeldLog;
use crate::{EventLoopBuilder, IdlePolicy, block_on};

fn parking() -> EventLoopBuilder {
    EventLoopBuilder::default().idle(IdlePolicy::Park)
}

/// A server that counts connections by loop; each stays open until its client closes it.
fn counting(group: LoopGroupBuilder, loops: usize) -> (Serving, Arc<Vec<AtomicUsize>>) {
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let counts: Arc<Vec<_>> = Arc::new((0..loops).map(|_| AtomicUsize::new(0)).collect());
    let (seen, next) = (counts.clone(), AtomicUsize::new(0));
    let server = ConnectionServer::new(vec![listener]).group(group.loops(loops));
    let serving = server
        .start(move || {
            let (seen, number) = (seen.clone(), next.fetch_add(1, Ordering::Relaxed));
            move |mut connection| {
                seen[number].fetch_add(1, Ordering::Relaxed);
                async move {
                    let mut buf = [0; 8];
                    while let Ok(read @ 1..) = connection.stream.read(&mut buf).await {
                        if connection.stream.write_all(&buf[..read]).await.is_err() {
                            break;
                        }
                    }
                }
            }
        })
        .unwrap();
    (serving, counts)
}

async fn connect(serving: &Serving) -> TcpStream {
    let addr = serving.local_addrs()[0].to_string();
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 1);
    stream
}

fn read(counts: &[AtomicUsize]) -> Vec<usize> {
    counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

#[test]
fn connections_that_stay_are_spread_evenly() {
    let (serving, counts) = counting(LoopGroup::builder().spread().event_loop(parking()), 4);
    block_on(async {
        let mut open = Vec::new();
        for _ in 0..80 {
            open.push(connect(&serving).await);
        }
    });
    let counts = read(&counts);
    let most = counts.iter().max().unwrap();
    assert!(*most <= 25, "20 each, and at most a quarter more: {counts:?}");
    serving.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn connections_that_go_at_once_are_spread_evenly() {
    let (serving, counts) = counting(LoopGroup::builder().spread().event_loop(parking()), 4);
    block_on(async {
        for _ in 0..200 {
            drop(connect(&serving).await);
        }
    });
    let counts = read(&counts);
    let most = counts.iter().max().unwrap();
    assert!(*most <= 62, "50 each, and at most a quarter more: {counts:?}");
    serving.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn light_load_stays_on_one_loop() {
    // The target is so high that only a loop that is busy all the time would exceed it, as may
    // happen on a busy machine.
    let targets = Targets::new().utilisation(0.95).least(1);
    let group = LoopGroup::builder().concentrate(targets).event_loop(parking());
    let (serving, counts) = counting(group, 4);
    block_on(async {
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(connect(&serving).await);
        }
    });
    let counts = read(&counts);
    assert_eq!(counts, [20, 0, 0, 0]);
    serving.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn where_the_only_active_loop_ends_another_one_accepts() {
    let (serving, counts) = counting(LoopGroup::builder().event_loop(parking()), 3);
    block_on(async {
        drop(connect(&serving).await);
        serving.handles()[0].stop();
        // The first loop is gone, with its listener.
        while serving.handles()[0].post(|| ()).is_ok() {
            crate::time::sleep(Duration::from_millis(1)).await;
        }
        drop(connect(&serving).await);
    });
    let counts = read(&counts);
    assert_eq!((counts[0], counts[1] + counts[2]), (1, 1));
    serving.shutdown(Duration::from_secs(5)).unwrap();
}

fn localhost() -> SharedListener {
    SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap()
}

/// Each test has its own thread for each loop, so the tasks that accept from a loop's listeners can
/// stay in a thread-local.
mod listening {
    use std::cell::RefCell;

    use crate::accept::{Listener, SharedListener};
    use crate::driver::membership::Membership;
    use crate::{JoinHandle, LoopHandle, spawn};

    thread_local! {
        static TASKS: RefCell<Vec<JoinHandle<()>>> = const { RefCell::new(Vec::new()) };
    }

    async fn accept(listener: Listener) {
        loop {
            let _ = listener.accept().await;
        }
    }

    pub(super) fn attach(
        handle: &LoopHandle,
        shared: &[SharedListener],
    ) -> Vec<std::sync::Arc<Membership>> {
        let shared = shared.to_vec();
        handle
            .post_and_wait(move || {
                let listeners: Vec<_> = shared.iter().map(|l| l.attach().unwrap()).collect();
                let memberships =
                    listeners.iter().filter_map(Listener::membership).cloned().collect();
                TASKS.set(listeners.into_iter().map(|it| spawn(accept(it))).collect());
                memberships
            })
            .unwrap()
    }

    pub(super) fn close(handle: &LoopHandle, place: usize) {
        handle.post_and_wait(move || TASKS.with_borrow(|tasks| tasks[place].abort())).unwrap();
        // The task drops its listener by the end of the turn.
        handle.post_and_wait(|| ()).unwrap();
    }
}

/// A loop that ends closes its listeners one after another, and drops user tasks in between.
#[test]
fn a_loop_that_has_closed_one_listener_is_nobody_to_rely_on_there() {
    let group = LoopGroup::builder().loops(2).spread().event_loop(parking()).build().unwrap();
    let shared = [localhost(), localhost()];
    let balance =
        Balancer::new(group.board().clone(), group.handles(), Arc::new(Counts::new(2)), None);
    let mut memberships = Vec::new();
    for (number, handle) in group.handles().iter().enumerate() {
        let of_loop = listening::attach(handle, &shared);
        balance.enter(number, of_loop.iter().cloned());
        memberships.push(of_loop);
    }
    let inside = |number: usize| [0, 1].map(|listener| balance.shares[number].is_inside(listener));
    assert_eq!((inside(0), inside(1)), ([true; 2], [true; 2]));

    listening::close(&group.handles()[0], 0);
    // The membership itself still exists, because another thread is using it.
    assert_eq!(inside(0), [false, true]);
    balance.step_back(1);
    assert_eq!(inside(1), [true, false], "nobody else is at the first listener");

    // Nor may a loop rely on one that ends during its own step back.
    listening::close(&group.handles()[0], 1);
    assert_eq!(inside(1), [true, true]);
    drop(memberships);
    group.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn two_loops_that_step_back_at_once_leave_no_listener_alone() {
    const ROUNDS: usize = 3_000;
    let group = LoopGroup::builder().loops(2).spread().event_loop(parking()).build().unwrap();
    let shared = [localhost(), localhost()];
    let balance =
        Balancer::new(group.board().clone(), group.handles(), Arc::new(Counts::new(2)), None);
    for (number, handle) in group.handles().iter().enumerate() {
        balance.enter(number, listening::attach(handle, &shared).into_iter());
    }
    let together = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (balance, together) = (&balance, &together);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    together.wait();
                    balance.step_back(number);
                    together.wait();
                    for listener in 0..2 {
                        let is_left = |n: usize| balance.shares[n].is_inside(listener);
                        assert!(is_left(0) || is_left(1), "round {round}, listener {listener}");
                    }
                    together.wait();
                    (0..2).for_each(|listener| balance.set_inside(number, listener, true));
                }
            });
        }
    });
    group.shutdown(Duration::from_secs(5)).unwrap();
}

/// The kernel may have woken a loop for a connection, and no other one, before another thread takes
/// it out of the list. Then it has to be asked again for another loop.
#[test]
fn a_loop_that_another_thread_takes_out_leaves_its_connection_to_one_that_stays() {
    let (group, balance, _) = two_that_sleep();
    let before = failures::watches();
    balance.take_out(0, 0, None);
    assert!(!balance.shares[0].is_inside(0) && balance.shares[1].is_in_list(0));
    assert_eq!(failures::watches() - before, 1, "the other loop's membership is made anew");
    balance.set_inside(0, 0, true);
    let before = failures::watches();
    balance.take_out(0, 0, Some(0));
    assert!(!balance.shares[0].is_inside(0));
    assert_eq!(failures::watches(), before, "a loop that is awake was not woken");
    group.shutdown(Duration::from_secs(5)).unwrap();
}

/// Nothing here takes long. A test that waits for this long has failed.
const GUARD: Duration = Duration::from_secs(20);

fn wait_until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < GUARD, "it never comes");
        std::thread::yield_now();
    }
}

/// Has the kernel refuse the next watches of this thread (`max_user_watches`).
fn refuse(watches: u32) {
    failures::fail(failures::Call::Watch, Errno::NOSPC, watches);
}

#[test]
fn a_loop_that_the_kernel_refuses_to_let_in_is_nobody_to_rely_on_and_comes_in_in_the_end() {
    let group = LoopGroup::builder().loops(2).spread().event_loop(parking()).build().unwrap();
    let balance =
        Balancer::new(group.board().clone(), group.handles(), Arc::new(Counts::new(2)), None);
    let shared = [localhost()];
    for (number, handle) in group.handles().iter().enumerate() {
        balance.enter(number, listening::attach(handle, &shared).into_iter());
    }
    balance.step_back(1);
    assert!(!balance.shares[1].is_inside(0));
    group.handles().iter().for_each(|it| it.post_and_wait(|| refuse(u32::MAX)).unwrap());
    refuse(1);
    balance.set_inside(1, 0, true);
    assert!(balance.shares[1].is_inside(0) && balance.shares[1].is_shut_out());
    // It sleeps between its attempts.
    wait_until(|| group.handles()[1].queue().is_asleep());
    assert!(!balance.is_dispensable(0, 0));
    assert!(!balance.is_another_inside(0, 0));
    balance.step_back(0);
    assert!(balance.shares[0].is_in_list(0), "nobody else is in the list");
    // Nothing else wakes a loop that would look after the memberships.
    group.handles().iter().for_each(|it| it.post_and_wait(|| refuse(0)).unwrap());
    wait_until(|| balance.shares[1].is_in_list(0));
    balance.step_back(0);
    assert!(!balance.shares[0].is_inside(0));
    group.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn a_loop_that_is_stuck_gets_no_connection_of_another_one() {
    let (group, balance, _) = two_that_sleep();
    let (release, released) = std::sync::mpsc::channel::<()>();
    group.handles()[1].post(move || released.recv().unwrap()).unwrap();
    let takes = || {
        balance.shares[0].gives.store(1, Ordering::Relaxed);
        balance.taker(0)
    };
    // The first loop has more to do than the mean, even if one that is stuck counts as busy.
    let says = || {
        let spent = Spent { busy: Duration::from_secs(1), idle: Duration::ZERO };
        balance.board.say(0, spent);
        balance.board.utilisation(0) > balance.board.utilisation(1)
    };
    wait_until(|| says() && balance.is_stuck(1));
    assert_eq!(takes(), None);
    release.send(()).unwrap();
    wait_until(|| says() && !balance.is_stuck(1));
    assert_eq!(takes(), Some(1));
    group.shutdown(Duration::ZERO).unwrap();
}

/// Two loops that sleep and wait at one listener, and the membership of the second one.
fn two_that_sleep() -> (LoopGroup, Arc<Balancer>, Arc<Membership>) {
    let group = LoopGroup::builder().loops(2).spread().event_loop(parking()).build().unwrap();
    let balance =
        Balancer::new(group.board().clone(), group.handles(), Arc::new(Counts::new(2)), None);
    let shared = [localhost()];
    for (number, handle) in group.handles().iter().enumerate() {
        balance.enter(number, listening::attach(handle, &shared).into_iter());
    }
    wait_until(|| group.handles().iter().all(|handle| handle.queue().is_asleep()));
    let second = balance.shares[1].membership(0).unwrap();
    (group, balance, second)
}

#[test]
fn a_loop_that_a_review_cannot_let_in_comes_in_in_the_end() {
    let (group, balance, second) = two_that_sleep();
    refuse(u32::MAX);
    second.requeue().unwrap_err();
    assert!(balance.shares[1].is_shut_out());
    // The reviews are on this thread, so they fail.
    wait_until(|| {
        let spent = Spent { busy: Duration::ZERO, idle: Duration::ZERO };
        balance.board.say(0, spent);
        balance.shares[1].is_in_list(0)
    });
    group.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_loop_that_one_that_leaves_cannot_let_in_comes_in_in_the_end() {
    let (group, balance, second) = two_that_sleep();
    balance.step_back(1);
    assert!(!second.is_registered());
    group.handles()[0].post_and_wait(|| refuse(u32::MAX)).unwrap();
    listening::close(&group.handles()[0], 0);
    wait_until(|| second.is_registered());
    group.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_worker_that_the_kernel_refuses_to_let_in_comes_in_in_the_end() {
    let (lifeline, _master) = rustix::pipe::pipe().unwrap();
    let siblings = Siblings::new(2, lifeline).unwrap();
    let first = OurTurn::new(siblings.join().unwrap(), Some(Targets::new()));
    first.begins();
    let group = LoopGroup::builder().loops(1).event_loop(parking()).sibling(siblings.join());
    let group = group.build().unwrap();
    let balance =
        Balancer::new(group.board().clone(), group.handles(), Arc::new(Counts::new(1)), None);
    balance.enter(0, listening::attach(&group.handles()[0], &[localhost()]).into_iter());
    balance.begin();
    let turn = balance.turn().unwrap();
    assert!(turn.is_out() && !balance.shares[0].is_inside(0), "it is the first one's turn");
    first.ends();
    refuse(1);
    balance.see_whose_turn_it_is();
    // The other worker sees this one in the list again.
    wait_until(|| first.active_members().count() == 1);
    assert!(balance.shares[0].is_in_list(0));
    group.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn a_worker_that_the_kernel_refuses_to_let_in_waits_for_no_log_line() {
    let (lifeline, _master) = rustix::pipe::pipe().unwrap();
    let siblings = Siblings::new(2, lifeline).unwrap();
    let first = OurTurn::new(siblings.join().unwrap(), Some(Targets::new()));
    first.begins();
    let group = LoopGroup::builder().loops(1).event_loop(parking()).sibling(siblings.join());
    let group = group.build().unwrap();
    let balance =
        Balancer::new(group.board().clone(), group.handles(), Arc::new(Counts::new(1)), None);
    balance.enter(0, listening::attach(&group.handles()[0], &[localhost()]).into_iter());
    balance.begin();
    first.ends();
    let log = HeldLog::at("a loop gets no connections");
    let (returns, has_returned) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (subscribe, balance) = (log.subscribe(), &balance);
        scope.spawn(move || {
            subscribe();
            refuse(1);
            balance.see_whose_turn_it_is();
            returns.send(()).unwrap();
        });
        let returned = has_returned.recv_timeout(GUARD);
        drop(log);
        returned.expect("nobody else checks whose turn it is meanwhile");
    });
    wait_until(|| balance.shares[0].is_in_list(0));
    group.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn whose_turn_it_is_is_checked_while_a_log_line_of_the_check_before_blocks() {
    let (lifeline, _master) = rustix::pipe::pipe().unwrap();
    let siblings = Siblings::new(3, lifeline).unwrap();
    let sibling = || OurTurn::new(siblings.join().unwrap(), Some(Targets::new()));
    let first = sibling();
    first.begins();
    let group = LoopGroup::builder().loops(1).event_loop(parking()).sibling(siblings.join());
    let group = group.build().unwrap();
    let balance =
        Balancer::new(group.board().clone(), group.handles(), Arc::new(Counts::new(1)), None);
    balance.enter(0, listening::attach(&group.handles()[0], &[localhost()]).into_iter());
    balance.begin();
    let third = sibling();
    third.begins();
    let turn = balance.turn().unwrap();
    assert!(turn.is_out() && !balance.shares[0].is_inside(0), "it is the first one's turn");
    // The loop hears no bell and no alarm.
    let (held, is_held) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let block = move || {
        held.send(()).unwrap();
        let _ = released.recv();
    };
    group.handles()[0].post(block).unwrap();
    is_held.recv().unwrap();
    let full = balance.full().unwrap();
    assert!(turn.heard(1) != 0, "it is awake");
    first.hear();
    let alarm = first.alarm();
    wait_until(|| alarm.has_rung(alarm.now()) && first.is_stuck(0, alarm.now()));
    let log = HeldLog::at("every active worker is stuck");
    std::thread::scope(|scope| {
        let (subscribe, balance) = (log.subscribe(), &balance);
        scope.spawn(move || {
            subscribe();
            balance.see_whose_turn_it_is();
        });
        log.wait();
        // Now it is this worker's turn, too.
        drop(full);
        let is_in = balance.shares[0].is_in_list(0);
        drop((log, release));
        assert!(is_in);
    });
    group.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_worker_that_steps_back_while_its_loops_look_is_in_its_listeners_lists_when_it_says_so() {
    const ROUNDS: usize = 10_000;
    // More workers stay than there are CPUs.
    let others = std::thread::available_parallelism().map_or(1, usize::from) + 1;
    let (lifeline, _master) = rustix::pipe::pipe().unwrap();
    let siblings = Siblings::new(others + 1, lifeline).unwrap();
    let group = LoopGroup::builder().loops(2).event_loop(parking()).sibling(siblings.join());
    let group = group.build().unwrap();
    let in_list = |_| {
        let other = OurTurn::new(siblings.join().unwrap(), Some(Targets::new()));
        other.begins();
        // The sibling sleeps.
        other.leave(false);
        other
    };
    let _others: Vec<_> = (0..others).map(in_list).collect();
    let balance =
        Balancer::new(group.board().clone(), group.handles(), Arc::new(Counts::new(2)), None);
    for (number, handle) in group.handles().iter().enumerate() {
        balance.enter(number, listening::attach(handle, &[localhost()]).into_iter());
    }
    balance.begin();
    let turn = balance.turn().unwrap();
    let is_inside = || (0..2).any(|number| balance.shares[number].is_inside(0));
    let together = std::sync::Barrier::new(2);
    // A failed check is reported at the end, because the other thread waits for this one.
    let (mut was_out, mut wrong) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                together.wait();
                // In every other round this thread does not check whose turn it is meanwhile.
                (0..round % 2 * 20).for_each(|_| balance.see_whose_turn_it_is());
                together.wait();
            }
        });
        for _ in 0..ROUNDS {
            together.wait();
            balance.is_to_step_back.store(true, Ordering::SeqCst);
            balance.see_whose_turn_it_is();
            together.wait();
            was_out += usize::from(turn.is_out());
            wrong += usize::from(turn.is_out() == is_inside());
            balance.is_to_step_back.store(false, Ordering::SeqCst);
            balance.see_whose_turn_it_is();
            wrong += usize::from(turn.is_out() || !is_inside());
        }
    });
    assert_eq!(wrong, 0);
    assert!(was_out >= ROUNDS / 2, "{was_out}");
    group.shutdown(Duration::from_secs(5)).unwrap();
}

#[test]
fn an_accept_registers_its_own_listener_anew_and_no_other() {
    const CONNECTIONS: u32 = 20;
    let watches = |serving: &Serving| -> u32 {
        let of_loop = |handle: &LoopHandle| handle.post_and_wait(failures::watches).unwrap();
        serving.handles().iter().map(of_loop).sum()
    };
    let listeners = (0..10).map(|_| localhost()).collect();
    let group = LoopGroup::builder().loops(2).spread().event_loop(parking());
    let serving = ConnectionServer::new(listeners)
        .group(group)
        .start(|| {
            async |mut connection| {
                let mut buf = [0; 1];
                let _ = connection.stream.read(&mut buf).await;
                let _ = connection.stream.write_all(&buf).await;
            }
        })
        .unwrap();
    let before = watches(&serving);
    block_on(async {
        for _ in 0..CONNECTIONS {
            drop(connect(&serving).await);
        }
    });
    // Each connection registers its stream, and its accept re-registers the listener. A few more
    // come from loops that step back or come in again.
    let registered = watches(&serving) - before;
    assert!(
        (2 * CONNECTIONS..4 * CONNECTIONS).contains(&registered),
        "{registered} registrations for {CONNECTIONS} connections"
    );
    serving.shutdown(Duration::from_secs(5)).unwrap();
}
