//! What a loop counts of its turns: how many polls, what was left over, how much waited, who was
//! the longest, and the report of a slow one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::panic::Location;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use wakeful::accept::{Connection, ConnectionServer, Serving, SharedListener};
use wakeful::metrics::name_slow_work;
use wakeful::net::{ListenAddr, UnixStream};
use wakeful::task::{Builder, Scope, consume_budget, yield_now};
use wakeful::{EventLoop, LoopHandle, LoopMetrics, Priority, spawn};

use crate::backend::driven::Driven;
use crate::backend::{Backend, localhost};

on_every_backend! {
    a_turn_with_n_ready_tasks_counts_n_polls_and_one_turn,
    a_turn_of_one_poll_counts_as_both,
    queue_depth_is_what_waits_behind_the_first,
    events_that_come_together_are_counted_together,
    budget_exhaustion_counts_once_a_phase_that_leaves_work_over,
    forced_yields_count_what_a_task_s_budget_put_off,
    the_longest_poll_names_where_its_task_was_spawned,
    a_closure_and_block_on_s_future_are_named_too,
    a_slow_turn_is_counted_and_reported_with_the_task_s_name,
    a_task_s_name_stands_beside_the_line_that_spawned_it,
    a_slow_turn_names_the_slowest_work_of_its_longest_poll,
    a_slow_turn_says_what_to_do_about_a_task_that_is_never_pending,
    a_connection_is_named_by_the_place_that_started_its_server,
    no_turn_is_slow_where_none_can_be,
}

/// One turn that does not wait, and what it added.
fn turn(event_loop: &mut EventLoop) -> (LoopMetrics, LoopMetrics) {
    let before = event_loop.handle().metrics();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    (before, event_loop.handle().metrics())
}

fn a_turn_with_n_ready_tasks_counts_n_polls_and_one_turn<B: Backend>() {
    let mut event_loop = B::unhurried();
    for n in [0, 1, 2, 20] {
        (0..n).for_each(|_| event_loop.spawn(async {}).detach());
        let (before, after) = turn(&mut event_loop);
        assert_eq!(after.polls - before.polls, n);
        assert_eq!(after.poll_time.since(&before.poll_time).count(), n);
        assert_eq!(after.turn_time.since(&before.turn_time).count(), 1);
        assert_eq!(after.turns - before.turns, 1);
        let (turn, polls) = (after.turn_time.sum(), after.poll_time.sum());
        assert!(polls <= turn, "polls are a part of their turns: {polls} {turn}");
    }
}

fn a_turn_of_one_poll_counts_as_both<B: Backend>() {
    let mut event_loop = B::event_loop();
    // The first polls are each the longest so far, and take another path.
    for _ in 0..100 {
        event_loop.spawn(async {}).detach();
        turn(&mut event_loop);
    }
    let metrics = event_loop.handle().metrics();
    assert_eq!((metrics.poll_time.count(), metrics.turn_time.count()), (100, 100));
    // After a callback a turn is more than its poll.
    event_loop.spawn(async {}).detach();
    event_loop.run_this_turn(|| thread::sleep(Duration::from_millis(2)));
    let (before, after) = turn(&mut event_loop);
    let (turn, poll) =
        (after.turn_time.since(&before.turn_time), after.poll_time.since(&before.poll_time));
    assert_eq!((turn.count(), poll.count()), (1, 1));
    assert!(turn.sum() >= poll.sum() + 1_900_000, "{turn:?} {poll:?}");
}

fn queue_depth_is_what_waits_behind_the_first<B: Backend>() {
    let mut event_loop = B::unhurried();
    for (ready, highest_of_bucket) in [(0, 1), (1, 1), (2, 1), (3, 3), (10, 15), (60, 63)] {
        (0..ready).for_each(|_| event_loop.spawn(async {}).detach());
        let (before, after) = turn(&mut event_loop);
        let depth = after.queue_depth.since(&before.queue_depth);
        assert_eq!(depth.buckets().collect::<Vec<_>>(), [(highest_of_bucket, 1)]);
        assert_eq!(depth.sum(), u64::max(ready, 1) - 1);
    }
}

fn events_that_come_together_are_counted_together<B: Backend>() {
    let mut event_loop = B::event_loop();
    let mut peers = Vec::new();
    for _ in 0..5 {
        let (peer, socket) = StdUnixStream::pair().unwrap();
        peers.push(peer);
        let reader = event_loop.spawn(async move {
            let mut socket = UnixStream::from_std(socket).unwrap();
            while socket.read(&mut [0; 8]).await.unwrap() > 0 {}
        });
        reader.detach();
    }
    for _ in 0..3 {
        turn(&mut event_loop);
    }
    for (together, highest_of_bucket) in [(5, 7), (1, 1), (2, 3), (1, 1)] {
        peers[..together].iter_mut().for_each(|peer| peer.write_all(b"an event").unwrap());
        let (before, after) = turn(&mut event_loop);
        let events = after.events_per_wait.since(&before.events_per_wait);
        assert_eq!(events.buckets().collect::<Vec<_>>(), [(highest_of_bucket, 1)]);
        assert_eq!(
            (events.sum(), after.events - before.events),
            (together as u64, together as u64)
        );
    }
    let (before, after) = turn(&mut event_loop);
    assert_eq!(before.events_per_wait, after.events_per_wait, "a look that brings none");
}

fn budget_exhaustion_counts_once_a_phase_that_leaves_work_over<B: Backend>() {
    let builder = B::builder().task_budget(4).callback_budget(4).timer_budget(4);
    let mut event_loop = builder.turn_budget(Duration::MAX).build().unwrap();
    let exhausted = |event_loop: &mut EventLoop| {
        let (before, after) = turn(event_loop);
        after.budget_exhaustions - before.budget_exhaustions
    };
    let spawn = |event_loop: &EventLoop, n: u32| {
        (0..n).for_each(|_| event_loop.spawn(async {}).detach());
    };
    spawn(&event_loop, 4);
    assert_eq!(exhausted(&mut event_loop), 0, "a budget that is just enough");
    spawn(&event_loop, 9);
    let turns: Vec<_> = (0..4).map(|_| exhausted(&mut event_loop)).collect();
    assert_eq!(turns, [1, 1, 0, 0]);
    (0..5).for_each(|_| event_loop.run_this_turn(|| ()));
    (0..5).for_each(|_| event_loop.run_next_turn(|| ()));
    let turns: Vec<_> = (0..3).map(|_| exhausted(&mut event_loop)).collect();
    assert_eq!(turns, [2, 0, 0]);
    // Six timers, due together.
    let due = Instant::now() + Duration::from_millis(50);
    for _ in 0..6 {
        event_loop.spawn(wakeful::time::sleep_until(due)).detach();
    }
    for _ in 0..2 {
        turn(&mut event_loop);
    }
    let before = event_loop.handle().metrics();
    thread::sleep(due.saturating_duration_since(Instant::now()));
    while event_loop.handle().metrics().timers < before.timers + 6 {
        turn(&mut event_loop);
    }
    let after = event_loop.handle().metrics();
    assert_eq!(after.budget_exhaustions - before.budget_exhaustions, 1, "four, and two");
    assert_eq!(after.timer_lateness.count(), 6);
}

fn forced_yields_count_what_a_task_s_budget_put_off<B: Backend>() {
    let mut event_loop = B::builder().cooperative_budget(3).build().unwrap();
    let task = event_loop.spawn(async {
        for _ in 0..10 {
            consume_budget().await;
        }
    });
    while !task.is_finished() {
        turn(&mut event_loop);
    }
    assert_eq!(
        event_loop.handle().metrics().forced_yields,
        3,
        "three polls of three, and one of one"
    );
}

/// Blocks the loop for longer than any poll so far took, also if this thread lost its CPU in one.
fn block_longest(event_loop: &EventLoop) -> impl FnOnce() + Send + 'static {
    let handle = event_loop.handle();
    move || {
        let longest = handle.metrics().longest_poll.map_or(Duration::ZERO, |poll| poll.duration);
        thread::sleep(longest * 2 + Duration::from_millis(2));
    }
}

fn the_longest_poll_names_where_its_task_was_spawned<B: Backend>() {
    let mut event_loop = B::event_loop();
    assert_eq!(event_loop.handle().metrics().longest_poll, None);
    let block = block_longest(&event_loop);
    event_loop.spawn(async {}).detach();
    let slow = event_loop.spawn(async { block() });
    let line = line!() - 1;
    turn(&mut event_loop);
    assert!(slow.is_finished());
    let metrics = event_loop.handle().metrics();
    let longest = metrics.longest_poll.unwrap();
    assert_eq!((longest.spawned_at.file(), longest.spawned_at.line()), (file!(), line));
    assert!(longest.duration >= Duration::from_micros(1_900), "{longest:?}");
    assert!(metrics.poll_time.quantile(1.0) >= Some(1_900_000), "{metrics:?}");
    // A shorter one leaves it (unless it lost its CPU), a longer one from another thread takes its
    // place.
    event_loop.spawn(async {}).detach();
    let (before, after) = turn(&mut event_loop);
    let short = after.poll_time.since(&before.poll_time).quantile(1.0).unwrap();
    if u128::from(short) < longest.duration.as_nanos() {
        assert_eq!(after.longest_poll, Some(longest));
    }
    let (block, handle) = (block_longest(&event_loop), event_loop.handle());
    let sent = thread::spawn(move || handle.spawn(|| async { block() }).unwrap().detach());
    let line = line!() - 1;
    sent.join().unwrap();
    turn(&mut event_loop);
    assert_eq!(event_loop.handle().metrics().longest_poll.unwrap().spawned_at.line(), line);
}

fn a_closure_and_block_on_s_future_are_named_too<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let named = || handle.metrics().longest_poll.unwrap().spawned_at.line();
    handle.post(block_longest(&event_loop)).unwrap();
    let sent_at = line!() - 1;
    turn(&mut event_loop);
    assert_eq!(named(), sent_at);
    let (before, block) = (handle.metrics(), block_longest(&event_loop));
    let called_at = line!() + 1;
    event_loop.block_on(async { block() }).unwrap();
    assert_eq!(named(), called_at);
    assert_eq!(handle.metrics().polls, before.polls, "it is no task");
    assert!(handle.metrics().slow_turns > before.slow_turns);
    let (block, loop_of_its_own) = (|| thread::sleep(Duration::from_millis(2)), line!() + 2);
    let inner = thread::spawn(move || {
        wakeful::block_on(async {
            block();
            wakeful::task::yield_now().await;
            wakeful::LoopHandle::current().metrics().longest_poll
        })
    });
    assert_eq!(inner.join().unwrap().unwrap().spawned_at.line(), loop_of_its_own);
}

fn a_slow_turn_is_counted_and_reported_with_the_task_s_name<B: Backend>() {
    let reports = Reports::default();
    let mut event_loop = B::builder().slow_turn(Duration::from_millis(20)).build().unwrap();
    reports.of(|| {
        event_loop.spawn(async { thread::sleep(Duration::from_millis(25)) }).detach();
        let line = line!() - 1;
        let (before, after) = turn(&mut event_loop);
        assert_eq!(after.slow_turns - before.slow_turns, 1);
        let report = reports.take().expect("one report");
        assert!(report.starts_with("WARN "), "{report}");
        assert!(report.contains(&format!("spawned_at={}:{line}:", file!())), "{report}");
        assert!(report.contains("polls=1 "), "{report}");
        // The next within a second is only counted.
        event_loop.spawn(async { thread::sleep(Duration::from_millis(25)) }).detach();
        let (before, after) = turn(&mut event_loop);
        assert_eq!((after.slow_turns - before.slow_turns, reports.take()), (1, None));
    });
    // No poll to name: a callback.
    let mut event_loop = B::builder().slow_turn(Duration::from_millis(20)).build().unwrap();
    reports.of(|| {
        event_loop.run_this_turn(|| thread::sleep(Duration::from_millis(25)));
        turn(&mut event_loop);
        let report = reports.take().expect("one report");
        assert!(report.contains("polls=0 ") && !report.contains("spawned_at="), "{report}");
    });
}

/// However it is spawned. A task without one has none.
fn a_task_s_name_stands_beside_the_line_that_spawned_it<B: Backend>() {
    type Block = Box<dyn FnOnce() + Send>;
    fn here(builder: Builder, block: Block) -> u32 {
        builder.spawn(async { block() }).detach();
        line!() - 1
    }
    fn in_a_scope(builder: Builder, block: Block) -> u32 {
        let scope = Scope::new();
        builder.spawn_in(scope.spawner(), async { block() }).detach();
        spawn(scope).detach();
        line!() - 2
    }
    fn from_elsewhere(builder: Builder, block: Block) -> u32 {
        let handle = LoopHandle::current();
        let elsewhere = thread::spawn(move || {
            builder.spawn_on(&handle, || async { block() }).unwrap().detach();
        });
        elsewhere.join().unwrap();
        line!() - 3
    }
    let builders = [
        (Builder::new().name("reader"), Some("reader")),
        (Builder::new().name("writer").priority(Priority::High), Some("writer")),
        (Builder::new(), None),
    ];
    let slow = Duration::from_millis(100);
    let one_slow_turn = |way: fn(Builder, Block) -> u32, builder| {
        let reports = Reports::default();
        let mut event_loop = B::builder().slow_turn(slow).build().unwrap();
        let mut line = 0;
        reports.of(|| {
            let spawns = async {
                line = way(builder, Box::new(move || thread::sleep(slow * 2)));
                while LoopHandle::current().metrics().slow_turns == 0 {
                    yield_now().await;
                }
            };
            event_loop.block_on(spawns).unwrap();
        });
        let longest = event_loop.handle().metrics().longest_poll.unwrap();
        (line, longest, reports.take().expect("one report"))
    };
    for way in [here, in_a_scope, from_elsewhere] {
        for (builder, name) in builders {
            // A machine that stands still for 100 ms makes the turn that spawns a slow one, too.
            // Then again.
            let (line, longest, report) = (0..10)
                .map(|_| one_slow_turn(way, builder))
                .find(|(line, longest, _)| longest.spawned_at.line() == *line)
                .expect("a longest poll of the task that sleeps");
            assert_eq!((longest.spawned_at.file(), longest.name), (file!(), name));
            assert!(report.contains(&format!("spawned_at={}:{line}:", file!())), "{report}");
            let said = name.map(|name| format!(" task=\"{name}\" "));
            assert_eq!(report.contains(" task="), said.is_some(), "{report}");
            assert!(said.is_none_or(|said| report.contains(&said)), "{report}");
        }
    }
}

fn a_slow_turn_names_the_slowest_work_of_its_longest_poll<B: Backend>() {
    let work = |milliseconds, name: &'static str| {
        thread::sleep(Duration::from_millis(milliseconds));
        name_slow_work(|| name.to_owned());
    };
    let reports = Reports::default();
    let report_of = |fill: &dyn Fn(&mut EventLoop)| {
        let mut event_loop = B::builder().slow_turn(Duration::from_millis(20)).build().unwrap();
        reports.of(|| {
            fill(&mut event_loop);
            turn(&mut event_loop);
        });
        reports.take().expect("one report")
    };
    let report = report_of(&|event_loop| {
        event_loop.spawn(async move { work(10, "of another poll") }).detach();
        let poll = async move {
            work(10, "first");
            work(100, "second");
            work(10, "third");
            // Nobody names this.
            thread::sleep(Duration::from_millis(10));
        };
        event_loop.spawn(poll).detach();
        // Its work begins with its poll.
        event_loop.spawn(async { name_slow_work(|| unreachable!("no work")) }).detach();
    });
    assert!(report.contains("slowest=\"second\" slowest_took="), "{report}");
    assert!(report.contains("polls=3 "), "{report}");
    // What a callback names is not the poll's.
    let report = report_of(&|event_loop| {
        event_loop.run_next_turn(move || work(10, "callback"));
        event_loop.spawn(async { thread::sleep(Duration::from_millis(60)) }).detach();
    });
    assert!(report.contains("spawned_at=") && !report.contains("slowest"), "{report}");
    // The future of `block_on` is no task, but slow as well.
    let mut event_loop = B::builder().slow_turn(Duration::from_millis(20)).build().unwrap();
    reports.of(|| event_loop.block_on(async { work(60, "root") }).unwrap());
    let report = reports.take().expect("one report");
    assert!(report.contains("slowest=\"root\""), "{report}");
    name_slow_work(|| unreachable!("no loop runs here"));
}

fn a_slow_turn_says_what_to_do_about_a_task_that_is_never_pending<B: Backend>() {
    let reports = Reports::default();
    let mut event_loop = B::builder().slow_turn(Duration::from_millis(20)).build().unwrap();
    // Another library's channel, which the budget of the loop does not know of.
    let greedy = async {
        let (sender, receiver) = async_channel::unbounded();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(25) {
            sender.try_send(()).unwrap();
            receiver.recv().await.unwrap();
        }
    };
    reports.of(|| {
        event_loop.spawn(greedy).detach();
        turn(&mut event_loop);
    });
    let report = reports.take().expect("one report");
    assert!(report.contains("task::budgeted") && report.contains("spawn_blocking"), "{report}");
}

fn a_connection_is_named_by_the_place_that_started_its_server<B: Backend>() {
    let server = || {
        let listener = SharedListener::bind(&localhost().into()).unwrap();
        ConnectionServer::new(vec![listener]).group(B::group().loops(1))
    };
    let handler = || {
        async |mut connection: Connection| {
            connection.stream.read(&mut [0]).await.unwrap();
            let metrics = wakeful::LoopHandle::current().metrics();
            let longest = metrics.longest_poll.map_or(Duration::ZERO, |poll| poll.duration);
            thread::sleep(longest * 2 + Duration::from_millis(2));
        }
    };
    let named = |running: Serving| {
        let ListenAddr::Tcp(addr) = running.local_addrs()[0] else { panic!("it is TCP") };
        let mut client = TcpStream::connect(addr).unwrap();
        client.write_all(b"x").unwrap();
        // Its handler has ended.
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        // After its poll.
        let metrics = running.handles()[0].clone();
        let metrics = metrics.post_and_wait(|| ()).map(|()| metrics.metrics()).unwrap();
        running.shutdown(Duration::from_secs(20)).unwrap();
        metrics.longest_poll.unwrap().spawned_at
    };
    let running = server().start(handler).unwrap();
    let line = line!() - 1;
    let spawned_at = named(running);
    assert_eq!((spawned_at.file(), spawned_at.line()), (file!(), line));
    // A crate that starts servers for its users says where.
    let place = Location::caller();
    assert_eq!(named(server().started_at(place).start(handler).unwrap()), place);
}

fn no_turn_is_slow_where_none_can_be<B: Backend>() {
    let reports = Reports::default();
    let mut event_loop = B::builder().slow_turn(Duration::MAX).build().unwrap();
    reports.of(|| {
        event_loop.spawn(async { thread::sleep(Duration::from_millis(5)) }).detach();
        turn(&mut event_loop);
    });
    let metrics = event_loop.handle().metrics();
    assert_eq!((metrics.slow_turns, reports.take()), (0, None));
    assert!(metrics.turn_time.sum() >= 4_900_000, "{metrics:?}");
}

/// The events of a thread, as text.
#[derive(Debug, Clone, Default)]
struct Reports(Arc<Mutex<Vec<String>>>);

impl Reports {
    /// Of what this thread does in `f`.
    fn of(&self, f: impl FnOnce()) {
        // While there is but one subscriber, `tracing` asks that of the thread that comes to an
        // event first, and it may be another test's, which has none. So there are two.
        let _second = tracing::Dispatch::new(self.clone());
        tracing::subscriber::with_default(self.clone(), f);
    }

    /// The only one since the last call, if there was any.
    fn take(&self) -> Option<String> {
        let mut all = std::mem::take(&mut *self.0.lock().unwrap());
        assert!(all.len() < 2, "{all:?}");
        all.pop()
    }
}

impl tracing::Subscriber for Reports {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{}={value:?} ", field.name()));
            }
        }
        let mut text = Text(format!("{} ", event.metadata().level()));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
