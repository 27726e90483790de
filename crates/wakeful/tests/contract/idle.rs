//! Idle policies: park costs nothing while nothing happens, spin needs no system call to be woken.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use wakeful::idle::{Adaptive, BusyPoll, Hold};
use wakeful::{EventLoop, IdlePolicy, LoopHandle};

use crate::backend::Backend;
use crate::backend::driven::{BY_HAND, Driven, SAYS_ASLEEP, has_guest, skip_on_guests};

on_every_backend! {
    a_failed_attempt_to_sleep_costs_no_system_call_but_never_twice_in_a_row,
    a_parked_loop_asks_the_kernel_nothing_until_something_happens,
    a_loop_that_holds_asks_the_kernel_nothing_in_silence_and_fires_its_timers,
    a_spinning_loop_never_sleeps_for_others_and_fires_its_timers,
    a_spinning_turn_with_a_limit_ends,
    policies_read_as_they_print,
    an_adaptive_loop_without_traffic_asks_the_kernel_nothing,
    an_adaptive_loop_that_may_not_spin_is_one_that_parks,
    an_adaptive_loop_meets_events_and_fires_its_timers,
    a_spin_gives_way_to_a_neighbour_on_its_cpu,
    a_spin_gives_way_to_a_neighbour_that_runs_for_a_moment_but_often,
    a_loop_at_real_time_priority_leaves_its_cpu_to_an_ordinary_thread,
    a_loop_at_any_real_time_policy_does_not_spin,
    a_spinning_loop_notices_that_its_thread_got_real_time_priority,
    a_loop_that_spins_at_real_time_priority_lets_its_equals_run,
    of_two_loops_on_one_cpu_one_spins,
    a_loop_that_nobody_runs_keeps_none_from_spinning,
    a_loop_that_others_drive_keeps_none_from_spinning,
    keep_warm_has_a_thread_for_each_cpu_while_there_is_a_loop,
    kernel_busy_poll_is_set_or_refused,
    a_wake_without_work_makes_a_spinning_loop_take_a_turn,
}

fn start<B: Backend>(policy: IdlePolicy) -> (LoopHandle, thread::JoinHandle<()>) {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut event_loop = B::builder().idle(policy).build().unwrap();
        send.send(event_loop.handle()).unwrap();
        event_loop.run().unwrap();
    });
    (receive.recv().unwrap(), thread)
}

fn asleep(handle: &LoopHandle) -> bool {
    format!("{handle:?}").contains("asleep: true")
}

/// The loop goes to sleep, and from then on neither takes a turn nor asks the kernel.
fn asks_nothing(handle: &LoopHandle) {
    while !asleep(handle) {
        thread::yield_now();
    }
    // It waits, or has but to enter the kernel: one more wait may still be counted.
    let before = handle.metrics();
    for _ in 0..1_000 {
        let now = handle.metrics();
        assert!(now.waits <= before.waits + 1 && now.turns == before.turns, "{before:?} {now:?}");
        thread::yield_now();
    }
}

fn a_parked_loop_asks_the_kernel_nothing_until_something_happens<B: Backend>() {
    let (handle, thread) = start::<B>(IdlePolicy::Park);
    handle.post_and_wait(|| ()).unwrap();
    asks_nothing(&handle);
    handle.stop();
    thread.join().unwrap();
}

fn a_loop_that_holds_asks_the_kernel_nothing_in_silence_and_fires_its_timers<B: Backend>() {
    for hold_cost in [0.0, 1.0] {
        asks_the_kernel_nothing_behind_a_hold::<B>(hold_cost);
    }
}

fn asks_the_kernel_nothing_behind_a_hold<B: Backend>(hold_cost: f64) {
    let silence = Duration::from_millis(1);
    let hold = Hold::new().silence(silence).hold_cost(hold_cost);
    let (handle, thread) = start::<B>(IdlePolicy::Hold(hold));
    // Traffic in which it holds, if it may and if that pays on this machine; and a timer that comes
    // due after many silences.
    let timer = handle.spawn(move || wakeful::time::sleep(100 * silence)).unwrap();
    for _ in 0..100 {
        handle.post_and_wait(|| ()).unwrap();
    }
    futures_lite::future::block_on(timer).unwrap();
    // The last hold ends within a silence.
    let quiet_from = |before: wakeful::LoopMetrics| {
        (0..1_000).all(|_| {
            thread::yield_now();
            handle.metrics().waits == before.waits
        })
    };
    while !(asleep(&handle) && quiet_from(handle.metrics())) {}
    asks_nothing(&handle);
    assert!(handle.metrics().held_time <= handle.metrics().park_time);
    handle.stop();
    thread.join().unwrap();
}

fn a_spinning_loop_never_sleeps_for_others_and_fires_its_timers<B: Backend>() {
    skip_on_guests(SAYS_ASLEEP);
    let (handle, thread) = start::<B>(IdlePolicy::Spin);
    for _ in 0..1_000 {
        handle.post_and_wait(|| ()).unwrap();
        assert!(!asleep(&handle));
    }
    assert_eq!(handle.metrics().parks, 0);
    let slept = handle.spawn(|| async {
        let start = Instant::now();
        wakeful::time::sleep(Duration::from_millis(1)).await;
        start.elapsed()
    });
    let slept = futures_lite::future::block_on(slept.unwrap()).unwrap();
    assert!(slept >= Duration::from_millis(1));
    handle.stop();
    thread.join().unwrap();
}

fn an_adaptive_loop_without_traffic_asks_the_kernel_nothing<B: Backend>() {
    skip_on_guests(SAYS_ASLEEP);
    let (handle, thread) = start::<B>(IdlePolicy::ADAPTIVE);
    for _ in 0..100 {
        handle.post_and_wait(|| ()).unwrap();
    }
    asks_nothing(&handle);
    handle.stop();
    thread.join().unwrap();
}

fn an_adaptive_loop_that_may_not_spin_is_one_that_parks<B: Backend>() {
    let shares = [0.0, -1.0, f64::NAN].map(|share| Adaptive::new().max_cpu(share));
    let no_window = Adaptive::new().max_window(Duration::ZERO);
    for settings in shares.into_iter().chain([no_window]) {
        let (handle, thread) = start::<B>(IdlePolicy::Adaptive(settings));
        for _ in 0..1_000 {
            handle.post_and_wait(|| ()).unwrap();
        }
        // On a busy machine the next post may be there each time before the loop could park.
        while handle.metrics().parks == 0 {
            thread::yield_now();
        }
        let metrics = handle.metrics();
        assert_eq!((metrics.spin_hits, metrics.spin_misses, metrics.gave_way), (0, 0, 0));
        handle.stop();
        thread.join().unwrap();
    }
}

fn an_adaptive_loop_meets_events_and_fires_its_timers<B: Backend>() {
    let long = Adaptive::new().max_window(Duration::from_millis(16));
    let mut event_loop = B::builder().idle(IdlePolicy::Adaptive(long)).build().unwrap();
    let handle = event_loop.handle();
    let slept = event_loop.block_on(async {
        let start = Instant::now();
        for _ in 0..20 {
            wakeful::time::sleep(Duration::from_micros(100)).await;
        }
        start.elapsed()
    });
    assert!(slept.unwrap() >= Duration::from_millis(2));
    // A timer was known of: it neither meets a spin nor misses one. A guest knows it by the time
    // alone, so one may seem to be an event.
    let mistaken = if has_guest() { 2 } else { 0 };
    let metrics = handle.metrics();
    assert!(metrics.spin_hits <= mistaken && metrics.spin_misses == 0, "{metrics:?}");
    // A guest's run of one turn has a post before it can wait for one.
    skip_on_guests(BY_HAND);
    let (stop, stopped) = mpsc::channel::<()>();
    let poster = thread::spawn(move || {
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            handle.post_and_wait(|| ()).unwrap();
        }
    });
    let handle = event_loop.handle();
    // Each turn waits for a post and runs it: some come while the loop spins.
    while handle.metrics().spin_hits == 0 {
        event_loop.take_turn(None).unwrap();
    }
    drop(stop);
    // The last post may still be on its way.
    while !poster.is_finished() {
        event_loop.take_turn(Some(Duration::from_millis(1))).unwrap();
    }
    poster.join().unwrap();
}

/// The CPUs that this thread may use.
fn cpus() -> CpuSet {
    sched_getaffinity(None).unwrap()
}

/// Pins this thread to the first CPU. Until the guard is dropped, no other test does that: a thread
/// that keeps the CPU busy for one test would keep the loops of another one from spinning.
fn pin_to_first() -> (CpuSet, MutexGuard<'static, ()>) {
    static ONE_TEST: Mutex<()> = Mutex::new(());
    let one_test = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let allowed = cpus();
    let mut first = CpuSet::new();
    first.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
    sched_setaffinity(None, &first).unwrap();
    (first, one_test)
}

fn a_spin_gives_way_to_a_neighbour_on_its_cpu<B: Backend>() {
    // A thread of its own, so that no other test is pinned.
    let pinned = thread::spawn(|| {
        let (cpu, _one_test) = pin_to_first();
        let (stop, stopped) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let hog = thread::spawn(move || {
            sched_setaffinity(None, &cpu).unwrap();
            begin.send(()).unwrap();
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {}
        });
        begun.recv().unwrap();
        // A loop that has seen nothing is on trial: its first spin yields to the other thread. It
        // may be that this one does not run just then, but not each time.
        while {
            let mut event_loop = B::builder().idle(IdlePolicy::ADAPTIVE).build().unwrap();
            event_loop.take_turn(Some(Duration::from_millis(20))).unwrap();
            event_loop.handle().metrics().gave_way == 0
        } {}
        drop(stop);
        hog.join().unwrap();
    });
    pinned.join().unwrap();
}

fn a_spin_gives_way_to_a_neighbour_that_runs_for_a_moment_but_often<B: Backend>() {
    let pinned = thread::spawn(|| {
        let (cpu, _one_test) = pin_to_first();
        let (stop, stopped) = mpsc::channel::<()>();
        let neighbour = thread::spawn(move || {
            sched_setaffinity(None, &cpu).unwrap();
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                thread::sleep(Duration::from_micros(10));
            }
        });
        // No window that the governor finds ends the spin before the neighbour is noticed.
        let long = Adaptive::new().max_window(Duration::from_millis(16));
        let mut spins = 0;
        while {
            let mut event_loop = B::builder().idle(IdlePolicy::Adaptive(long)).build().unwrap();
            event_loop.take_turn(Some(Duration::from_millis(16))).unwrap();
            event_loop.handle().metrics().gave_way == 0
        } {
            spins += 1;
            assert!(spins < 100, "it spins on");
        }
        drop(stop);
        neighbour.join().unwrap();
    });
    pinned.join().unwrap();
}

/// Gives this thread a real-time policy, or says why the test is skipped.
fn enter_real_time() -> bool {
    enter(&["--fifo", "--pid", "1"])
}

/// Gives this thread a policy, by the options of chrt(1), or says why the test is skipped.
fn enter(policy: &[&str]) -> bool {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let outcome = Command::new("chrt").args(policy).arg(&thread).output();
    match outcome {
        Ok(output) if output.status.success() => true,
        refused => {
            println!("skipped: {policy:?} cannot be had here (chrt(1), as root): {refused:?}");
            false
        }
    }
}

fn a_loop_at_real_time_priority_leaves_its_cpu_to_an_ordinary_thread<B: Backend>() {
    let pinned = thread::spawn(|| {
        let (cpu, _one_test) = pin_to_first();
        let (stop, stopped) = mpsc::channel::<()>();
        let steps = Arc::new(AtomicUsize::new(0));
        let counted = steps.clone();
        let ordinary = thread::spawn(move || {
            sched_setaffinity(None, &cpu).unwrap();
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        if enter_real_time() {
            let long = Adaptive::new().max_window(Duration::from_millis(16));
            let mut event_loop = B::builder().idle(IdlePolicy::Adaptive(long)).build().unwrap();
            // A loop that has seen nothing is on trial: it would spin for all of its first turns.
            let (before, begun) = (steps.load(Ordering::Relaxed), Instant::now());
            let mut turns = 0;
            while turns < 10 || steps.load(Ordering::Relaxed) == before {
                assert!(begun.elapsed() < Duration::from_secs(60), "the ordinary thread starves");
                event_loop.take_turn(Some(Duration::from_millis(1))).unwrap();
                turns += 1;
            }
            let metrics = event_loop.handle().metrics();
            assert!(metrics.parks >= turns && metrics.spin_time.is_zero(), "{metrics:?}");
        }
        drop(stop);
        ordinary.join().unwrap();
    });
    pinned.join().unwrap();
}

fn a_loop_at_any_real_time_policy_does_not_spin<B: Backend>() {
    skip_on_guests(BY_HAND);
    let deadline = ["--deadline", "--sched-runtime", "5000000", "--sched-deadline", "10000000"];
    let deadline = [&deadline[..], &["--sched-period", "10000000", "--pid", "0"]].concat();
    let policies = [
        &["--fifo", "--pid", "1"][..],
        &["--fifo", "--reset-on-fork", "--pid", "1"],
        &["--rr", "--pid", "1"],
        &["--rr", "--reset-on-fork", "--pid", "1"],
        &deadline,
    ];
    for policy in policies {
        let looping = move || {
            // A loop that has seen nothing is on trial: it would spin for all of its first turns.
            let long = Adaptive::new().max_window(Duration::from_millis(16));
            let mut event_loop = B::builder().idle(IdlePolicy::Adaptive(long)).build().unwrap();
            // Now, because a thread of SCHED_DEADLINE can start no other thread.
            if !enter(policy) {
                return;
            }
            for _ in 0..10 {
                event_loop.take_turn(Some(Duration::from_millis(1))).unwrap();
            }
            let metrics = event_loop.handle().metrics();
            assert!(metrics.spin_time.is_zero(), "{policy:?}: {metrics:?}");
        };
        thread::scope(|scope| scope.spawn(looping).join().unwrap());
    }
}

fn a_spinning_loop_notices_that_its_thread_got_real_time_priority<B: Backend>() {
    skip_on_guests(BY_HAND);
    let looping = thread::spawn(|| {
        let long = Adaptive::new().max_window(Duration::from_millis(16));
        let mut event_loop = B::builder().idle(IdlePolicy::Adaptive(long)).build().unwrap();
        let handle = event_loop.handle();
        let (stop, stopped) = mpsc::channel::<()>();
        let poster = thread::spawn({
            let handle = handle.clone();
            move || {
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    handle.post_and_wait(|| ()).unwrap();
                }
            }
        });
        while handle.metrics().spin_hits == 0 {
            event_loop.take_turn(None).unwrap();
        }
        if enter_real_time() {
            let (begun, mut last) = (Instant::now(), handle.metrics());
            // More parks than a pause of the governor lasts.
            while handle.metrics().parks - last.parks < 5_000 {
                assert!(begun.elapsed() < Duration::from_secs(120), "it goes on spinning");
                event_loop.take_turn(None).unwrap();
                let now = handle.metrics();
                if now.spin_time != last.spin_time {
                    last = now;
                }
            }
        }
        drop(stop);
        // The last post may still be on its way.
        while !poster.is_finished() {
            event_loop.take_turn(Some(Duration::from_millis(1))).unwrap();
        }
        poster.join().unwrap();
    });
    looping.join().unwrap();
}

fn a_loop_that_spins_at_real_time_priority_lets_its_equals_run<B: Backend>() {
    let pinned = thread::spawn(|| {
        let _one_test = pin_to_first();
        if !enter_real_time() {
            return;
        }
        // A thread inherits CPU and policy, and does not begin before this one waits or yields.
        let ran = Arc::new(AtomicUsize::new(0));
        let mut event_loop = B::builder().idle(IdlePolicy::Spin).build().unwrap();
        let begun = Instant::now();
        let equal = thread::spawn({
            let ran = ran.clone();
            move || ran.fetch_add(1, Ordering::Relaxed)
        });
        while ran.load(Ordering::Relaxed) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "the other thread never runs");
            event_loop.take_turn(Some(Duration::from_millis(50))).unwrap();
        }
        equal.join().unwrap();
    });
    pinned.join().unwrap();
}

fn of_two_loops_on_one_cpu_one_spins<B: Backend>() {
    skip_on_guests(BY_HAND);
    let pinned = thread::spawn(|| {
        let _one_test = pin_to_first();
        let long = Adaptive::new().max_window(Duration::from_millis(16));
        let build = || B::builder().idle(IdlePolicy::Adaptive(long)).build().unwrap();
        let (mut first, mut second) = (build(), build());
        first
            .block_on(async {
                // Its timer ends the spin, but it keeps its place: it expects to spin on.
                wakeful::time::sleep(Duration::from_millis(1)).await;
                second.take_turn(Some(Duration::from_millis(1))).unwrap();
            })
            .unwrap();
        (first.handle().metrics(), second.handle().metrics())
    });
    let (first, second) = pinned.join().unwrap();
    // On a busy machine it may park, or give way, or not get as far as a spin. Then the place is
    // free.
    let keeps_place = first.parks == 0 && first.gave_way == 0 && !first.spin_time.is_zero();
    assert!(!keeps_place || second.parks == 1, "both spun: {first:?} {second:?}");
}

/// On one CPU: a loop spins in `wait`, and nobody takes its turns afterwards. Another one spins
/// then.
fn another_spins_after<B: Backend>(wait: fn(&mut EventLoop, Duration)) {
    let pinned = thread::spawn(move || {
        let _one_test = pin_to_first();
        let long = Adaptive::new().max_window(Duration::from_millis(16));
        let build = || B::builder().idle(IdlePolicy::Adaptive(long)).build().unwrap();
        let spins = |event_loop: &mut EventLoop| {
            wait(event_loop, Duration::from_millis(1));
            let metrics = event_loop.handle().metrics();
            metrics.parks == 0 && metrics.gave_way == 0
        };
        // On a busy machine it has to give way first.
        let mut kept = build();
        while !spins(&mut kept) {
            kept = build();
        }
        // So has this one.
        let began = Instant::now();
        std::iter::repeat_with(|| spins(&mut build()))
            .take_while(|_| began.elapsed() < Duration::from_secs(60))
            .any(|spins| spins)
    });
    assert!(pinned.join().unwrap(), "the first loop kept its place");
}

fn a_loop_that_nobody_runs_keeps_none_from_spinning<B: Backend>() {
    another_spins_after::<B>(|kept, time| {
        kept.block_on(wakeful::time::sleep(time)).unwrap();
    });
}

fn a_loop_that_others_drive_keeps_none_from_spinning<B: Backend>() {
    skip_on_guests(BY_HAND);
    another_spins_after::<B>(|kept, time| kept.take_turn(Some(time)).unwrap());
}

/// Returns the `/proc` status of each.
fn warm_threads_status() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let status = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("status")).ok()
    };
    tasks.filter_map(status).filter(|status| status.starts_with("Name:\twakeful-warm")).collect()
}

fn warm_threads() -> usize {
    warm_threads_status().len()
}

/// The kernel gives a process's signal to any thread that does not block it.
fn blocks_signals(status: &str) -> bool {
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
    let (signal, blocked) = (libc::SIGTERM, u64::from_str_radix(blocked, 16).unwrap());
    blocked & (1 << (signal - 1)) != 0
}

fn keep_warm_has_a_thread_for_each_cpu_while_there_is_a_loop<B: Backend>() {
    let pinned = thread::spawn(|| {
        let _one_test = pin_to_first();
        let build = || B::builder().idle(IdlePolicy::KeepWarm).build().unwrap();
        let (mut first, second) = (build(), build());
        while warm_threads() != 1 {
            thread::yield_now();
        }
        assert!(warm_threads_status().iter().all(|status| blocks_signals(status)));
        first.block_on(wakeful::time::sleep(Duration::from_millis(1))).unwrap();
        drop(first);
        assert_eq!(warm_threads(), 1, "the second loop still needs it");
        drop(second);
        while warm_threads() != 0 {
            thread::sleep(Duration::from_millis(1));
        }
    });
    pinned.join().unwrap();
}

fn kernel_busy_poll_is_set_or_refused<B: Backend>() {
    let settings = BusyPoll::new().time(Duration::from_micros(20)).budget(16);
    match B::builder().idle(IdlePolicy::KernelBusyPoll(settings)).build() {
        Ok(mut event_loop) => {
            event_loop.block_on(wakeful::time::sleep(Duration::from_millis(1))).unwrap();
        }
        Err(error) => assert!(error.to_string().contains("6.9"), "{error}"),
    }
    let endless = BusyPoll::new().time(Duration::from_secs(36 * 60));
    let refused = B::builder().idle(IdlePolicy::KernelBusyPoll(endless)).build().unwrap_err();
    assert!(refused.to_string().contains("35 minutes"), "{refused}");
}

fn a_spinning_turn_with_a_limit_ends<B: Backend>() {
    let mut event_loop = B::builder().idle(IdlePolicy::Spin).build().unwrap();
    let start = Instant::now();
    event_loop.take_turn(Some(Duration::from_millis(2))).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(2));
}

fn policies_read_as_they_print<B: Backend>() {
    let of_kernel = IdlePolicy::KernelBusyPoll(BusyPoll::new());
    let hold = IdlePolicy::Hold(Hold::new());
    let park = IdlePolicy::Park;
    let all = [IdlePolicy::ADAPTIVE, park, IdlePolicy::Spin, of_kernel, IdlePolicy::KeepWarm, hold];
    for policy in all {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "burn".parse::<IdlePolicy>().unwrap_err();
    assert!(error.to_string().contains("burn"));
}

fn a_wake_without_work_makes_a_spinning_loop_take_a_turn<B: Backend>() {
    let (handle, thread) = start::<B>(IdlePolicy::Spin);
    for _ in 0..5 {
        handle.post_and_wait(|| ()).unwrap();
        let before = handle.metrics().turns;
        handle.wake();
        while handle.metrics().turns == before {
            thread::yield_now();
        }
    }
    handle.stop();
    thread.join().unwrap();
}

/// Another thread pushes between the last look at the loop's own work and its sleep.
fn a_failed_attempt_to_sleep_costs_no_system_call_but_never_twice_in_a_row<B: Backend>() {
    skip_on_guests(SAYS_ASLEEP);
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let pusher = handle.clone();
    let hook = event_loop.before_park(move || {
        let pusher = pusher.clone();
        thread::spawn(move || pusher.post(|| ()).unwrap()).join().unwrap();
    });
    for _ in 0..5 {
        let before = handle.metrics();
        event_loop.take_turn(None).unwrap();
        let one = handle.metrics();
        assert_eq!((one.remote - before.remote, one.polls - before.polls), (1, 1), "and it ran");
        assert_eq!(one.waits, before.waits, "the kernel was not asked");
        event_loop.take_turn(None).unwrap();
        let two = handle.metrics();
        assert_eq!(two.waits - one.waits, 1, "it has its turn under a flood of pushes");
        assert_eq!(two.parks, before.parks);
    }
    drop(hook);
}
