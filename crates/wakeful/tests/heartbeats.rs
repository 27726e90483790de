//! A process that watches the loops of others, which it has forked, by their heartbeats. Alone in
//! its process, one test at a time, because it forks.

#![allow(unsafe_code)] // `fork`, and how a child ends.

#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "fork/child.rs"]
mod child;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use wakeful::heartbeat::{Heartbeats, LoopState, Watchdog};
use wakeful::{EventLoop, IdlePolicy, LoopGroup, LoopGroupBuilder, PerLoop, run_next_turn, task};

use self::child::{fork, one_at_a_time};

const TIMEOUT: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);
/// Reached only by what never comes.
const LONG: Duration = Duration::from_secs(20);

/// A watchdog, and the time that it is told.
struct World {
    watchdog: Watchdog,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self { watchdog: Watchdog::new(TIMEOUT).unwrap(), now: Instant::now() }
    }

    /// It looks when it wants to, as often as a loop needs to be found stuck. Who is, and what it
    /// runs.
    fn look_for_a_timeout(&mut self) -> Vec<(usize, Option<String>)> {
        let mut look = self.watchdog.look(self.now);
        for _ in 0..4 {
            let Some(next) = look.next else { break };
            self.now = next;
            look = self.watchdog.look(self.now);
        }
        look.stuck.into_iter().map(|stuck| (stuck.number, stuck.running)).collect()
    }

    fn is_rung(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).unwrap();
        let mut fds = [PollFd::new(&self.watchdog, PollFlags::IN)];
        poll(&mut fds, Some(&limit)).unwrap() > 0
    }

    /// Waits until the loops are as `are` says.
    fn until(&self, page: &Heartbeats, are: impl Fn(&[LoopState]) -> bool) {
        let start = Instant::now();
        loop {
            let states = self.watchdog.loops(page);
            if are(&states) {
                return;
            }
            assert!(start.elapsed() < LONG, "{states:?}");
            thread::yield_now();
        }
    }

    fn until_all_sleep(&self, page: &Heartbeats) {
        self.until(page, |states| states.iter().all(|state| *state == LoopState::Asleep));
    }

    fn until_it_rests(&mut self, page: &Heartbeats) {
        self.until_all_sleep(page);
        while self.watchdog.look(self.now).next.is_some() {
            self.until_all_sleep(page);
        }
    }

    /// Looks until a loop has begun another beat so many times, with little time in between.
    fn until_it_goes_on(&mut self, page: &Heartbeats, times: u32) {
        let start = Instant::now();
        let mut seen = 0;
        while seen < times {
            self.now += Duration::from_millis(1);
            assert!(self.watchdog.look(self.now).stuck.is_empty());
            let states = self.watchdog.loops(page);
            seen += u32::from(states.iter().any(|state| match state {
                LoopState::Awake { at_least, .. } => *at_least == Duration::ZERO,
                _ => false,
            }));
            assert!(start.elapsed() < LONG, "{states:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A worker: forked, and killed when it is dropped.
struct Worker {
    pid: Pid,
    pipe: UnixStream,
}

impl Worker {
    fn fork(work: impl FnOnce(UnixStream)) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        match fork() {
            0 => {
                drop(ours);
                child::report(&theirs.try_clone().unwrap(), || work(theirs));
            }
            pid => Self { pid: Pid::from_raw(pid).expect("fork"), pipe: ours },
        }
    }

    fn says(&mut self) -> u8 {
        let mut byte = [0];
        self.pipe.read_exact(&mut byte).unwrap();
        byte[0]
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        kill_process(self.pid, Signal::KILL).unwrap();
        waitpid(Some(self.pid), WaitOptions::empty()).unwrap();
    }
}

/// Two loops. They park, so that each sleep is seen, however short it is.
fn settings() -> LoopGroupBuilder {
    LoopGroup::builder().loops(2).event_loop(EventLoop::builder().idle(IdlePolicy::Park))
}

/// Blocks its loop until a byte comes.
fn block(mut pipe: &UnixStream) {
    pipe.write_all(b"b").unwrap();
    pipe.read_exact(&mut [0]).unwrap();
}

/// Has loop 0 block, in a task of this name, as often as the parent lets it go.
fn blocks(group: &LoopGroup, pipe: UnixStream) {
    group.handles()[0]
        .spawn(move || {
            task::Builder::new().name("report").spawn(async move {
                loop {
                    block(&pipe);
                    wakeful::time::sleep(Duration::from_millis(1)).await;
                }
            })
        })
        .unwrap()
        .detach();
}

#[test]
fn the_parent_tells_a_loop_that_blocks_from_one_that_sleeps_and_says_what_it_runs() {
    let _one = one_at_a_time();
    let mut world = World::new();
    let page = world.watchdog.heartbeats_for(&settings()).unwrap();
    // The watchdog rests.
    assert!(world.watchdog.look(world.now).next.is_none());
    let its = page.clone();
    let mut worker = Worker::fork(move |pipe| {
        let group = settings().heartbeats(its).build().unwrap();
        blocks(&group, pipe);
        thread::sleep(HOUR);
    });
    assert!(world.is_rung(LONG), "the first loop that is awake");
    for _ in 0..2 {
        assert_eq!(worker.says(), b'b');
        world.until(&page, |states| states[1] == LoopState::Asleep);
        let stuck = world.look_for_a_timeout();
        let [(0, Some(running))] = &stuck[..] else { panic!("{stuck:?}") };
        assert!(running.contains("tests/heartbeats.rs:"), "{running}");
        assert!(running.ends_with(" (report)"), "{running}");
        worker.pipe.write_all(b"g").unwrap();
    }
}

#[test]
fn a_worker_that_sleeps_for_an_hour_is_neither_woken_nor_stuck() {
    let _one = one_at_a_time();
    let mut world = World::new();
    let page = world.watchdog.heartbeats_for(&settings()).unwrap();
    let its = page.clone();
    let mut worker = Worker::fork(move |mut pipe| {
        let group = settings().heartbeats(its).build().unwrap();
        let parks = || group.handles().iter().map(|it| it.metrics().parks).sum::<u64>();
        let mut number = [0];
        while pipe.read_exact(&mut number).is_ok() {
            pipe.write_all(&[u8::try_from(parks().min(255)).unwrap()]).unwrap();
        }
    });
    world.until_all_sleep(&page);
    // Until the loops have settled: they measure the machine, and each other, first.
    let mut parks = 0;
    let mut still = 0;
    while still < 3 {
        worker.pipe.write_all(b"?").unwrap();
        let now = worker.says();
        still = if now == parks { still + 1 } else { 0 };
        parks = now;
        thread::sleep(Duration::from_millis(50));
    }
    world.until_all_sleep(&page);
    for _ in 0..100 {
        world.now += HOUR;
        let look = world.watchdog.look(world.now);
        assert!(look.stuck.is_empty() && look.next.is_none());
    }
    worker.pipe.write_all(b"?").unwrap();
    assert_eq!(worker.says(), parks, "they slept");
    assert!(!world.is_rung(Duration::ZERO));
}

#[test]
fn a_worker_that_is_stopped_with_its_parent_and_goes_on_is_not_stuck() {
    let _one = one_at_a_time();
    let mut world = World::new();
    let page = world.watchdog.heartbeats_for(&settings()).unwrap();
    let its = page.clone();
    let mut worker = Worker::fork(move |pipe| {
        let group = settings().heartbeats(its).build().unwrap();
        blocks(&group, pipe);
        thread::sleep(HOUR);
    });
    assert_eq!(worker.says(), b'b');
    // Seen three times, in time.
    let mut look = world.watchdog.look(world.now);
    for _ in 0..3 {
        world.now = look.next.unwrap();
        look = world.watchdog.look(world.now);
    }
    kill_process(worker.pid, Signal::STOP).unwrap();
    // The parent was stopped, too, or the machine.
    world.now += HOUR;
    assert!(world.watchdog.look(world.now).stuck.is_empty());
    kill_process(worker.pid, Signal::CONT).unwrap();
    worker.pipe.write_all(b"g").unwrap();
    // It has ended that turn, and blocks in another one.
    assert_eq!(worker.says(), b'b');
    let look = world.watchdog.look(world.now);
    world.now = look.next.unwrap();
    assert!(world.watchdog.look(world.now).stuck.is_empty());
}

#[test]
fn a_worker_that_is_killed_leaves_a_page_for_the_next_one() {
    let _one = one_at_a_time();
    let mut world = World::new();
    let page = world.watchdog.heartbeats_for(&settings()).unwrap();
    for _ in 0..3 {
        let its = page.clone();
        let mut worker = Worker::fork(move |pipe| {
            let group = settings().heartbeats(its).build().unwrap();
            blocks(&group, pipe);
            thread::sleep(HOUR);
        });
        assert_eq!(worker.says(), b'b');
        assert_eq!(world.look_for_a_timeout().first().map(|it| it.0), Some(0));
        drop(worker);
        world.watchdog.reset(&page);
        assert_eq!(world.watchdog.loops(&page), [LoopState::Asleep, LoopState::Asleep]);
        assert!(world.watchdog.look(world.now).next.is_none());
    }
}

#[test]
fn a_child_that_a_worker_forks_says_nothing_in_its_place() {
    let _one = one_at_a_time();
    let mut world = World::new();
    let page = world.watchdog.heartbeats_for(&settings()).unwrap();
    let its = page.clone();
    let mut worker = Worker::fork(move |pipe| {
        let group = settings().heartbeats(its).build().unwrap();
        let fork_in_a_turn = move || {
            block(&pipe);
            // Longer than a loop says nothing: the child's turn ends with a look at the clock.
            thread::sleep(Duration::from_millis(20));
            match fork() {
                // Its loop ends with this turn, and its thread, which is its only one.
                0 => {}
                pid => {
                    let pid = Pid::from_raw(pid).unwrap();
                    waitpid(Some(pid), WaitOptions::empty()).unwrap();
                    block(&pipe);
                }
            }
        };
        group.handles()[0].post(fork_in_a_turn).unwrap();
        thread::sleep(HOUR);
    });
    assert_eq!(worker.says(), b'b');
    let seen = world.watchdog.look(world.now);
    worker.pipe.write_all(b"g").unwrap();
    assert_eq!(worker.says(), b'b');
    world.now = seen.next.unwrap();
    world.watchdog.look(world.now);
    let state = world.watchdog.loops(&page).remove(0);
    let LoopState::Awake { at_least, running: Some(running), .. } = state else {
        panic!("{state:?}")
    };
    assert!(at_least > Duration::ZERO, "it is in the same turn");
    assert!(running.contains("tests/heartbeats.rs:"), "{running}");
}

#[test]
fn a_loop_that_is_busy_goes_on_whatever_it_is_busy_with() {
    let _one = one_at_a_time();
    fn again() {
        run_next_turn(again);
    }
    let busy: [(&str, fn()); 3] = [
        ("with a task", || {
            let task = async {
                loop {
                    task::yield_now().await;
                }
            };
            wakeful::spawn(task).detach();
        }),
        ("with callbacks", again),
        ("with timers", || {
            let task = async {
                loop {
                    wakeful::time::sleep(Duration::from_nanos(1)).await;
                }
            };
            wakeful::spawn(task).detach();
        }),
    ];
    for (what, begin) in busy {
        for idle in [IdlePolicy::Park, IdlePolicy::Spin, IdlePolicy::default()] {
            println!("{what}, {idle:?}");
            let mut world = World::new();
            let event_loop = EventLoop::builder().idle(idle);
            let settings = LoopGroup::builder().loops(1).event_loop(event_loop);
            let page = world.watchdog.heartbeats_for(&settings).unwrap();
            let group = settings.heartbeats(page.clone()).build().unwrap();
            group.handles()[0].post(begin).unwrap();
            world.until_it_goes_on(&page, 5);
        }
    }
}

#[test]
fn a_loop_that_spins_for_ever_is_idle() {
    let _one = one_at_a_time();
    let mut world = World::new();
    let settings =
        LoopGroup::builder().loops(1).event_loop(EventLoop::builder().idle(IdlePolicy::Spin));
    let page = world.watchdog.heartbeats_for(&settings).unwrap();
    let _group = settings.heartbeats(page.clone()).build().unwrap();
    world.until_it_rests(&page);
}

#[test]
fn loops_that_are_watched_ring_nobody_and_one_that_is_not_rings() {
    let _one = one_at_a_time();
    let mut world = World::new();
    let page = world.watchdog.heartbeats_for(&settings()).unwrap();
    let group = settings().heartbeats(page.clone()).build().unwrap();
    assert!(world.is_rung(LONG));
    // A loop is awake, so it watches.
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let (blocked, is_blocked) = std::sync::mpsc::channel();
    let blocks = move || {
        blocked.send(()).unwrap();
        let _ = wait.recv();
    };
    group.handles()[0].post(blocks).unwrap();
    is_blocked.recv().unwrap();
    assert!(world.watchdog.look(world.now).next.is_some());
    for _ in 0..100 {
        group.handles()[1].post_and_wait(|| ()).unwrap();
        world.until(&page, |states| states[1] == LoopState::Asleep);
    }
    assert!(!world.is_rung(Duration::ZERO));
    drop(done);
    world.until_it_rests(&page);
    group.handles()[1].post_and_wait(|| ()).unwrap();
    assert!(world.is_rung(LONG));
}

#[test]
fn a_group_that_has_ended_is_not_stuck() {
    let _one = one_at_a_time();
    let mut world = World::new();
    let page = world.watchdog.heartbeats_for(&settings()).unwrap();
    let group = settings().heartbeats(page.clone()).build().unwrap();
    for handle in group.handles() {
        handle.spawn(std::future::pending::<()>).unwrap().detach();
    }
    group.shutdown(Duration::ZERO).unwrap();
    assert_eq!(world.watchdog.loops(&page), [LoopState::Asleep, LoopState::Asleep]);
    world.until_it_rests(&page);
    world.now += HOUR;
    assert!(world.look_for_a_timeout().is_empty());
}

#[test]
fn a_loop_whose_end_is_blocked_by_a_drop_is_stuck() {
    let _one = one_at_a_time();
    struct Blocks(UnixStream);
    impl Drop for Blocks {
        fn drop(&mut self) {
            block(&self.0);
        }
    }
    let mut world = World::new();
    let settings = LoopGroup::builder().loops(1);
    let page = world.watchdog.heartbeats_for(&settings).unwrap();
    let group = settings.heartbeats(page.clone()).build().unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let (held, is_held) = std::sync::mpsc::channel();
    let other = theirs.try_clone().unwrap();
    // What is dropped last.
    let value = Arc::new(PerLoop::new(move || Blocks(other.try_clone().unwrap())));
    let _kept = value.clone();
    let hold = move || async move {
        let _blocks = Blocks(theirs);
        value.with(|_| held.send(()).unwrap());
        std::future::pending::<()>().await;
    };
    group.handles()[0].spawn(hold).unwrap().detach();
    is_held.recv().unwrap();
    let ends = thread::spawn(move || drop(group));
    for _ in 0..2 {
        ours.read_exact(&mut [0]).unwrap();
        assert_eq!(world.look_for_a_timeout().len(), 1);
        ours.write_all(b"g").unwrap();
    }
    ends.join().unwrap();
    assert_eq!(world.watchdog.loops(&page), [LoopState::Asleep]);
}

#[test]
fn heartbeats_of_another_group_are_refused() {
    let _one = one_at_a_time();
    let mut world = World::new();
    let page = world.watchdog.heartbeats_for(&LoopGroup::builder().loops(1)).unwrap();
    let error = settings().heartbeats(page.clone()).build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("1 loops, and the group has 2"), "{error}");
}
