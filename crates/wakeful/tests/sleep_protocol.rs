//! What a wake costs, counted through the public API: one write to the loop's eventfd for each post
//! that meets a sleep of which no ring is complete, and none while the loop is awake, whatever
//! keeps it awake.
//!
//! The loop never reads its eventfd, so the counter that the kernel shows in `/proc/self/fdinfo` is
//! the number of rings since the loop was built. Which descriptor it is, the fdinfo of the loop's
//! epoll says.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use wakeful::net::UnixStream;
use wakeful::{EventLoop, LoopHandle};

/// The number of the loop's eventfd, in this process.
fn eventfd_of(event_loop: &EventLoop) -> i32 {
    let epoll = event_loop.as_fd().as_raw_fd();
    let watched = std::fs::read_to_string(format!("/proc/self/fdinfo/{epoll}")).unwrap();
    let eventfds: Vec<_> = watched
        .lines()
        .filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok())
        .filter(|fd: &i32| {
            let target = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
            target.to_string_lossy().contains("[eventfd]")
        })
        .collect();
    assert_eq!(eventfds.len(), 1, "one bell: {watched}");
    eventfds[0]
}

fn rings(eventfd: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{eventfd}")).unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("eventfd-count:")).unwrap();
    u64::from_str_radix(count.trim(), 16).unwrap()
}

/// Until the loop's queue says that it sleeps.
fn wait_until_asleep(handle: &LoopHandle) {
    while !format!("{handle:?}").contains("asleep: true") {
        thread::yield_now();
    }
}

/// A loop on a thread of its own, with what `prepare` gave it. `scenario` gets its handle and its
/// eventfd.
fn with_loop<T>(
    prepare: impl FnOnce(&EventLoop) -> T + Send + 'static,
    scenario: impl FnOnce(&LoopHandle, i32),
) {
    let (ready, is_ready) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut event_loop = EventLoop::new().unwrap();
        let kept = prepare(&event_loop);
        ready.send((event_loop.handle(), eventfd_of(&event_loop))).unwrap();
        event_loop.run().unwrap();
        drop(kept);
    });
    let (handle, eventfd) = is_ready.recv().unwrap();
    scenario(&handle, eventfd);
    handle.stop();
    thread.join().unwrap();
}

#[test]
fn one_post_is_one_ring_for_each_sleep() {
    with_loop(
        |_| (),
        |handle, eventfd| {
            for posts in 1..=50 {
                wait_until_asleep(handle);
                assert_eq!(rings(eventfd), posts - 1);
                handle.post_and_wait(|| ()).unwrap();
                assert_eq!(rings(eventfd), posts);
            }
            assert_eq!(handle.metrics().remote, 50);
        },
    );
}

/// Like a post, it wakes whoever waits for the loop's descriptor.
#[test]
fn a_callback_of_the_own_thread_behind_the_permission_to_park_is_one_ring() {
    let mut event_loop = EventLoop::new().unwrap();
    let eventfd = eventfd_of(&event_loop);
    for permissions in 1..=50 {
        assert!(event_loop.prepare_to_park().unwrap());
        event_loop.run_next_turn(|| ());
        assert_eq!(rings(eventfd), permissions);
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
}

/// What met one sleep is taken in one turn, so the rings are at most those that came by then.
#[test]
fn concurrent_posts_to_a_sleeping_loop_ring_once_at_least_and_once_each_at_most() {
    const THREADS: u64 = 8;
    with_loop(
        |_| (),
        |handle, eventfd| {
            for _ in 0..50 {
                wait_until_asleep(handle);
                let before = (rings(eventfd), handle.metrics());
                thread::scope(|scope| {
                    for _ in 0..THREADS {
                        scope.spawn(|| handle.post_and_wait(|| ()).unwrap());
                    }
                });
                wait_until_asleep(handle);
                let after = (rings(eventfd), handle.metrics());
                assert_eq!(after.1.remote - before.1.remote, THREADS);
                assert!((1..=THREADS).contains(&(after.0 - before.0)));
            }
        },
    );
}

/// Tells the scenario that the loop is awake, and keeps it so until the scenario lets go.
fn stay_awake(here: &mpsc::Sender<()>, go: &mpsc::Receiver<()>) {
    here.send(()).unwrap();
    go.recv().unwrap();
}

/// Posts while the loop is held in user code: no ring, and all arrive without a park in between.
fn posts_while_awake(
    handle: &LoopHandle,
    eventfd: i32,
    is_awake: &mpsc::Receiver<()>,
    let_go: &mpsc::Sender<()>,
) {
    is_awake.recv().unwrap();
    let (before, parks) = (rings(eventfd), handle.metrics().parks);
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let (done, counted) = (done.clone(), handle.clone());
                    handle.post(move || done.send(counted.metrics().parks).unwrap()).unwrap();
                }
            });
        }
    });
    assert_eq!(rings(eventfd), before, "awake: no post rings");
    let_go.send(()).unwrap();
    for _ in 0..100 {
        assert_eq!(is_done.recv().unwrap(), parks, "no park before they have run");
    }
}

#[test]
fn posts_while_a_post_runs_ring_not() {
    with_loop(
        |_| (),
        |handle, eventfd| {
            let ((here, is_awake), (let_go, go)) = (mpsc::channel(), mpsc::channel());
            wait_until_asleep(handle);
            handle.post(move || stay_awake(&here, &go)).unwrap();
            posts_while_awake(handle, eventfd, &is_awake, &let_go);
            assert_eq!(rings(eventfd), 1, "the first one, which met a sleep");
        },
    );
}

#[test]
fn posts_while_an_io_handler_runs_ring_not() {
    let ((here, is_awake), (let_go, go)) = (mpsc::channel(), mpsc::channel());
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    with_loop(
        move |event_loop| {
            event_loop.spawn(async move {
                let mut socket = UnixStream::from_std(socket).unwrap();
                socket.read(&mut [0; 1]).await.unwrap();
                stay_awake(&here, &go);
            })
        },
        |handle, eventfd| {
            wait_until_asleep(handle);
            peer.write_all(b"x").unwrap();
            posts_while_awake(handle, eventfd, &is_awake, &let_go);
            assert_eq!(rings(eventfd), 0);
        },
    );
}

#[test]
fn posts_while_a_timer_s_task_runs_ring_not() {
    let ((here, is_awake), (let_go, go)) = (mpsc::channel(), mpsc::channel());
    with_loop(
        move |event_loop| {
            let handle = event_loop.handle();
            event_loop.spawn(async move {
                // The loop has to sleep before. On a machine that stalls the timer may be due by
                // then: again.
                let mut parks = handle.metrics().parks;
                loop {
                    wakeful::time::sleep(Duration::from_millis(5)).await;
                    let before = std::mem::replace(&mut parks, handle.metrics().parks);
                    if parks > before {
                        break;
                    }
                }
                stay_awake(&here, &go);
            })
        },
        |handle, eventfd| {
            posts_while_awake(handle, eventfd, &is_awake, &let_go);
            assert_eq!(rings(eventfd), 0);
        },
    );
}
