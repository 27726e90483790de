//! Heartbeats of loops that have a guest: what Tokio does of its own counts as a turn, and a Tokio
//! that is busy with its own tasks is not stuck.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::heartbeat::{Heartbeats, LoopState, Watchdog};
use wakeful::{EventLoop, IdlePolicy, LoopGroup, LoopGroupBuilder};

use super::background::LONG;

const TIMEOUT: Duration = Duration::from_secs(30);
const HALF: Duration = Duration::from_millis(15_015);

fn settings(idle: IdlePolicy) -> LoopGroupBuilder {
    LoopGroup::builder().loops(1).event_loop(EventLoop::builder().idle(idle)).tokio()
}

struct Watched {
    watchdog: Watchdog,
    page: Heartbeats,
    group: LoopGroup,
    now: Instant,
}

impl Watched {
    fn new(idle: IdlePolicy) -> Self {
        let mut watchdog = Watchdog::new(TIMEOUT).unwrap();
        let settings = settings(idle);
        let page = watchdog.heartbeats_for(&settings).unwrap();
        let group = settings.heartbeats(page.clone()).build().unwrap();
        Self { watchdog, page, group, now: Instant::now() }
    }

    /// For how long the loop is known to be in its turn, by a look so much later.
    fn in_a_turn_for(&mut self, time: Duration) -> Duration {
        self.now += time;
        assert!(self.watchdog.look(self.now).stuck.is_empty());
        match self.watchdog.loops(&self.page).remove(0) {
            LoopState::Awake { at_least, .. } => at_least,
            state => panic!("its guest is busy: {state:?}"),
        }
    }

    fn until(&mut self, is: impl Fn(&LoopState) -> bool) {
        let start = Instant::now();
        while !is(&self.watchdog.loops(&self.page)[0]) {
            assert!(start.elapsed() < LONG, "{:?}", self.watchdog.loops(&self.page));
            thread::yield_now();
        }
    }

    fn spawn_on_tokio(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.group.handles()[0].post(|| drop(::tokio::task::spawn_local(future))).unwrap();
    }
}

#[test]
fn a_loop_whose_guest_sleeps_says_so_and_one_whose_guest_blocks_is_stuck() {
    for idle in [IdlePolicy::Park, IdlePolicy::default()] {
        let mut watched = Watched::new(idle);
        watched.until(|state| *state == LoopState::Asleep);
        let (blocked, is_blocked) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        watched.spawn_on_tokio(async move {
            // After a sleep of Tokio's: no turn of the loop leads here.
            ::tokio::time::sleep(Duration::from_millis(50)).await;
            blocked.send(()).unwrap();
            let _ = goes.recv();
        });
        is_blocked.recv().unwrap();
        let quarter = Duration::from_millis(7_510);
        let stuck = (0..5).map(|_| {
            watched.now += quarter;
            watched.watchdog.look(watched.now).stuck
        });
        let stuck = stuck.last().unwrap();
        assert_eq!((stuck.len(), stuck[0].running.as_deref()), (1, None));
        go.send(()).unwrap();
        watched.until(|state| *state == LoopState::Asleep);
    }
}

#[test]
fn a_loop_whose_guest_never_has_nothing_to_do_goes_on_when_it_is_asked() {
    for idle in [IdlePolicy::Park, IdlePolicy::default()] {
        let mut watched = Watched::new(idle);
        watched.spawn_on_tokio(async {
            loop {
                ::tokio::task::yield_now().await;
            }
        });
        let mut answers = 0;
        while answers < 3 {
            // Nothing wakes the loop any more. It does not begin two beats within 10 ms.
            thread::sleep(Duration::from_millis(20));
            if watched.in_a_turn_for(Duration::from_millis(7_510)) < HALF {
                continue;
            }
            // It has been asked.
            let start = Instant::now();
            while watched.in_a_turn_for(Duration::from_nanos(1)) > Duration::ZERO {
                assert!(start.elapsed() < LONG, "it does not answer");
                thread::sleep(Duration::from_millis(1));
            }
            answers += 1;
        }
    }
}

#[test]
fn heartbeats_of_loops_without_a_guest_are_refused() {
    let mut watchdog = Watchdog::new(TIMEOUT).unwrap();
    let page = watchdog.heartbeats_for(&LoopGroup::builder().loops(1)).unwrap();
    let error = settings(IdlePolicy::Park).heartbeats(page).build().unwrap_err();
    assert!(error.to_string().contains("without a guest"), "{error}");
}
