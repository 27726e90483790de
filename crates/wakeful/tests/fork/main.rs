//! Forks (wrong process): what a child inherits of its parent's loops is refused there with a clear
//! error, dropping it leaves the parent's registrations alone, and a new loop works. Alone in its
//! process, one test at a time, so that at the moment of a fork no other thread holds a lock that
//! the child would need.

#![allow(unsafe_code)] // `fork`, and how a child ends.

#[macro_use]
#[path = "../contract/backend.rs"]
mod backend;
#[path = "../contract/background.rs"]
mod background;
mod child;
mod destructors;
mod foreign_wakers;
#[path = "../refused/mod.rs"]
mod refused;
#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "../contract/support.rs"]
mod support;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use wakeful::accept::{Connection, ConnectionServer, SharedListener, Siblings};
use wakeful::log::LossyWriter;
use wakeful::net::UnixStream;
use wakeful::readiness::AsyncFd;
use wakeful::{
    EventLoop, IdlePolicy, LoopHandle, PerLoop, PerLoopError, PostAndWaitError, SendError,
};

use self::backend::Backend;
use self::background::{Background, LONG, until_asleep};
use self::child::{
    ForkingHook, bare_clone, fork, fork_and_wait, in_child, in_child_of, in_child_with,
    one_at_a_time, report, verdict,
};
use self::destructors::{
    a_child_of_a_destructor_on_a_thread_of_ours_ends, a_child_of_a_log_s_destination_ends,
    a_fork_in_a_destructor_at_a_loop_s_end_leaves_the_rest_to_the_parent,
};
use self::foreign_wakers::{
    a_handle_in_the_child_forgets_who_awaits_it_in_the_parent,
    a_set_in_the_child_forgets_who_awaits_it_in_the_parent,
    a_task_that_forks_and_returns_wakes_nobody_in_the_child,
    drop_in_the_child_calls_no_waker_of_who_awaits_a_set,
    drop_in_the_child_calls_no_waker_of_who_awaits_a_socket,
    drop_in_the_child_calls_no_waker_of_who_awaits_a_task,
    drop_in_the_child_calls_no_waker_of_who_awaits_a_timer,
};
use self::support::would_wake;

on_every_backend! {
    fork_before_run,
    fork_while_the_loop_runs_on_another_thread,
    fork_within_a_turn_ends_the_child_s_run_with_an_error,
    a_fork_within_a_hook_takes_no_event_from_the_parent,
    a_child_of_a_turn_ends_it_without_callbacks_and_hooks,
    use_of_every_kind_in_the_child_is_refused,
    use_in_a_child_of_a_bare_clone_is_refused,
    drop_in_the_child_leaves_the_parent_s_sockets_alive,
    drop_in_the_child_waits_for_no_lock_of_a_task,
    drop_in_the_child_waits_for_no_lock_of_what_has_not_run,
    drop_in_the_child_calls_no_waker_of_who_awaits_a_task,
    drop_in_the_child_calls_no_waker_of_who_awaits_a_set,
    drop_in_the_child_calls_no_waker_of_who_awaits_a_socket,
    drop_in_the_child_calls_no_waker_of_who_awaits_a_timer,
    a_handle_in_the_child_forgets_who_awaits_it_in_the_parent,
    a_set_in_the_child_forgets_who_awaits_it_in_the_parent,
    a_task_that_forks_and_returns_wakes_nobody_in_the_child,
    drop_in_the_child_closes_its_copies_of_connections,
    drop_in_the_child_keeps_what_was_only_watched,
    drop_in_the_child_ends_no_half_of_a_connection,
    a_copy_in_the_child_that_outlives_ours_does_not_make_the_loop_spin,
    a_new_loop_in_the_child_works,
    a_new_loop_in_a_child_of_a_turn_and_in_a_grandchild_works,
    a_value_of_the_parent_s_loop_is_refused_in_the_child_and_a_new_loop_makes_its_own,
    a_waker_in_the_child_does_not_wake_the_parent,
    a_signal_to_the_child_is_not_the_parent_s,
    the_blocking_pool_of_the_child_is_its_own,
    a_directory_that_a_child_without_threads_reads_on_is_an_error_and_no_end,
    a_child_that_returns_from_blocking_work_ends,
    a_child_of_a_destructor_on_a_thread_of_ours_ends,
    a_child_of_a_log_s_destination_ends,
    a_fork_in_a_destructor_at_a_loop_s_end_leaves_the_rest_to_the_parent,
    a_child_that_returns_on_a_thread_of_ours_waits_for_no_lock,
    a_log_of_the_parent_s_counts_in_the_child_what_it_drops_and_waits_for_nobody,
    fork_and_exec_leaks_no_descriptor,
    the_parent_goes_on_while_children_come_and_go,
    a_group_in_the_child_is_refused_and_its_drop_does_nothing,
    fork_while_loops_that_keep_warm_come_and_go,
    fork_while_another_thread_holds_the_memberships_of_a_shared_listener,
    fork_while_another_thread_begins_and_ends_to_watch_for_signals,
    fork_while_threads_of_ours_begin_and_end,
    a_server_in_the_child_is_refused_and_its_drop_does_nothing,
    a_child_of_a_turn_says_nothing_to_the_other_workers,
    a_server_that_is_killed_while_it_drains_leaves_a_shared_listener_usable,
    a_fork_while_a_server_drains_copies_a_listener_that_hears,
}

fn is_refused<T>(result: std::io::Result<T>) {
    let error = result.err().expect("it is refused").to_string();
    assert!(error.contains("fork") && error.contains("build a new loop in the child"), "{error}");
}

fn handle_is_refused(handle: &LoopHandle) {
    let cargo = Arc::new(());
    let held = cargo.clone();
    let back = handle.post(move || drop(held)).expect_err("run is refused");
    assert!(matches!(back, SendError::WrongProcess(_)) && back.to_string().contains("child"));
    assert_eq!(Arc::strong_count(&cargo), 2, "the closure comes back");
    back.into_inner()();
    assert_eq!(Arc::strong_count(&cargo), 1, "and may be called");
    let back = handle.spawn(|| async {}).expect_err("spawn is refused");
    assert!(matches!(back, SendError::WrongProcess(_)));
    let refused = handle.post_and_wait(|| ()).expect_err("post_and_wait is refused");
    assert!(matches!(refused, PostAndWaitError::WrongProcess | PostAndWaitError::OwnThread));
    handle.wake();
    handle.stop();
}

/// An echo on the loop, and its other end.
fn echo(event_loop: &EventLoop) -> StdUnixStream {
    let (peer, socket) = StdUnixStream::pair().unwrap();
    peer.set_read_timeout(Some(LONG)).unwrap();
    let serve = async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        let mut buf = [0; 16];
        loop {
            let read = socket.read(&mut buf).await.unwrap();
            if read == 0 {
                break;
            }
            socket.write_all(&buf[..read]).await.unwrap();
        }
    };
    event_loop.spawn(serve).detach();
    peer
}

/// The echo answers, on a loop that runs on this thread.
fn answers(event_loop: &mut EventLoop, peer: &mut StdUnixStream) {
    peer.write_all(b"x").unwrap();
    peer.set_nonblocking(true).unwrap();
    let mut byte = [0];
    for _ in 0..10 {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
        if matches!(peer.read(&mut byte), Ok(1)) {
            peer.set_nonblocking(false).unwrap();
            return;
        }
    }
    panic!("no answer within ten turns");
}

fn asks(peer: &mut StdUnixStream) {
    peer.write_all(b"x").unwrap();
    peer.read_exact(&mut [0]).unwrap();
}

fn fork_before_run<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let mut peer = echo(&event_loop);
    let timer = event_loop.spawn(wakeful::time::sleep(Duration::from_millis(1)));
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    in_child(|| {
        is_refused(event_loop.run());
        is_refused(event_loop.block_on(async {}));
        is_refused(event_loop.turn(Some(Duration::ZERO)));
        is_refused(event_loop.prepare_to_park());
    });
    event_loop.block_on(timer).unwrap().unwrap();
    answers(&mut event_loop, &mut peer);
    // Built before the fork and used first after it: the parent's own use is none of the child's
    // business.
    let (sender, stopped) = (event_loop.handle(), event_loop.handle());
    thread::spawn(move || sender.post(move || stopped.stop()).unwrap());
    event_loop.run().unwrap();
}

fn fork_while_the_loop_runs_on_another_thread<B: Backend>() {
    let _one = one_at_a_time();
    let background = Background::start(B::builder(), |event_loop| {
        event_loop.spawn(wakeful::time::sleep(Duration::from_secs(3600)))
    });
    let handle = background.handle();
    let turns = || {
        let counted = handle.clone();
        let turns = handle.post_and_wait(move || counted.metrics().turns).unwrap();
        until_asleep(handle);
        turns
    };
    let before = turns();
    // Asleep, as it is in the child's copy of its memory: a child that took that for its own would
    // ring the parent's bell.
    in_child(|| {
        handle_is_refused(handle);
        drop(handle.clone());
    });
    assert_eq!(turns(), before + 1, "the child's wake and stop have not come here");
    let task = handle.spawn(|| wakeful::time::sleep(Duration::from_micros(100))).unwrap();
    futures_lite::future::block_on(task).unwrap();
    background.end();
}

fn fork_within_a_turn_ends_the_child_s_run_with_an_error<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let mut peer = echo(&event_loop);
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    let child = Rc::new(Cell::new(-1));
    let copied = child.clone();
    let forks = event_loop.spawn(async move {
        wakeful::task::yield_now().await;
        copied.set(fork());
        wakeful::LoopHandle::current().stop();
        wakeful::task::yield_now().await;
    });
    let ran = event_loop.run();
    if child.get() == 0 {
        // The turn went on to its end, and then the kernel would have been asked.
        report(&theirs, move || {
            is_refused(ran);
            drop(event_loop);
        });
    }
    ran.unwrap();
    verdict(child.get(), ours, theirs);
    event_loop.block_on(forks).unwrap().unwrap();
    answers(&mut event_loop, &mut peer);
}

fn a_fork_within_a_hook_takes_no_event_from_the_parent<B: Backend>() {
    let _one = one_at_a_time();
    for is_driven in [false, true] {
        let mut event_loop = B::event_loop();
        let (mut socket, peer) = event_loop
            .block_on(async {
                let (ours, theirs) = StdUnixStream::pair().unwrap();
                ours.set_nonblocking(true).unwrap();
                (UnixStream::from_std(ours).unwrap(), theirs)
            })
            .unwrap();
        let read = event_loop.spawn(async move { socket.read(&mut [0; 1]).await });
        event_loop.turn(Some(Duration::ZERO)).unwrap();
        let hook = ForkingHook::add(&event_loop, peer);
        let ran = match is_driven {
            true => event_loop.prepare_to_park().map(drop),
            false => event_loop.turn(Some(LONG)),
        };
        hook.in_parent(ran);
        let read = event_loop.block_on(async { wakeful::time::timeout(LONG, read).await });
        assert_eq!(read.unwrap().expect("the event is the parent's").unwrap().unwrap(), 1);
    }
}

/// In the place where each of them forks, all hooks that come after it write what was gathered
/// before. The child must not write it, too.
fn a_child_of_a_turn_ends_it_without_callbacks_and_hooks<B: Backend>() {
    let _one = one_at_a_time();
    let parent = std::process::id();
    for place in ["task", "this turn", "next turn", "before park", "after turn"] {
        let mut event_loop = B::event_loop();
        let (ours, mut peer) = StdUnixStream::pair().unwrap();
        let gathered = Rc::new(RefCell::new(Vec::new()));
        let status = Rc::new(Cell::new(None));
        let forks = {
            let (gathered, status) = (gathered.clone(), status.clone());
            move || {
                if status.get().is_none() {
                    gathered.borrow_mut().push(b'x');
                    status.set(Some(0));
                    status.set(Some(fork_and_wait()));
                }
            }
        };
        let ours = Rc::new(ours);
        let writes = || {
            let (gathered, ours) = (gathered.clone(), ours.clone());
            move || (&*ours).write_all(&gathered.take()).unwrap()
        };
        let mut hooks = Vec::new();
        match place {
            "task" => event_loop.spawn(async move { forks() }).detach(),
            "this turn" => event_loop.run_this_turn(forks),
            "next turn" => event_loop.run_next_turn(forks),
            "before park" => hooks.push(event_loop.before_park(forks)),
            _ => hooks.push(event_loop.after_turn(forks)),
        }
        hooks.push(event_loop.before_park(writes()));
        hooks.push(event_loop.after_turn(writes()));
        let later = writes();
        event_loop.spawn(async move { later() }).detach();
        event_loop.run_this_turn(writes());
        event_loop.run_next_turn(writes());
        let mut ran = Ok(());
        while ran.is_ok() && status.get().is_none() {
            ran = event_loop.turn(Some(Duration::from_millis(1)));
        }
        if std::process::id() != parent {
            // SAFETY: the child ends here, without running what its parent has registered.
            unsafe { libc::_exit(ran.is_ok().into()) };
        }
        ran.unwrap();
        assert_eq!(status.get(), Some(0), "{place}: the child's turn is an error");
        event_loop.turn(Some(Duration::ZERO)).unwrap();
        drop((hooks, event_loop, ours));
        let mut written = String::new();
        peer.read_to_string(&mut written).unwrap();
        assert_eq!(written, "x", "{place}");
    }
}

fn use_of_every_kind_in_the_child_is_refused<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let mut peer = echo(&event_loop);
    let pair = async { wakeful::net::UnixStream::pair().unwrap() };
    let (socket, _other) = event_loop.block_on(pair).unwrap();
    // The permission to park is inherited too, and is none.
    while !event_loop.prepare_to_park().unwrap() || is_readable(&event_loop) {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    in_child_with(&mut event_loop, |mut event_loop| {
        handle_is_refused(&handle);
        is_refused(socket.set_priority(wakeful::Priority::High));
        // Work that is queued where it never runs is neither run nor dropped.
        let cargo = Arc::new(());
        let held = cargo.clone();
        event_loop.run_next_turn(move || drop(held));
        let held = cargo.clone();
        event_loop.run_this_turn(move || drop(held));
        let held = cargo.clone();
        let task = event_loop.spawn(async move { drop(held) });
        is_refused(event_loop.prepare_to_park());
        is_refused(event_loop.turn(None));
        is_refused(event_loop.run());
        assert_eq!(Arc::strong_count(&cargo), 4);
        drop(event_loop);
        assert_eq!(Arc::strong_count(&cargo), 4);
        assert!(task.is_finished());
    });
    assert!(!is_readable(&event_loop), "the child has not rung");
    answers(&mut event_loop, &mut peer);
}

fn is_readable(event_loop: &EventLoop) -> bool {
    let mut fds = [rustix::event::PollFd::new(event_loop, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() > 0
}

fn use_in_a_child_of_a_bare_clone_is_refused<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    in_child_of(bare_clone, || {
        is_refused(event_loop.run());
        is_refused(event_loop.block_on(async {}));
    });
    assert_eq!(event_loop.block_on(async { 42 }).unwrap(), 42);
}

fn drop_in_the_child_leaves_the_parent_s_sockets_alive<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let mut peers: Vec<_> = (0..10).map(|_| echo(&event_loop)).collect();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let accepting = event_loop.spawn(async move {
        let listener = wakeful::net::TcpListener::from_std(listener).unwrap();
        listener.accept().await.unwrap().1
    });
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    peers.iter_mut().for_each(|peer| answers(&mut event_loop, peer));
    for _ in 0..3 {
        in_child_with(&mut event_loop, drop);
        peers.iter_mut().for_each(|peer| answers(&mut event_loop, peer));
    }
    let client = std::net::TcpStream::connect(addr).unwrap();
    let from = event_loop.block_on(accepting).unwrap().unwrap();
    assert_eq!(from, client.local_addr().unwrap());
    // And what the parent closes is closed, although children had copies of it.
    drop(event_loop);
    for mut peer in peers {
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}

/// Takes a lock in its drop.
struct Locks(Arc<Mutex<()>>);

impl Drop for Locks {
    fn drop(&mut self) {
        drop(self.0.lock().unwrap());
    }
}

/// Calls `f` while another thread has the lock.
fn while_it_is_locked(lock: &Arc<Mutex<()>>, f: impl FnOnce()) {
    let lock = lock.clone();
    let (is_locked, locked) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let holder = thread::spawn(move || {
        let _held = lock.lock().unwrap();
        is_locked.send(()).unwrap();
        assert!(released.recv().is_err());
    });
    locked.recv().unwrap();
    f();
    drop(release);
    holder.join().unwrap();
}

/// A task owns what takes a lock in its drop, and another thread has the lock during the fork.
fn drop_in_the_child_waits_for_no_lock_of_a_task<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let lock = Arc::new(Mutex::new(()));
    let locks = Locks(lock.clone());
    let mut task = event_loop.spawn(async move {
        std::future::pending::<()>().await;
        drop(locks);
    });
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    while_it_is_locked(&lock, || {
        in_child_with(&mut event_loop, |event_loop| {
            drop(event_loop);
            assert!(B::block_on(&mut task).unwrap_err().is_cancelled());
        });
    });
    assert!(!task.is_finished());
    drop(event_loop);
    assert!(task.is_finished());
}

/// So do callbacks, hooks, posted closures, and tasks that have not begun.
fn drop_in_the_child_waits_for_no_lock_of_what_has_not_run<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let lock = Arc::new(Mutex::new(()));
    let owns = || {
        let locks = Locks(lock.clone());
        move || _ = &locks
    };
    let hooks = [event_loop.before_park(owns()), event_loop.after_turn(owns())];
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    event_loop.run_next_turn(owns());
    event_loop.run_this_turn(owns());
    event_loop.handle().post(owns()).unwrap();
    // Neither begins.
    let (of_one, of_the_other) = (Locks(lock.clone()), Locks(lock.clone()));
    let mut tasks = [
        event_loop.spawn(async move { drop(of_one) }),
        event_loop.handle().spawn(move || async move { drop(of_the_other) }).unwrap(),
    ];
    let mut owned = (event_loop, hooks);
    while_it_is_locked(&lock, || {
        in_child_with(&mut owned, |(event_loop, _hooks)| {
            drop(event_loop);
            for task in &mut tasks {
                assert!(B::block_on(task).unwrap_err().is_cancelled());
            }
        });
    });
}

/// While the child lives: it holds no copy that keeps a connection of the parent's open.
fn drop_in_the_child_closes_its_copies_of_connections<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let mut peer = echo(&event_loop);
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    let (until, mut told) = StdUnixStream::pair().unwrap();
    let (mut dropped, mut is_dropped) = StdUnixStream::pair().unwrap();
    match child::fork() {
        0 => report(&theirs, || {
            drop((until, event_loop, is_dropped));
            dropped.write_all(b"x").unwrap();
            assert_eq!(told.read(&mut [0]).unwrap(), 0);
        }),
        child => {
            drop(dropped);
            is_dropped.read_exact(&mut [0]).unwrap();
            answers(&mut event_loop, &mut peer);
            drop(event_loop);
            assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the last copy is closed");
            drop(until);
            verdict(child, ours, theirs);
        }
    }
}

/// The descriptor that an `AsyncFd` watches may belong to other code.
fn drop_in_the_child_keeps_what_was_only_watched<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let watched = event_loop.block_on(async { AsyncFd::new(&socket) }).unwrap().unwrap();
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    match child::fork() {
        0 => report(&theirs, || {
            drop(event_loop);
            drop(watched);
            (&socket).write_all(b"child").expect("it is the child's still");
        }),
        child => {
            let mut word = [0; 5];
            peer.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"child");
            verdict(child, ours, theirs);
            peer.write_all(b"x").unwrap();
            event_loop.block_on(async { watched.readable().await.map(drop) }).unwrap().unwrap();
        }
    }
}

/// A handler does this if it forks, and returns in the child, too.
fn drop_in_the_child_ends_no_half_of_a_connection<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let split = async { UnixStream::from_std(socket).unwrap().into_split() };
    let mut halves = event_loop.block_on(split).unwrap();
    in_child_with(&mut halves, drop);
    let (_read, mut write) = halves;
    event_loop.block_on(async { write.write_all(b"x").await }).unwrap().unwrap();
    peer.read_exact(&mut [0]).unwrap();
    drop(write);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0, "in the parent, its drop is the end");
}

/// The child has copies of what the parent closes, and holds them until it is told.
fn a_copy_in_the_child_that_outlives_ours_does_not_make_the_loop_spin<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let shared = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = shared.socket_addr().unwrap();
    let on_loop = async { (UnixStream::from_std(socket).unwrap(), shared.attach().unwrap()) };
    let (stream, listener) = event_loop.block_on(on_loop).unwrap();
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    let (until, mut told) = StdUnixStream::pair().unwrap();
    match child::fork() {
        0 => report(&theirs, || {
            drop(until);
            assert_eq!(told.read(&mut [0]).unwrap(), 0);
        }),
        child => {
            drop((stream, listener, shared));
            for _ in 0..5 {
                peer.write_all(b"to the child's copy").expect("which is there");
                let client = std::net::TcpStream::connect(addr).expect("that too");
                assert!(!would_wake(&mut event_loop));
                drop(client);
            }
            drop(until);
            verdict(child, ours, theirs);
        }
    }
}

/// Timers, sockets, posts of another thread, callbacks: on a loop that the calling process builds.
fn a_loop_works<B: Backend>() {
    let mut event_loop = B::event_loop();
    let mut peer = echo(&event_loop);
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    answers(&mut event_loop, &mut peer);
    let handle = event_loop.handle();
    let posted = event_loop
        .block_on(async move {
            wakeful::time::sleep(Duration::from_micros(200)).await;
            let (send, receive) = async_channel::bounded(1);
            let poster = thread::spawn(move || handle.post(move || send.try_send(42).unwrap()));
            let posted = receive.recv().await.unwrap();
            poster.join().unwrap().unwrap();
            posted
        })
        .unwrap();
    assert_eq!(posted, 42);
}

fn a_new_loop_in_the_child_works<B: Backend>() {
    let _one = one_at_a_time();
    // With a loop of the parent's at hand, and with one that is dropped before.
    let mut event_loop = B::event_loop();
    let mut peer = echo(&event_loop);
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    in_child(a_loop_works::<B>);
    in_child_with(&mut event_loop, |inherited| {
        drop(inherited);
        a_loop_works::<B>();
    });
    // The new loop may be older than the inherited one's end.
    in_child_with(&mut event_loop, |inherited| {
        let mut new = B::event_loop();
        drop(inherited);
        assert_eq!(
            new.block_on(async { wakeful::spawn(async { 42 }).await.unwrap() }).unwrap(),
            42
        );
    });
    answers(&mut event_loop, &mut peer);
    a_loop_works::<B>();
}

fn a_new_loop_in_a_child_of_a_turn_and_in_a_grandchild_works<B: Backend>() {
    let _one = one_at_a_time();
    B::block_on(async {
        in_child(|| {
            a_loop_works::<B>();
            let mut event_loop = B::event_loop();
            // The child's own child: the child's loop is refused there as the parent's is here.
            in_child_with(&mut event_loop, |mut inherited| {
                is_refused(inherited.run());
                drop(inherited);
                a_loop_works::<B>();
            });
            assert_eq!(event_loop.block_on(async { 42 }).unwrap(), 42);
        });
        wakeful::time::sleep(Duration::from_micros(100)).await;
    });
}

fn a_value_of_the_parent_s_loop_is_refused_in_the_child_and_a_new_loop_makes_its_own<B: Backend>() {
    let _one = one_at_a_time();
    struct Value(Rc<Cell<u32>>);
    impl Drop for Value {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    thread_local! {
        static DROPPED: Rc<Cell<u32>> = Rc::default();
    }
    let dropped = || DROPPED.with(|dropped| dropped.get());
    let values = PerLoop::new(|| Value(DROPPED.with(Rc::clone)));
    let mut event_loop = B::event_loop();
    event_loop
        .block_on(async {
            values.with(|_| ());
            // Within a turn, so that the parent's loop is the current one of the child, too.
            in_child(|| {
                assert_eq!(values.try_with(|_| ()), Err(PerLoopError::WrongProcess));
                B::block_on(async { values.with(|_| ()) });
                assert_eq!(dropped(), 1, "with the child's loop");
                B::block_on(async { values.with(|_| drop(values.clone())) });
                assert_eq!(dropped(), 2);
            });
        })
        .unwrap();
    in_child_with(&mut event_loop, |inherited| {
        drop(inherited);
        assert_eq!(dropped(), 0, "never in the child");
    });
    assert_eq!(dropped(), 0);
    drop(event_loop);
    assert_eq!(dropped(), 1);
}

fn a_waker_in_the_child_does_not_wake_the_parent<B: Backend>() {
    let _one = one_at_a_time();
    let wakers: Arc<Mutex<Vec<Waker>>> = Arc::default();
    let polls = Arc::new(Mutex::new(0));
    let (kept, counted) = (wakers.clone(), polls.clone());
    let background = Background::start(B::builder(), move |event_loop| {
        event_loop.spawn(poll_fn(move |cx| {
            kept.lock().unwrap().push(cx.waker().clone());
            *counted.lock().unwrap() += 1;
            Poll::<()>::Pending
        }))
    });
    let handle = background.handle();
    handle.post_and_wait(|| ()).unwrap();
    until_asleep(handle);
    let turns = handle.metrics().turns;
    in_child(|| {
        for waker in &*wakers.lock().unwrap() {
            waker.wake_by_ref();
        }
        wakers.lock().unwrap().clear();
    });
    let counted = handle.clone();
    let now = handle.post_and_wait(move || counted.metrics().turns).unwrap();
    assert_eq!(
        (now, *polls.lock().unwrap()),
        (turns, 1),
        "the turn that slept is the one that answers"
    );
    // In the parent the same waker works.
    wakers.lock().unwrap()[0].wake_by_ref();
    handle.post_and_wait(|| ()).unwrap();
    assert_eq!(*polls.lock().unwrap(), 2);
    background.end();
}

/// The handler is inherited, and with it its way to the parent's loop.
fn a_signal_to_the_child_is_not_the_parent_s<B: Backend>() {
    let _one = one_at_a_time();
    let mut event_loop = B::event_loop();
    let received = Rc::new(Cell::new(0));
    let count = received.clone();
    let watch = event_loop.spawn(async move {
        let mut signals = wakeful::signal::Signals::new(&[libc::SIGUSR2]).unwrap();
        while signals.recv().await.is_ok() {
            count.set(count.get() + 1);
        }
    });
    let turns = |event_loop: &mut EventLoop| {
        for _ in 0..5 {
            event_loop.turn(Some(Duration::ZERO)).unwrap();
        }
    };
    turns(&mut event_loop);
    in_child(|| {
        signal_hook::low_level::raise(libc::SIGUSR2).unwrap();
        // A stream of the child's own gets the child's.
        B::block_on(async {
            let mut signals = wakeful::signal::Signals::new(&[libc::SIGUSR2]).unwrap();
            signal_hook::low_level::raise(libc::SIGUSR2).unwrap();
            assert_eq!(signals.recv().await.unwrap(), libc::SIGUSR2);
        });
    });
    turns(&mut event_loop);
    assert_eq!(received.get(), 0, "the child's signals");
    signal_hook::low_level::raise(libc::SIGUSR2).unwrap();
    turns(&mut event_loop);
    assert_eq!(received.get(), 1, "the parent's own");
    drop(watch);
}

/// The child has none of its parent's threads, but a copy of what its parent knows of them.
fn the_blocking_pool_of_the_child_is_its_own<B: Backend>() {
    let _one = one_at_a_time();
    let on_the_pool = || B::block_on(async { wakeful::task::spawn_blocking(|| 42).await });
    assert_eq!(on_the_pool().unwrap(), 42);
    let (hold, held) = mpsc::channel::<()>();
    let mut of_the_parent = wakeful::task::spawn_blocking(move || held.recv().is_err());
    in_child(|| {
        assert_eq!(on_the_pool().unwrap(), 42);
        // Of what needs the pool, too.
        B::block_on(wakeful::net::resolve("localhost:1")).unwrap();
        let error = B::block_on(&mut of_the_parent).unwrap_err();
        assert!(error.is_cancelled(), "nobody in the child runs what the parent began");
        a_loop_works::<B>();
    });
    in_child_of(bare_clone, || {
        assert_eq!(on_the_pool().unwrap(), 42);
        a_loop_works::<B>();
    });
    drop(hold);
    assert!(B::block_on(of_the_parent).unwrap());
    assert_eq!(on_the_pool().unwrap(), 42);
}

fn a_directory_that_a_child_without_threads_reads_on_is_an_error_and_no_end<B: Backend>() {
    let _one = one_at_a_time();
    let path = std::env::temp_dir().join(format!("wakeful-fork-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    for number in 0..200 {
        std::fs::write(path.join(number.to_string()), "").unwrap();
    }
    let mut entries = B::block_on(wakeful::fs::read_dir(&path)).unwrap();
    in_child(|| {
        for call in [libc::SYS_clone3, libc::SYS_clone] {
            if let Err(error) = refused::refuse(call) {
                return eprintln!("skipped: no filter can be set: {error}");
            }
        }
        let mut next = || futures_lite::future::block_on(entries.next_entry());
        let mut errors = 0;
        while errors < 3 {
            match next() {
                Ok(entry) => assert!(entry.is_some(), "an end after {errors} errors"),
                Err(_) => errors += 1,
            }
        }
    });
    let all = std::iter::from_fn(|| B::block_on(entries.next_entry()).unwrap());
    assert_eq!(all.count(), 200);
    std::fs::remove_dir_all(path).unwrap();
}

fn a_child_that_returns_from_blocking_work_ends<B: Backend>() {
    let _one = one_at_a_time();
    let forks = || {
        let child = fork();
        if child == 0 {
            // SAFETY: no memory is involved. One that continues is killed.
            unsafe { libc::alarm(30) };
        }
        child
    };
    let child = B::block_on(async { wakeful::task::spawn_blocking(forks).await.unwrap() });
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "it ended by itself");
    // The same if it had a loop, whose pool has a thread.
    let with_a_loop = move || {
        let child = forks();
        if child == 0 {
            B::block_on(async { wakeful::task::spawn_blocking(|| ()).await.unwrap() });
        }
        child
    };
    let child = B::block_on(async { wakeful::task::spawn_blocking(with_a_loop).await.unwrap() });
    assert!(child > 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "it ended by itself, though it had a pool");
    // The same on a group's loop, which it cannot use any more, with work that nobody awaits.
    let group = B::group().loops(1).build().unwrap();
    let on_loop = move || async move {
        let child = forks();
        if child == 0 {
            wakeful::task::spawn_blocking(|| ()).detach();
        }
        child
    };
    let child = B::block_on(group.handles()[0].spawn(on_loop).unwrap()).unwrap();
    assert!(child > 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "it ended by itself, though it had a pool");
    group.shutdown(LONG).unwrap();
    // The parent's pool continues.
    assert_eq!(B::block_on(async { wakeful::task::spawn_blocking(|| 42).await }).unwrap(), 42);
}

/// Neither for one of the standard library, which the end of a thread takes, nor for that of a
/// destructor, which is to show it.
fn a_child_that_returns_on_a_thread_of_ours_waits_for_no_lock<B: Backend>() {
    struct Locks(Arc<Mutex<()>>);
    impl Drop for Locks {
        fn drop(&mut self) {
            drop(self.0.lock().unwrap());
        }
    }
    thread_local! {
        static AT_THE_END: Cell<Option<Locks>> = const { Cell::new(None) };
    }
    let _one = one_at_a_time();
    let lock = Arc::new(Mutex::new(()));
    let (locks, held) = (lock.clone(), lock.lock().unwrap());
    let forks = move || {
        AT_THE_END.set(Some(Locks(locks.clone())));
        let child = fork();
        if child == 0 {
            // One that continues is killed, which threads of the pool would put off.
            wakeful::signal::unblock(&[libc::SIGALRM]).unwrap();
            // SAFETY: no memory is involved.
            unsafe { libc::alarm(10) };
        }
        child
    };
    let group = B::group().loops(1).build().unwrap();
    let on_loop = forks.clone();
    let of_loop = group.handles()[0].spawn(move || async move { on_loop() }).unwrap();
    let of_pool = wakeful::task::spawn_blocking(forks);
    let children = B::block_on(async { [of_loop.await.unwrap(), of_pool.await.unwrap()] });
    let statuses = children.map(|child| {
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: our own child, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    });
    // The parent's threads take it at their end.
    drop(held);
    group.shutdown(LONG).unwrap();
    assert_eq!(statuses, [0, 0], "each ended by itself");
}

fn a_log_of_the_parent_s_counts_in_the_child_what_it_drops_and_waits_for_nobody<B: Backend>() {
    let _one = one_at_a_time();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let of_child = writer.try_clone().unwrap();
    let mut log = LossyWriter::new(writer);
    log.write_all(b"of the parent\n").unwrap();
    assert!(log.flush_within(LONG));
    in_child_with(&mut log, |mut log| {
        log.write_all(b"lost\n").unwrap();
        log.write_lines_within(b"lost\n".to_vec(), 1, Duration::MAX);
        log.wake();
        assert!(!log.flush_within(Duration::MAX));
        assert_eq!((log.written(), log.dropped()), (1, 2));
        drop(log);
        let mut own = LossyWriter::new(of_child);
        own.write_all(b"of the child\n").unwrap();
        assert!(own.flush_within(LONG));
    });
    log.write_all(b"of the parent\n").unwrap();
    assert!(log.flush_within(LONG));
    assert_eq!((log.written(), log.dropped()), (2, 0));
    drop(log);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "of the parent\nof the child\nof the parent\n");
}

fn fork_and_exec_leaks_no_descriptor<B: Backend>() {
    let _one = one_at_a_time();
    /// Descriptors of a fresh program, but for its three standard ones.
    fn of_a_program() -> BTreeSet<String> {
        let listed = Command::new("ls").arg("/proc/self/fd").output().expect("ls exists");
        let text = String::from_utf8(listed.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    }
    let before = of_a_program();
    let mut event_loop = B::event_loop();
    let mut peer = echo(&event_loop);
    let timer = event_loop.spawn(wakeful::time::sleep(Duration::from_secs(3600)));
    let kept = event_loop
        .block_on(async {
            let listener = wakeful::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let client = wakeful::net::TcpStream::connect(addr).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let signals = wakeful::signal::Signals::new(&[libc::SIGUSR2]).unwrap();
            let datagrams = wakeful::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let pair = UnixStream::pair().unwrap();
            (listener, client, accepted, signals, datagrams, pair)
        })
        .unwrap();
    while !event_loop.prepare_to_park().unwrap() {
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    let ours = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(ours > before.len() + 10, "there is something to leak: {ours}");
    assert_eq!(of_a_program(), before);
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    answers(&mut event_loop, &mut peer);
    drop((kept, timer));
}

fn fork_while_loops_that_keep_warm_come_and_go<B: Backend>() {
    let _one = one_at_a_time();
    let build = || B::builder().idle(IdlePolicy::KeepWarm).build().unwrap();
    let mut inherited = build();
    let (stop, stopped) = mpsc::channel::<()>();
    let others = thread::spawn(move || {
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            drop(build());
        }
    });
    for _ in 0..5 {
        in_child_with(&mut inherited, |inherited| {
            let own = build();
            drop(inherited);
            drop(own);
        });
    }
    drop(stop);
    others.join().unwrap();
}

/// The child watches for signals itself, and waits for no lock of a thread that it lacks.
fn fork_while_another_thread_begins_and_ends_to_watch_for_signals<B: Backend>() {
    let _one = one_at_a_time();
    let watch = || drop(wakeful::signal::Signals::new(&[libc::SIGUSR2]).unwrap());
    let (stop, stopped) = mpsc::channel::<()>();
    let others = thread::spawn(move || {
        B::block_on(async {
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                watch();
            }
        });
    });
    for _ in 0..50 {
        in_child(|| B::block_on(async { watch() }));
    }
    drop(stop);
    others.join().unwrap();
}

/// The standard library takes a lock when a thread begins and when it ends. The child starts
/// threads itself, and they wait for no thread that it lacks.
fn fork_while_threads_of_ours_begin_and_end<B: Backend>() {
    let _one = one_at_a_time();
    let stop = AtomicBool::new(false);
    let group = || wakeful::LoopGroup::builder().loops(4).event_loop(B::builder()).build().unwrap();
    let come_and_go = || {
        while !stop.load(Ordering::Relaxed) {
            drop(group());
        }
    };
    thread::scope(|scope| {
        scope.spawn(come_and_go);
        scope.spawn(come_and_go);
        // A failure must not make the scope wait for ever.
        let forks = std::panic::catch_unwind(|| {
            for _ in 0..1_500 {
                in_child(|| {
                    let on_the_pool = wakeful::task::spawn_blocking(|| 42);
                    assert_eq!(B::block_on(on_the_pool).unwrap(), 42);
                });
            }
        });
        stop.store(true, Ordering::Relaxed);
        forks.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
    });
}

/// The child has its copy of a lock that another thread held, and not the thread.
fn fork_while_another_thread_holds_the_memberships_of_a_shared_listener<B: Backend>() {
    let _one = one_at_a_time();
    let shared = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let accepts = |shared: SharedListener| async move {
        let listener = shared.attach().unwrap();
        listener.accept().await.map(|(_, peer)| peer)
    };
    let mut event_loop = B::event_loop();
    let accepting = event_loop.spawn(accepts(shared.clone()));
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let attached = shared.clone();
    let others = thread::spawn(move || {
        let mut event_loop = B::event_loop();
        event_loop
            .block_on(async {
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    drop(attached.attach().unwrap());
                }
            })
            .unwrap();
    });
    for round in 0..100 {
        in_child_with(&mut event_loop, |event_loop| {
            drop(event_loop);
            // A loop of the child's own accepts from it.
            if round % 10 == 0 {
                let mut event_loop = B::event_loop();
                let accepting = event_loop.spawn(accepts(shared.clone()));
                event_loop.turn(Some(Duration::ZERO)).unwrap();
                drop(accepting);
            }
        });
    }
    drop(stop);
    others.join().unwrap();
    let client = std::net::TcpStream::connect(shared.socket_addr().unwrap()).unwrap();
    let peer = event_loop.block_on(accepting).unwrap().unwrap().unwrap();
    assert_eq!(peer.to_string(), client.local_addr().unwrap().to_string());
}

fn a_server_in_the_child_is_refused_and_its_drop_does_nothing<B: Backend>() {
    let _one = one_at_a_time();
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.socket_addr().unwrap();
    let mut serving = ConnectionServer::new(vec![listener])
        .group(B::group().loops(2))
        .start(|| {
            async |mut connection| {
                let mut buf = [0; 1];
                connection.stream.read(&mut buf).await.unwrap();
                connection.stream.write_all(&buf).await.unwrap();
            }
        })
        .unwrap();
    let asks = || {
        let mut client = std::net::TcpStream::connect(addr).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    };
    asks();
    in_child_with(&mut serving, drop);
    asks();
    in_child_with(&mut serving, |serving| {
        // Longer than the child may live.
        let error = serving.shutdown(Duration::from_secs(3600)).unwrap_err().to_string();
        assert!(error.contains("fork"), "{error}");
    });
    asks();
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

/// The workers of a master share a page, and an alarm. A handler forks, and when its parent sleeps,
/// the child goes on to the end of its turn.
fn a_child_of_a_turn_says_nothing_to_the_other_workers<B: Backend>() {
    let _one = one_at_a_time();
    let (lifeline, _master) = rustix::pipe::pipe().unwrap();
    let siblings = Siblings::new(1, lifeline).unwrap();
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.socket_addr().unwrap();
    let (mut goes_on, told) = StdUnixStream::pair().unwrap();
    let (send, forked) = mpsc::channel();
    let told = Arc::new(told);
    let make = move || {
        let (told, send) = (told.clone(), send.clone());
        move |mut connection: Connection| {
            let (told, send) = (told.clone(), send.clone());
            async move {
                connection.stream.read(&mut [0]).await.unwrap();
                match fork() {
                    0 => (&*told).read_exact(&mut [0]).unwrap(),
                    child => send.send(child).unwrap(),
                }
            }
        }
    };
    let group = B::group().loops(1).sibling(siblings.join());
    let serving = ConnectionServer::new(vec![listener]).group(group).start(make).unwrap();
    let mut client = std::net::TcpStream::connect(addr).unwrap();
    client.write_all(b"x").unwrap();
    let child = rustix::process::Pid::from_raw(forked.recv_timeout(LONG).unwrap());
    until_asleep(&serving.handles()[0]);
    let since = std::time::Instant::now();
    while is_a_timer_set() {
        assert!(since.elapsed() < LONG, "in silence none is set");
        thread::yield_now();
    }
    goes_on.write_all(b"x").unwrap();
    rustix::process::waitpid(child, rustix::process::WaitOptions::empty()).unwrap();
    assert!(!is_a_timer_set(), "it would wake a worker in vain");
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}

/// Is one of this process's timerfds set?
fn is_a_timer_set() -> bool {
    let all = std::fs::read_dir("/proc/self/fdinfo").expect("/proc is there").flatten();
    let mut texts = all.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let set = |text: String| text.contains("it_value:") && !text.contains("it_value: (0, 0)");
    texts.any(set)
}

fn the_parent_goes_on_while_children_come_and_go<B: Backend>() {
    let _one = one_at_a_time();
    let (send, receive) = mpsc::channel();
    let background = Background::start(B::builder(), move |event_loop| {
        for _ in 0..4 {
            send.send(echo(event_loop)).unwrap();
        }
    });
    let handle = background.handle();
    let peers: Vec<_> = (0..4).map(|_| receive.recv().unwrap()).collect();
    let clients: Vec<_> = peers
        .into_iter()
        .map(|mut peer| {
            let handle = handle.clone();
            thread::spawn(move || {
                for _ in 0..300 {
                    asks(&mut peer);
                    let timer = || wakeful::time::sleep(Duration::from_micros(50));
                    futures_lite::future::block_on(handle.spawn(timer).unwrap()).unwrap();
                }
            })
        })
        .collect();
    let mut children = 0;
    while children < 10 || !clients.iter().all(thread::JoinHandle::is_finished) {
        // Busy threads are where a fork finds locks held: only what needs none.
        let (ours, theirs) = StdUnixStream::pair().unwrap();
        match fork() {
            0 => {
                handle.wake();
                handle.stop();
                let _ = (&theirs).write_all(b"ok");
                // SAFETY: as in `report`.
                unsafe { libc::_exit(0) }
            }
            child => verdict(child, ours, theirs),
        }
        children += 1;
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
    background.end();
}

fn a_group_in_the_child_is_refused_and_its_drop_does_nothing<B: Backend>() {
    let _one = one_at_a_time();
    let mut group = B::group().loops(2).build().unwrap();
    for handle in group.handles() {
        handle.post_and_wait(|| ()).unwrap();
    }
    in_child_with(&mut group, |group| {
        group.handles().iter().for_each(handle_is_refused);
        drop(group);
        a_loop_works::<B>();
    });
    in_child_with(&mut group, |group| {
        let error = group.shutdown(Duration::from_secs(1)).unwrap_err().to_string();
        assert!(error.contains("fork"), "{error}");
    });
    for handle in group.handles() {
        handle.post_and_wait(|| ()).unwrap();
    }
    group.shutdown(LONG).unwrap();
}

/// Serves connections from `listener` until the first one has said something, and drains for longer
/// than the test takes. Its connections are told of the drain by a byte.
fn drain_for_ever<B: Backend>(listener: SharedListener) -> ! {
    let (began, has_begun) = mpsc::channel();
    let server = ConnectionServer::new(vec![listener]).group(B::group().loops(1));
    let serving = server.start(move || {
        let began = began.clone();
        move |mut connection: wakeful::accept::Connection| {
            let began = began.clone();
            async move {
                connection.stream.read(&mut [0; 1]).await.unwrap();
                began.send(()).unwrap();
                connection.draining.started().await;
                connection.stream.write_all(b"!").await.unwrap();
                std::future::pending::<()>().await;
            }
        }
    });
    let serving = serving.unwrap();
    has_begun.recv().unwrap();
    let _ = serving.shutdown(2 * LONG);
    // SAFETY: the child ends here, without running what its parent has registered for the end.
    unsafe { libc::_exit(1) }
}

fn a_server_that_is_killed_while_it_drains_leaves_a_shared_listener_usable<B: Backend>() {
    let _one = one_at_a_time();
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.socket_addr().unwrap();
    let child = fork();
    if child == 0 {
        drain_for_ever::<B>(listener);
    }
    assert!(child > 0);
    let mut client = std::net::TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(b"?").unwrap();
    let told = client.read_exact(&mut [0]);
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    unsafe {
        assert_eq!(libc::kill(child, libc::SIGKILL), 0);
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
    }
    told.expect("it drained when it was killed");
    let client = std::net::TcpStream::connect_timeout(&addr, LONG).expect("the listener hears");
    let (_, peer) = rustix::net::acceptfrom(&listener).unwrap();
    let peer: std::net::SocketAddr = peer.unwrap().try_into().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
}

fn a_fork_while_a_server_drains_copies_a_listener_that_hears<B: Backend>() {
    let _one = one_at_a_time();
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.socket_addr().unwrap();
    let server = ConnectionServer::new(vec![listener]).group(B::group().loops(1));
    let serving = server.start(|| async |_| ()).unwrap();
    // Its loop is held, so that the listener stays open.
    let (release, released) = mpsc::channel::<()>();
    let (held, is_held) = mpsc::channel();
    let hold = move || {
        held.send(()).unwrap();
        assert!(released.recv().is_err());
    };
    serving.handles()[0].post(hold).unwrap();
    is_held.recv().unwrap();
    let drained = thread::spawn(move || serving.shutdown(LONG).unwrap());
    let connect = |patience| std::net::TcpStream::connect_timeout(&addr, patience);
    let is_quiet = || match connect(Duration::from_millis(20)) {
        Ok(_) => false,
        Err(error) => error.kind() == std::io::ErrorKind::TimedOut,
    };
    while !is_quiet() {}
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    let (until, mut told) = StdUnixStream::pair().unwrap();
    match child::fork() {
        0 => report(&theirs, || {
            drop(until);
            assert_eq!(told.read(&mut [0]).unwrap(), 0);
        }),
        child => {
            drop(release);
            drained.join().unwrap();
            let connected = connect(LONG);
            drop(until);
            verdict(child, ours, theirs);
            connected.expect("the child's copy hears");
        }
    }
}
