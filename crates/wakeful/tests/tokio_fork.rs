//! A child that was forked within a loop that has Tokio as its guest: its run ends with an error,
//! and what it does harms neither the parent's loop nor the parent's Tokio. A process of its own,
//! one test at a time, so that no other thread holds a lock at the fork.

#![allow(unsafe_code)] // `fork`, and how a child ends.

#[allow(dead_code, reason = "not all of it is needed here")]
#[path = "fork/child.rs"]
mod child;

use std::cell::RefCell;
use std::future::Future;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wakeful::EventLoop;
use wakeful::time::timeout;

use self::child::{ForkingHook, fork, in_child_with, one_at_a_time, report, verdict};

const LONG: Duration = Duration::from_secs(30);

fn guest() -> EventLoop {
    EventLoop::builder().tokio().build().unwrap()
}

fn run<F: Future>(event_loop: &mut EventLoop, test: F) -> F::Output {
    event_loop.block_on(async { timeout(LONG, test).await.expect("a wake was lost") }).unwrap()
}

/// Sockets of both, which the parent's loop watches.
struct Sockets {
    of_loop: (wakeful::net::UnixStream, wakeful::net::UnixStream),
    of_tokio: (tokio::net::UnixStream, tokio::net::UnixStream),
}

impl Sockets {
    fn new() -> Self {
        Self {
            of_loop: wakeful::net::UnixStream::pair().unwrap(),
            of_tokio: tokio::net::UnixStream::pair().unwrap(),
        }
    }

    /// Each read waits for its byte, and so for an event.
    async fn work(&mut self) {
        let (near, far) = &mut self.of_loop;
        let mut buf = [0];
        for byte in 0..3 {
            let writes = async {
                wakeful::time::sleep(Duration::from_micros(100)).await;
                far.write_all(&[byte]).await.unwrap();
            };
            let (read, ()) = futures_lite::future::zip(near.read(&mut buf), writes).await;
            assert_eq!(read.unwrap(), 1);
            assert_eq!(buf[0], byte);
        }
        let (near, far) = &mut self.of_tokio;
        for byte in 0..3 {
            let writes = async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                far.write_all(&[byte]).await.unwrap();
            };
            let (read, ()) = futures_lite::future::zip(near.read(&mut buf), writes).await;
            assert_eq!(read.unwrap(), 1);
            assert_eq!(buf[0], byte);
        }
    }
}

#[test]
fn a_fork_within_a_task_ends_the_child_s_run_with_an_error_and_the_parent_goes_on() {
    let _one = one_at_a_time();
    let mut event_loop = guest();
    let mut sockets = run(&mut event_loop, async {
        let mut sockets = Sockets::new();
        sockets.work().await;
        sockets
    });
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    let forked = event_loop.block_on(async { wakeful::spawn(async { fork() }).await.unwrap() });
    match forked {
        // The task has no place to go on to: the child's run is over.
        Err(error) => report(&theirs, move || {
            let text = error.to_string();
            assert!(text.contains("fork"), "{text}");
            // The child must not drop Tokio's, which would take them off the parent's epoll.
            std::mem::forget(sockets.of_tokio);
            drop(sockets.of_loop);
            drop(event_loop);
            let answer = wakeful::tokio::block_on(async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                6
            });
            assert_eq!(answer, 6);
        }),
        Ok(0) => report(&theirs, || panic!("the child's task went on")),
        Ok(child) => {
            verdict(child, ours, theirs);
            run(&mut event_loop, sockets.work());
        }
    }
}

#[test]
fn a_fork_within_a_hook_takes_no_event_from_the_parent() {
    let _one = one_at_a_time();
    let mut event_loop = guest();
    let (ours, peer) = StdUnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let hook = ForkingHook::add(&event_loop, peer);
    let read = event_loop.block_on(async {
        let mut socket = wakeful::net::UnixStream::from_std(ours).unwrap();
        let read = async { Some(socket.read(&mut [0; 1]).await) };
        // The timer is polled first, because a turn for the timer would also find the event.
        let late = async {
            wakeful::time::sleep(LONG).await;
            None
        };
        futures_lite::future::or(late, read).await
    });
    let read = hook.in_parent(read);
    assert_eq!(read.expect("the event is the parent's").unwrap(), 1);
}

#[test]
fn a_drop_in_the_child_leaves_the_parent_s_sockets_and_timers_alive() {
    let _one = one_at_a_time();
    let mut event_loop = guest();
    let sockets = Rc::new(RefCell::new(None));
    let of_task = sockets.clone();
    run(&mut event_loop, async move {
        let mut fresh = Sockets::new();
        fresh.work().await;
        of_task.replace(Some(fresh));
        // Timers of both, which the child must not take along.
        wakeful::spawn(wakeful::time::sleep(Duration::from_secs(3600))).detach();
        tokio::spawn(tokio::time::sleep(Duration::from_secs(3600)));
        wakeful::task::yield_now().await;
    });
    in_child_with(&mut event_loop, |mut event_loop| {
        let refused = event_loop.block_on(async {}).unwrap_err().to_string();
        assert!(refused.contains("build a new loop in the child"), "{refused}");
        drop(event_loop);
    });
    let mut sockets = sockets.take().unwrap();
    run(&mut event_loop, sockets.work());
}
