//! No late wake, from every place: whatever makes a handler run, local work that the handler
//! queues, and what another thread posts after it, both run within the same wake, in a turn that
//! is known exactly.
//!
//! The public case throughout: an idle registered descriptor, and a timer 5 s away that would end a
//! wait that should not have been. Handlers run on the loop's thread and read its counters there,
//! so the counts are exact. (From a signal handler only `wake` is allowed: tests/signal_wake.rs.)

use std::future::{pending, poll_fn};
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use wakeful::net::UnixStream;
use wakeful::{LoopHandle, LoopMetrics};

use crate::backend::Backend;
use crate::backend::driven::has_guest;
use crate::background::{Background, LONG, until_asleep, wait_until};

on_every_backend! {
    local_work_queued_by_a_post_is_not_late,
    local_work_queued_by_an_io_handler_is_not_late,
    local_work_queued_by_a_timer_is_not_late,
    local_work_queued_by_a_waker_called_inside_poll_is_not_late,
    local_work_queued_by_a_drop_is_not_late,
    local_work_queued_by_a_panic_s_unwind_is_not_late,
    local_work_queued_by_a_callback_is_not_late,
    local_work_queued_by_before_park_is_not_late,
    local_work_queued_by_after_turn_is_not_late,
}

/// Runs on the loop, at the place that a test is about.
type Handler = Box<dyn FnOnce() + Send>;

/// Marks a piece of work as done.
type Done = Box<dyn FnOnce() + Send>;

/// In which part of a turn a handler runs.
#[derive(Clone, Copy)]
enum Part {
    Wait,
    Tasks,
    Callbacks,
    AfterTurn,
}

/// How a handler queues local work.
struct Way {
    name: &'static str,
    queue: fn(Done),
    /// In which turn it runs, counted from the handler's own, for each part of a turn that the
    /// handler may run in. Of Tokio's work: by which turn.
    runs: [u64; 4],
    is_tokio_s: bool,
}

/// The turn in which a post from another thread runs that came while the handler ran.
const POST_RUNS: [u64; 4] = [0, 1, 1, 1];

static WAYS: [Way; 6] = [
    Way {
        name: "a task",
        queue: |done| wakeful::spawn(async move { done() }).detach(),
        runs: [0, 0, 1, 1],
        is_tokio_s: false,
    },
    Way {
        name: "a this-turn callback",
        queue: |done| wakeful::run_this_turn(done),
        runs: [0, 0, 0, 1],
        is_tokio_s: false,
    },
    Way {
        name: "a next-turn callback",
        queue: |done| wakeful::run_next_turn(done),
        runs: [0, 1, 1, 1],
        is_tokio_s: false,
    },
    Way {
        name: "a post of the loop to itself",
        queue: |done| wakeful::LoopHandle::current().post(done).unwrap(),
        runs: [0, 0, 1, 1],
        is_tokio_s: false,
    },
    Way {
        name: "a waiting task that is woken",
        queue: |done| {
            let (send, receive) = async_channel::bounded(1);
            wakeful::spawn(async move {
                receive.recv().await.unwrap();
                done();
            })
            .detach();
            wakeful::spawn(async move { send.send(()).await.unwrap() }).detach();
        },
        runs: [0, 0, 1, 1],
        is_tokio_s: false,
    },
    Way {
        name: "a task that wakes itself inside its poll",
        queue: |done| {
            let (mut done, mut polled) = (Some(done), false);
            let task = poll_fn(move |cx| {
                if std::mem::replace(&mut polled, true) {
                    done.take().unwrap()();
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            });
            wakeful::spawn(task).detach();
        },
        runs: [0, 0, 1, 1],
        is_tokio_s: false,
    },
];

/// Work of Tokio, the guest. It runs after the turn, and at the latest before the next turn.
#[cfg(feature = "tokio")]
static WAYS_OF_GUESTS: [Way; 3] = [
    Way {
        name: "a task of Tokio",
        queue: |done| _ = tokio::spawn(async move { done() }),
        runs: [1; 4],
        is_tokio_s: true,
    },
    Way {
        name: "a local task of Tokio",
        queue: |done| _ = tokio::task::spawn_local(async move { done() }),
        runs: [1; 4],
        is_tokio_s: true,
    },
    Way {
        name: "a waiting task of Tokio that is woken",
        queue: |done| {
            let (send, receive) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                receive.await.unwrap();
                done();
            });
            wakeful::spawn(async move { send.send(()).unwrap() }).detach();
        },
        runs: [2; 4],
        is_tokio_s: true,
    },
];

/// Makes the handler run in some part of a turn.
type MakeRun = fn(&LoopHandle, Handler);

/// For each way of queueing, with a post after it and without: a post alone would keep the loop
/// awake, too.
fn check<B: Backend>(part: Part, make_run: MakeRun) {
    for way in &WAYS {
        check_one::<B>(part, make_run, way, 0);
        check_one::<B>(part, make_run, way, 1);
    }
    #[cfg(feature = "tokio")]
    if has_guest() {
        for way in &WAYS_OF_GUESTS {
            check_one::<B>(part, make_run, way, 0);
            check_one::<B>(part, make_run, way, 1);
        }
    }
}

fn check_one<B: Backend>(part: Part, make_run: MakeRun, way: &'static Way, posts: usize) {
    let background = Background::start(B::builder(), |event_loop| {
        let (peer, idle) = StdUnixStream::pair().unwrap();
        let watch = event_loop.spawn(async move {
            let mut idle = UnixStream::from_std(idle).unwrap();
            let _ = idle.read(&mut [0; 1]).await;
        });
        let timer = event_loop.spawn(wakeful::time::sleep(Duration::from_secs(5)));
        (peer, watch, timer)
    });
    let handle = background.handle();
    until_settled(handle, 1);

    let (ran, has_run) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let (local_done, local) = mpsc::channel();
    let counted = handle.clone();
    let handler = move || {
        let base = counted.metrics();
        (way.queue)(Box::new(move || local_done.send(counted.metrics()).unwrap()));
        ran.send(base).unwrap();
        // The post comes while the handler runs: where the loop will meet it is known.
        may_go_on.recv_timeout(LONG).unwrap();
    };
    make_run(handle, Box::new(handler));
    let base = has_run.recv_timeout(LONG).unwrap();
    let (post_done, post) = mpsc::channel();
    for _ in 0..posts {
        let (counted, post_done) = (handle.clone(), post_done.clone());
        handle.post(move || post_done.send(counted.metrics()).unwrap()).unwrap();
    }
    drop(post_done);
    go_on.send(()).unwrap();

    let since = |now: LoopMetrics| (now.turns - base.turns, now.parks - base.parks);
    let mut last = way.runs[part as usize];
    let (turns, parks) = since(local.recv_timeout(LONG).unwrap());
    assert_eq!(parks, 0, "{}", way.name);
    assert!(turns == last || way.is_tokio_s && turns < last, "{}: {turns}", way.name);
    for post in post {
        assert_eq!(since(post), (POST_RUNS[part as usize], 0), "a post behind {}", way.name);
        last = last.max(POST_RUNS[part as usize]);
    }

    // And the turn after the last work is the one that sleeps: no turn too many, no park too few.
    // (Where a test may pause the clock, a guest knows each of the loop's timers, and wakes by it.)
    if cfg!(feature = "test-util") && has_guest() {
        background.end();
        return;
    }
    until_asleep(handle);
    let counted = handle.clone();
    let then = handle.post_and_wait(move || counted.metrics()).unwrap();
    let (turns, parks) = since(then);
    assert_eq!(parks, 1, "the sleep after {}", way.name);
    assert!(turns == last + 1 || way.is_tokio_s, "the sleep after {}: {turns}", way.name);
    background.end();
}

/// What this thread sent has been run, the kernel has told of each of the `descriptors` once (that
/// it is writable, when it was registered), and the loop sleeps. A post that met such an event
/// would ring a bell that ends the next wait.
fn until_settled(handle: &LoopHandle, descriptors: u64) {
    wait_until("the first event of each descriptor", || handle.metrics().events == descriptors);
    handle.post_and_wait(|| ()).unwrap();
    until_asleep(handle);
}

/// Runs the handler when it is dropped.
struct OnDrop(Option<Handler>);

impl OnDrop {
    fn new(handler: Handler) -> Self {
        Self(Some(handler))
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(handler) = self.0.take() {
            handler();
        }
    }
}

fn local_work_queued_by_a_post_is_not_late<B: Backend>() {
    check::<B>(Part::Tasks, |handle, handler| handle.post(handler).unwrap());
}

fn local_work_queued_by_an_io_handler_is_not_late<B: Backend>() {
    check::<B>(Part::Tasks, |handle, handler| {
        let (mut peer, socket) = StdUnixStream::pair().unwrap();
        let reader = handle.spawn(move || async move {
            let mut socket = UnixStream::from_std(socket).unwrap();
            socket.read(&mut [0; 1]).await.unwrap();
            handler();
        });
        until_settled(handle, 2);
        peer.write_all(b"x").unwrap();
        reader.unwrap().detach();
    });
}

fn local_work_queued_by_a_timer_is_not_late<B: Backend>() {
    check::<B>(Part::Tasks, |handle, handler| {
        let task = handle.spawn(move || async move {
            wakeful::time::sleep(Duration::from_millis(1)).await;
            handler();
        });
        task.unwrap().detach();
    });
}

fn local_work_queued_by_a_waker_called_inside_poll_is_not_late<B: Backend>() {
    check::<B>(Part::Tasks, |handle, handler| {
        let (send, receive) = async_channel::bounded(1);
        let woken = handle.spawn(move || async move {
            receive.recv().await.unwrap();
            handler();
        });
        until_settled(handle, 1);
        let waker = handle.spawn(move || {
            poll_fn(move |_| {
                send.try_send(()).unwrap();
                Poll::Ready(())
            })
        });
        woken.unwrap().detach();
        waker.unwrap().detach();
    });
}

fn local_work_queued_by_a_drop_is_not_late<B: Backend>() {
    check::<B>(Part::Tasks, |handle, handler| {
        let on_drop = OnDrop::new(handler);
        let task = handle.spawn(move || async move {
            let _on_drop = on_drop;
            pending::<()>().await;
        });
        until_settled(handle, 1);
        task.unwrap().abort();
    });
}

fn local_work_queued_by_a_panic_s_unwind_is_not_late<B: Backend>() {
    check::<B>(Part::Tasks, |handle, handler| {
        let on_drop = OnDrop::new(handler);
        let task = handle.spawn(move || async move {
            let _on_drop = on_drop;
            panic!("on purpose");
        });
        task.unwrap().detach();
    });
}

fn local_work_queued_by_a_callback_is_not_late<B: Backend>() {
    // A next-turn callback comes before the tasks: for what it queues it is among them.
    check::<B>(Part::Tasks, |handle, handler| {
        handle.post(|| wakeful::run_next_turn(handler)).unwrap();
    });
    check::<B>(Part::Callbacks, |handle, handler| {
        handle.post(|| wakeful::run_this_turn(handler)).unwrap();
    });
}

fn local_work_queued_by_before_park_is_not_late<B: Backend>() {
    // A loop that has a guest checks after a turn whether it may sleep, and not in the next turn.
    let part = if has_guest() { Part::AfterTurn } else { Part::Wait };
    check::<B>(part, |handle, handler| {
        let mut handler = Some(handler);
        handle
            .post(move || {
                // Forgotten: it stays until the loop's end.
                std::mem::forget(wakeful::before_park(move || {
                    if let Some(handler) = handler.take() {
                        handler();
                    }
                }));
            })
            .unwrap();
    });
}

fn local_work_queued_by_after_turn_is_not_late<B: Backend>() {
    check::<B>(Part::AfterTurn, |handle, handler| {
        let mut handler = Some(handler);
        handle
            .post(move || {
                // Forgotten, as above.
                std::mem::forget(wakeful::after_turn(move || {
                    if let Some(handler) = handler.take() {
                        handler();
                    }
                }));
            })
            .unwrap();
    });
}
