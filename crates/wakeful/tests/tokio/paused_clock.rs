//! A paused clock is one for Tokio and its host.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_lite::future::{or, poll_once};
use wakeful::net::TcpStream;
use wakeful::task::yield_now;
use wakeful::time::{advance, interval, now, pause, resume, sleep, sleep_until, timeout};
use wakeful::{EventLoop, IdlePolicy, LoopHandle, spawn};

use crate::background::wait_until;
use crate::guest;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs `test` on a loop with a guest whose clock is paused. It waits for hours: where the clock
/// does not jump, it never ends.
fn on_a_paused_guest<F: Future>(test: F) -> F::Output {
    let settings = EventLoop::builder().idle(IdlePolicy::Park).tokio().start_paused(true);
    let mut event_loop = settings.build().expect("a loop can be built here");
    event_loop.block_on(test).expect("the kernel lets the loop wait")
}

/// What both clocks say.
fn both() -> (Instant, Instant) {
    (now(), tokio::time::Instant::now().into_std())
}

#[test]
fn timers_of_both_are_due_in_one_order_and_take_no_time() {
    let real = Instant::now();
    on_a_paused_guest(async {
        let (start, log) = (now(), Rc::new(RefCell::new(Vec::new())));
        assert_eq!(both().0, both().1);
        // The loop's timers and Tokio's, in tasks of either.
        let tasks: Vec<_> = (1..=8)
            .map(|number| {
                let log = log.clone();
                let after = (9 - number) * SECOND;
                let test = async move {
                    if number % 2 == 0 {
                        sleep(after).await;
                    } else {
                        tokio::time::sleep(after).await;
                    }
                    assert_eq!(both(), (start + after, start + after));
                    log.borrow_mut().push(after);
                    // And again, from there.
                    tokio::time::sleep(HOUR).await;
                    sleep(HOUR).await;
                    assert_eq!(now() - start, after + 2 * HOUR);
                };
                let (end, ended) = async_channel::bounded::<()>(1);
                let test = async move {
                    test.await;
                    drop(end);
                };
                if number % 4 < 2 {
                    spawn(test).detach();
                } else {
                    tokio::task::spawn_local(test);
                }
                ended
            })
            .collect();
        for ended in tasks {
            assert!(ended.recv().await.is_err());
        }
        assert_eq!(*log.borrow(), (1..=8).map(|number| number * SECOND).collect::<Vec<_>>());
        let mut ticks = interval(HOUR);
        let first = ticks.tick().await;
        assert_eq!(ticks.tick().await - first, HOUR);
        assert!(timeout(HOUR, std::future::pending::<()>()).await.is_err());
        assert!(tokio::time::timeout(HOUR, sleep(2 * HOUR)).await.is_err());
        assert!(timeout(HOUR, tokio::time::sleep(2 * HOUR)).await.is_err());
    });
    assert!(real.elapsed() < HOUR);
}

#[test]
fn either_pauses_moves_and_resumes_both() {
    guest()
        .block_on(async {
            type Steer = (fn(), fn(), bool);
            let steers: [Steer; 4] = [
                (pause, resume, true),
                (tokio::time::pause, tokio::time::resume, false),
                (pause, tokio::time::resume, false),
                (tokio::time::pause, resume, true),
            ];
            for (pause, resume, is_ours) in steers {
                let ours = spawn(sleep(HOUR));
                let tokio_s = tokio::spawn(tokio::time::sleep(HOUR));
                yield_now().await;
                pause();
                let start = now();
                assert_eq!(both(), both());
                if is_ours {
                    advance(HOUR).await;
                    assert!(ours.is_finished());
                } else {
                    tokio::time::advance(HOUR).await;
                }
                assert!(now() - start >= HOUR);
                assert_eq!(both().0, both().1);
                ours.await.unwrap();
                tokio_s.await.unwrap();
                // A jump, too.
                sleep(HOUR).await;
                tokio::time::sleep(HOUR).await;
                assert!(now() - start >= 3 * HOUR);
                resume();
                let (begun, real) = (now(), Instant::now());
                sleep(Duration::from_millis(2)).await;
                assert!(real.elapsed() >= Duration::from_millis(2));
                assert!(now() - begun >= Duration::from_millis(2));
            }
        })
        .unwrap();
}

/// A deadline that was armed before a pause is not waited for in full after it.
#[test]
fn what_is_left_of_a_deadline_behind_a_resume_is_waited_for() {
    guest()
        .block_on(async {
            let deadline = now() + HOUR;
            let far = spawn(sleep_until(deadline));
            // So that the loop has slept for it.
            sleep(Duration::from_millis(1)).await;
            pause();
            advance(deadline - now() - Duration::from_millis(5)).await;
            assert!(!far.is_finished());
            resume();
            far.await.unwrap();
        })
        .unwrap();
}

#[test]
fn a_timer_that_a_task_of_tokio_sets_is_not_jumped_over() {
    on_a_paused_guest(async {
        let start = now();
        let far = tokio::spawn(tokio::time::sleep(HOUR));
        let task = tokio::task::spawn_local(async move {
            tokio::time::sleep(SECOND).await;
            // The loop has nothing else to do, and takes no turn by itself.
            let mut timer = std::pin::pin!(sleep(SECOND));
            assert!(poll_once(timer.as_mut()).await.is_none());
            timer.await;
            assert_eq!(now() - start, 2 * SECOND);
            let mut moved = sleep(HOUR);
            assert!(poll_once(&mut moved).await.is_none());
            moved.reset(now() + SECOND);
            moved.await;
            assert_eq!(now() - start, 3 * SECOND);
        });
        task.await.unwrap();
        assert!(!far.is_finished());
        far.await.unwrap();
        assert_eq!(now() - start, HOUR);
    });
}

#[test]
fn what_is_ready_in_either_comes_before_a_jump() {
    on_a_paused_guest(async {
        let (start, handle) = (now(), LoopHandle::current());
        let late = spawn(sleep(Duration::from_millis(1)));
        for _ in 0..1000 {
            yield_now().await;
            tokio::task::yield_now().await;
        }
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut one = wakeful::net::UnixStream::from_std(one).unwrap();
        let mut other = wakeful::net::UnixStream::from_std(other).unwrap();
        for _ in 0..100 {
            let ping = async {
                one.write_all(b"x").await.unwrap();
                assert_eq!(other.read(&mut [0; 4]).await.unwrap(), 1);
            };
            let jump = async {
                sleep(Duration::from_millis(1)).await;
                panic!("the clock has jumped although a socket was ready");
            };
            or(ping, jump).await;
        }
        let (send, receive) = async_channel::bounded(1);
        let thread = std::thread::spawn(move || handle.post(move || send.try_send(1).unwrap()));
        thread.join().unwrap().unwrap();
        assert_eq!(receive.recv().await, Ok(1));
        assert_eq!(now(), start);
        late.await.unwrap();
    });
}

/// Returns when the loop has found nothing to do but to wait, since this was called.
fn until_it_waits(handle: &LoopHandle) {
    let before = handle.metrics().parks;
    wait_until("the loop waits", || {
        // It may wait already.
        handle.wake();
        handle.metrics().parks > before
    });
}

#[test]
fn blocking_work_of_either_holds_the_clock_of_both() {
    on_a_paused_guest(async {
        let (start, handle) = (now(), LoopHandle::current());
        let ours = spawn(sleep(SECOND));
        let tokio_s = tokio::spawn(tokio::time::sleep(SECOND));
        for _ in 0..3 {
            let (begins, waits) = (handle.clone(), handle.clone());
            wakeful::task::spawn_blocking(move || until_it_waits(&begins)).await.unwrap();
            assert_eq!(both(), (start, start));
            tokio::task::spawn_blocking(move || until_it_waits(&waits)).await.unwrap();
            assert_eq!(both(), (start, start));
        }
        // Begun in a task of Tokio, beside another one.
        let (end, ended) = mpsc::channel::<()>();
        let (long, waits) = (handle.clone(), handle);
        let task = tokio::task::spawn_local(async move {
            let long = wakeful::task::spawn_blocking(move || {
                assert!(ended.recv().is_err());
                until_it_waits(&long);
            });
            wakeful::task::spawn_blocking(move || until_it_waits(&waits)).await.unwrap();
            drop(end);
            long.await.unwrap();
        });
        task.await.unwrap();
        assert_eq!(both(), (start, start));
        assert!(!ours.is_finished() && !tokio_s.is_finished());
        ours.await.unwrap();
        tokio_s.await.unwrap();
        assert_eq!(both(), (start + SECOND, start + SECOND));
    });
}

#[test]
fn a_socket_that_nobody_writes_to_holds_neither_up() {
    on_a_paused_guest(async {
        let start = now();
        let listener = wakeful::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(timeout(HOUR, client.read(&mut [0; 1])).await.is_err());
        let mut buf = [0; 1];
        assert!(tokio::time::timeout(HOUR, client.read(&mut buf)).await.is_err());
        assert_eq!(now() - start, 2 * HOUR);
    });
}

#[test]
fn advance_runs_what_is_due_in_both() {
    on_a_paused_guest(async {
        let start = now();
        let ours = spawn(sleep_until(start + SECOND));
        let tokio_s = tokio::spawn(tokio::time::sleep(SECOND));
        yield_now().await;
        tokio::task::yield_now().await;
        advance(SECOND / 2).await;
        assert!(!ours.is_finished() && !tokio_s.is_finished());
        advance(SECOND / 2).await;
        assert!(ours.is_finished());
        assert_eq!(both(), (start + SECOND, start + SECOND));
        tokio_s.await.unwrap();
        assert_eq!(both(), (start + SECOND, start + SECOND));
        // From a task of Tokio.
        tokio::task::spawn_local(advance(SECOND)).await.unwrap();
        assert_eq!(both(), (start + 2 * SECOND, start + 2 * SECOND));
    });
}

#[test]
fn what_is_refused_says_why() {
    let message = |f: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it is refused");
        let text = payload.downcast_ref::<String>().cloned();
        text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap()
    };
    let begin = || assert!(futures_lite::future::block_on(poll_once(advance(SECOND))).is_none());
    guest()
        .block_on(async {
            // Tokio's words.
            assert!(message(&resume).contains("not frozen"));
            assert!(message(&begin).contains("not frozen"));
            pause();
            assert!(message(&pause).contains("already frozen"));
            sleep(HOUR).await;
            resume();
            assert!(message(&resume).contains("not frozen"));
        })
        .unwrap();
}

#[test]
fn a_paused_loop_runs_again_and_ends_in_peace() {
    let settings = EventLoop::builder().idle(IdlePolicy::Park).tokio().start_paused(true);
    let mut event_loop = settings.build().unwrap();
    let start = event_loop.block_on(async { now() }).unwrap();
    let task = event_loop.spawn(async { sleep(HOUR).await });
    event_loop.block_on(async { sleep(SECOND).await }).unwrap();
    assert!(!task.is_finished());
    event_loop.block_on(task).unwrap().unwrap();
    assert_eq!(event_loop.block_on(async { now() }).unwrap(), start + HOUR);
    let (end, ended) = mpsc::channel::<()>();
    event_loop
        .block_on(async move {
            wakeful::task::spawn_blocking(move || ended.recv().is_err()).detach();
            tokio::task::yield_now().await;
        })
        .unwrap();
    // Nobody waits for the blocking work at the end.
    drop(event_loop);
    drop(end);
}

#[wakeful::test(tokio, start_paused)]
async fn test_takes_tokio_and_start_paused_as_arguments() {
    let start = now();
    tokio::time::sleep(HOUR).await;
    sleep(HOUR).await;
    assert_eq!(both(), (start + 2 * HOUR, start + 2 * HOUR));
}
