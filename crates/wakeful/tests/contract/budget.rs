//! The cooperative budget: what is always ready must not hold a loop, nor a timeout, nor a thread
//! that has left its loop.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt};
use wakeful::fs::File;
use wakeful::net::pipe::pipe;
use wakeful::net::{TcpListener, UnixDatagram, UnixSeqpacket, UnixStream};
use wakeful::process::Command;
use wakeful::spawn;
use wakeful::task::{
    budgeted, budgeted_stream, consume_budget, has_budget_remaining, unconstrained, yield_now,
};
use wakeful::time::{Deadline, sleep, timeout};

use crate::backend::driven::{BY_HAND, Driven, skip_on_guests};
use crate::backend::{Backend, localhost};
use crate::background::LONG;

on_every_backend! {
    a_timeout_gives_up_what_is_always_ready,
    a_sleep_is_over_beside_what_is_always_ready_in_the_same_task,
    timers_and_tasks_go_on_beside_several_greedy_tasks,
    timers_that_have_passed_and_finished_tasks_spend_the_budget_too,
    a_budget_ends_with_its_poll,
    a_task_that_drives_another_loop_keeps_its_own_budget,
    another_library_s_block_on_inside_a_task_comes_to_its_end,
    a_thousand_greedy_futures_in_one_task_soon_return_to_the_loop,
    a_channel_and_a_stream_that_are_always_ready_give_way_when_they_are_budgeted,
    a_timeout_gives_up_a_budgeted_future_that_is_always_ready,
    what_is_unconstrained_spends_no_budget_and_is_never_put_off,
    around_what_is_unconstrained_the_budget_is_as_it_was,
    what_fails_or_moves_nothing_at_once_spends_the_budget_too,
}

/// Reads a socket that is never empty. Its poll would not end without a budget.
fn greedy() -> impl Future<Output = ()> {
    let (write, read) = StdUnixStream::pair().unwrap();
    async move {
        let mut read = UnixStream::from_std(read).unwrap();
        let start = Instant::now();
        loop {
            (&write).write_all(b"x").unwrap();
            read.read(&mut [0; 1]).await.unwrap();
            assert!(start.elapsed() < LONG, "it was never given up");
        }
    }
}

fn a_timeout_gives_up_what_is_always_ready<B: Backend>() {
    B::block_on(async {
        assert!(timeout(Duration::from_millis(1), greedy()).await.is_err());
        assert!(timeout(Duration::ZERO, greedy()).await.is_err());
        let nested = timeout(LONG, timeout(Duration::from_millis(1), greedy()));
        assert!(nested.await.unwrap().is_err());
        let outer = timeout(Duration::from_millis(1), timeout(LONG, greedy()));
        assert!(outer.await.is_err());
    });
}

fn a_sleep_is_over_beside_what_is_always_ready_in_the_same_task<B: Backend>() {
    async fn beside_greedy(mut timer: impl Future<Output = ()> + Unpin) {
        let mut greedy = pin!(greedy());
        poll_fn(|cx| {
            assert!(greedy.as_mut().poll(cx).is_pending());
            Pin::new(&mut timer).poll(cx)
        })
        .await;
    }
    B::block_on(async {
        beside_greedy(sleep(Duration::from_millis(1))).await;
        beside_greedy(Deadline::after(Duration::from_millis(1))).await;
    });
}

fn timers_and_tasks_go_on_beside_several_greedy_tasks<B: Backend>() {
    B::block_on(async {
        let greedy: Vec<_> = (0..4).map(|_| spawn(greedy())).collect();
        for _ in 0..5 {
            sleep(Duration::from_micros(100)).await;
            spawn(yield_now()).await.unwrap();
        }
        greedy.iter().for_each(wakeful::JoinHandle::abort);
    });
}

fn timers_that_have_passed_and_finished_tasks_spend_the_budget_too<B: Backend>() {
    B::block_on(async {
        let stop = Rc::new(Cell::new(false));
        let passed = spawn({
            let stop = stop.clone();
            async move {
                while !stop.get() {
                    sleep(Duration::ZERO).await;
                }
            }
        });
        let given_up = spawn({
            let stop = stop.clone();
            async move {
                while !stop.get() {
                    let _ = timeout(Duration::ZERO, std::future::pending::<()>()).await;
                }
            }
        });
        spawn(async move { stop.set(true) }).await.unwrap();
        passed.await.unwrap();
        given_up.await.unwrap();
    });
}

/// A thread that has left its loop is not rationed, with whatever budget the loop's last poll
/// ended.
fn a_budget_ends_with_its_poll<B: Backend>() {
    for panics in [false, true] {
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let mut event_loop = B::builder().cooperative_budget(1).build().unwrap();
            let task = event_loop.spawn(async { 42 });
            event_loop.take_turn(Some(Duration::ZERO)).unwrap();
            let spend = async {
                consume_budget().await;
                assert!(!panics, "on purpose");
            };
            let root = std::panic::AssertUnwindSafe(|| event_loop.block_on(spend));
            assert_eq!(std::panic::catch_unwind(root).is_err(), panics);
            // Another executor on this thread would be told to poll again, for ever.
            done.send(futures_lite::future::block_on(task).unwrap()).unwrap();
        });
        assert_eq!(is_done.recv_timeout(LONG), Ok(42));
    }
}

fn a_task_that_drives_another_loop_keeps_its_own_budget<B: Backend>() {
    skip_on_guests(BY_HAND);
    let mut outer = B::builder().cooperative_budget(10).build().unwrap();
    outer
        .block_on(async {
            let seen = Rc::new(Cell::new(false));
            let mark = seen.clone();
            let busy = spawn(async move {
                let mut inner = B::event_loop();
                let mut steps = 0;
                while !seen.get() {
                    consume_budget().await;
                    inner.spawn(async {}).detach();
                    inner.take_turn(Some(Duration::ZERO)).unwrap();
                    steps += 1;
                    assert!(steps < 1_000, "it is never made to yield");
                }
                steps
            });
            spawn(async move { mark.set(true) }).await.unwrap();
            assert_eq!(busy.await.unwrap(), 10 + 1);
        })
        .unwrap();
}

/// Its executor polls again at once, however often an operation is put off.
fn another_library_s_block_on_inside_a_task_comes_to_its_end<B: Backend>() {
    const BUDGET: u32 = 10;
    let (done, is_done) = mpsc::channel();
    // On a thread of its own: a failure would spin for ever.
    thread::spawn(move || {
        let mut event_loop = B::builder().cooperative_budget(BUDGET).build().unwrap();
        let steps = || async {
            for _ in 0..10 * BUDGET {
                consume_budget().await;
            }
            sleep(Duration::ZERO).await;
        };
        let root = event_loop.block_on(async move {
            let inside_a_task = async move { futures_lite::future::block_on(steps()) };
            spawn(inside_a_task).await.unwrap();
            futures_lite::future::block_on(steps());
        });
        done.send(root.is_ok()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(LONG), Ok(true));
}

/// All continue in one poll, although the budget is spent after the first of them.
fn a_thousand_greedy_futures_in_one_task_soon_return_to_the_loop<B: Backend>() {
    const FUTURES: u64 = 1_000;
    let mut event_loop = B::builder().cooperative_budget(10).build().unwrap();
    let in_one_poll = event_loop.block_on(async {
        let done = Cell::new(0);
        let greedy = || async {
            loop {
                consume_budget().await;
                done.set(done.get() + 1);
            }
        };
        let mut futures: Vec<_> = (0..FUTURES).map(|_| Box::pin(greedy())).collect();
        let one_poll = poll_fn(|cx| {
            for future in &mut futures {
                let Poll::<()>::Pending = future.as_mut().poll(cx) else { unreachable!() };
            }
            Poll::Ready(done.get())
        });
        one_poll.await
    });
    let in_one_poll = in_one_poll.unwrap();
    assert!((10..10 + FUTURES / 10).contains(&in_one_poll), "{in_one_poll} operations");
}

/// Another library's channel and stream, a thousand items each: they know nothing of the budget.
fn a_channel_and_a_stream_that_are_always_ready_give_way_when_they_are_budgeted<B: Backend>() {
    const ITEMS: u32 = 1_000;
    let mut event_loop = B::builder().cooperative_budget(10).build().unwrap();
    event_loop
        .block_on(async {
            let (sender, receiver) = async_channel::unbounded();
            (0..ITEMS).for_each(|number| sender.try_send(number).unwrap());
            drop(sender);
            let seen = Rc::new(Cell::new(0));
            let count = seen.clone();
            let of_channel = spawn(async move {
                while budgeted(receiver.recv()).await.is_ok() {
                    count.set(count.get() + 1);
                }
            });
            assert_eq!(spawn(async move { seen.get() }).await.unwrap(), 10);
            of_channel.await.unwrap();

            let seen = Rc::new(Cell::new(0));
            let count = seen.clone();
            let of_stream = spawn(async move {
                let mut numbers = pin!(budgeted_stream(futures_util::stream::iter(0..ITEMS)));
                assert_eq!(numbers.get_ref().size_hint().0, ITEMS as usize);
                while numbers.next().await.is_some() {
                    count.set(count.get() + 1);
                }
            });
            assert_eq!(spawn(async move { seen.get() }).await.unwrap(), 10);
            of_stream.await.unwrap();
        })
        .unwrap();
}

fn a_timeout_gives_up_a_budgeted_future_that_is_always_ready<B: Backend>() {
    B::block_on(async {
        let start = Instant::now();
        let always_ready = async {
            loop {
                budgeted(async {}).await;
                assert!(start.elapsed() < LONG, "it was never given up");
            }
        };
        assert!(timeout(Duration::from_millis(1), always_ready).await.is_err());
    });
}

fn what_is_unconstrained_spends_no_budget_and_is_never_put_off<B: Backend>() {
    const STEPS: u32 = 1_000;
    let mut event_loop = B::builder().cooperative_budget(10).build().unwrap();
    let handle = event_loop.handle();
    event_loop
        .block_on(async {
            let (write, read) = StdUnixStream::pair().unwrap();
            let seen = Rc::new(Cell::new(0));
            let count = seen.clone();
            let task = spawn(unconstrained(async move {
                let mut read = UnixStream::from_std(read).unwrap();
                for _ in 0..STEPS {
                    (&write).write_all(b"x").unwrap();
                    read.read(&mut [0; 1]).await.unwrap();
                    sleep(Duration::ZERO).await;
                    budgeted(async {}).await;
                    consume_budget().await;
                    assert!(has_budget_remaining());
                    count.set(count.get() + 1);
                }
            }));
            // One poll of the task has done all of it, and a task that was spawned later waited.
            assert_eq!(spawn(async move { seen.get() }).await.unwrap(), STEPS);
            task.await.unwrap();
        })
        .unwrap();
    assert_eq!(handle.metrics().forced_yields, 0);
}

/// This also holds after a panic, and for a future that is polled within it and has a budget of its
/// own.
fn around_what_is_unconstrained_the_budget_is_as_it_was<B: Backend>() {
    let mut event_loop = B::builder().cooperative_budget(10).build().unwrap();
    let steps = async {
        let mut steps = 0;
        while has_budget_remaining() {
            steps += 1;
            consume_budget().await;
        }
        steps
    };
    let left = event_loop.block_on(async {
        spawn(async {
            for _ in 0..3 {
                consume_budget().await;
            }
            let step = || async { (0..100).map(|_| consume_budget()) };
            for step in unconstrained(step()).await {
                unconstrained(unconstrained(step)).await;
            }
            let panics = unconstrained(async { panic!("on purpose") });
            let mut panics = pin!(panics);
            let poll = std::panic::AssertUnwindSafe(|| {
                let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                let _: std::task::Poll<()> = panics.as_mut().poll(&mut cx);
            });
            assert!(std::panic::catch_unwind(poll).is_err());
            steps.await
        })
        .await
        .unwrap()
    });
    assert_eq!(left.unwrap(), 7);
    // On a thread without a loop there is no budget to lift.
    assert_eq!(futures_lite::future::block_on(unconstrained(async { 7 })), 7);
}

/// Another task has its turn although `operation` is never pending of itself.
async fn gives_way(what: &str, mut operation: impl AsyncFnMut()) {
    let others = Rc::new(Cell::new(false));
    let mark = others.clone();
    let other = spawn(async move { mark.set(true) });
    let mut times = 0;
    while !others.get() {
        operation().await;
        times += 1;
        assert!(times < 10_000, "{what}: no other task had its turn");
    }
    other.await.unwrap();
}

/// As of a task that passes over the errors of its socket, or reads on into a buffer that is full.
fn what_fails_or_moves_nothing_at_once_spends_the_budget_too<B: Backend>() {
    B::block_on(async {
        let (mut socket, peer) = UnixStream::pair().unwrap();
        gives_way("read into no room", async || assert_eq!(socket.read(&mut []).await.unwrap(), 0))
            .await;
        drop(peer);
        gives_way("write without a reader", async || drop(socket.write(b"x").await.unwrap_err()))
            .await;
        let (mut sender, mut receiver) = pipe().unwrap();
        gives_way("pipe: no room", async || assert_eq!(receiver.read(&mut []).await.unwrap(), 0))
            .await;
        drop(receiver);
        gives_way("pipe: no reader", async || drop(sender.write(b"x").await.unwrap_err())).await;
        let mut file = File::open("/dev/null").await.unwrap();
        gives_way("file: no room", async || assert_eq!(file.read(&mut []).await.unwrap(), 0)).await;
        let mut child = Command::new("true").spawn().unwrap();
        gives_way("a child that has ended", async || {
            assert!(child.wait().await.unwrap().success());
        })
        .await;
        gives_way("nobody listens", async || drop(UnixStream::connect("/none").await.unwrap_err()))
            .await;
        // A path may have 107 bytes, and no NUL in it.
        for path in [&"x".repeat(200), "a\0b"] {
            gives_way("no such address", async || {
                drop(UnixStream::connect(path).await.unwrap_err());
                drop(UnixSeqpacket::connect(path).await.unwrap_err());
            })
            .await;
            let socket = UnixDatagram::unbound().unwrap();
            gives_way("no such receiver", async || {
                drop(socket.send_to(b"x", path).await.unwrap_err());
            })
            .await;
        }
        let (socket, _peer) = UnixStream::pair().unwrap();
        let fds = [socket.as_fd(); 254];
        gives_way("too many descriptors", async || {
            drop(socket.send_with_fds(b"x", &fds).await.unwrap_err());
        })
        .await;
        gives_way("descriptors into no room", async || {
            assert_eq!(socket.recv_with_fds(&mut [], &mut Vec::new()).await.unwrap(), 0);
        })
        .await;
        gives_way("blocking work that was cancelled", async || {
            let blocking = wakeful::task::spawn_blocking(|| ());
            blocking.abort();
            let _ = blocking.await;
        })
        .await;
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let taken = listener.local_addr().unwrap();
        gives_way("bound already", async || drop(TcpListener::bind(taken).await.unwrap_err()))
            .await;
        gives_way("no such program", async || {
            drop(Command::new("/none").status().await.unwrap_err());
            drop(Command::new("/none").output().await.unwrap_err());
        })
        .await;
    });
}
