//! A future is dropped once, on its loop's thread, also after the loop's end, whoever holds wakers.
//! CI also runs this file under valgrind.

use std::cell::RefCell;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use wakeful::net::UnixStream;

use crate::backend::Backend;
use crate::backend::driven::Driven;

on_every_backend! {
    wakers_fired_and_dropped_elsewhere_after_the_end_find_a_shell,
    wakers_fired_by_other_threads_while_the_loop_ends,
    a_woken_task_that_is_still_queued_at_the_end_is_dropped_in_place,
    what_was_spawned_and_never_polled_is_dropped_at_the_end,
    the_last_waker_of_a_finished_task_frees_it_anywhere,
    an_output_is_dropped_once_whoever_comes_last,
    futures_that_hold_each_other_s_handles_and_sockets_are_dropped,
    drops_that_make_new_work_during_the_end,
    callbacks_and_hooks_are_dropped_once_at_the_end,
    a_panic_in_a_future_s_drop_at_the_end_stops_nobody_else,
    sockets_and_timers_that_outlive_their_loop_give_errors_or_nothing,
    handles_awaited_by_another_loop_are_answered_at_the_end,
    a_future_that_holds_its_own_handle_is_dropped_once,
    a_future_that_fires_its_own_waker_while_it_is_dropped_is_not_run_again,
    a_task_that_is_aborted_from_another_thread_while_it_runs_is_dropped_at_home,
}

/// Records where and how often it was dropped.
#[derive(Clone, Default)]
struct Drops(Arc<Mutex<Vec<ThreadId>>>);

impl Drops {
    fn token(&self) -> Token {
        Token(self.clone())
    }

    fn assert_once_here(&self) {
        assert_eq!(*self.0.lock().unwrap(), [thread::current().id()]);
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

struct Token(Drops);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().push(thread::current().id());
    }
}

type Wakers = Arc<Mutex<Vec<Waker>>>;

/// Never ready; leaves its waker, twice.
fn leaves_its_waker(wakers: &Wakers, token: Token) -> impl Future<Output = ()> + 'static {
    let wakers = wakers.clone();
    async move {
        let _token = token;
        poll_fn(|cx| {
            wakers.lock().unwrap().extend([cx.waker().clone(), cx.waker().clone()]);
            Poll::<()>::Pending
        })
        .await;
    }
}

fn wakers_fired_and_dropped_elsewhere_after_the_end_find_a_shell<B: Backend>() {
    let (drops, wakers) = (Drops::default(), Wakers::default());
    let mut event_loop = B::event_loop();
    let task = event_loop.spawn(leaves_its_waker(&wakers, drops.token()));
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(wakers.lock().unwrap().len(), 2);
    drop(event_loop);
    drops.assert_once_here();
    thread::spawn(move || {
        let mut wakers = wakers.lock().unwrap();
        wakers.pop().unwrap().wake();
        let last = wakers.pop().unwrap();
        last.wake_by_ref();
        let clone = last.clone();
        drop(last);
        clone.wake();
        // The last to know of the task frees it, here.
        assert!(B::block_on(task).unwrap_err().is_cancelled());
    })
    .join()
    .unwrap();
    assert_eq!(drops.count(), 1);
}

fn wakers_fired_by_other_threads_while_the_loop_ends<B: Backend>() {
    for _ in 0..50 {
        let (drops, wakers) = (Drops::default(), Wakers::default());
        let mut event_loop = B::event_loop();
        for _ in 0..10 {
            event_loop.spawn(leaves_its_waker(&wakers, drops.token())).detach();
        }
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        let taken: Vec<_> = wakers.lock().unwrap().drain(..).collect();
        let thread = thread::spawn(move || taken.into_iter().for_each(Waker::wake));
        drop(event_loop);
        thread.join().unwrap();
        assert_eq!(*drops.0.lock().unwrap(), [thread::current().id(); 10]);
    }
}

fn a_woken_task_that_is_still_queued_at_the_end_is_dropped_in_place<B: Backend>() {
    let (drops, wakers) = (Drops::default(), Wakers::default());
    let mut event_loop = B::event_loop();
    event_loop.spawn(leaves_its_waker(&wakers, drops.token())).detach();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    let waker = wakers.lock().unwrap().pop().unwrap();
    thread::spawn(move || waker.wake()).join().unwrap();
    drop(event_loop);
    drops.assert_once_here();
}

fn what_was_spawned_and_never_polled_is_dropped_at_the_end<B: Backend>() {
    let (local, remote, closure) = (Drops::default(), Drops::default(), Drops::default());
    let event_loop = B::event_loop();
    let token = local.token();
    let first = event_loop.spawn(async move { drop(token) });
    let (handle, tokens) = (event_loop.handle(), (remote.token(), closure.token()));
    let second = thread::spawn(move || {
        handle.post(move || drop(tokens.1)).unwrap();
        let token = tokens.0;
        handle.spawn(move || async move { drop(token) }).unwrap()
    });
    let second = second.join().unwrap();
    drop(event_loop);
    [local, remote, closure].iter().for_each(Drops::assert_once_here);
    B::block_on(async {
        assert!(first.await.unwrap_err().is_cancelled());
        assert!(second.await.unwrap_err().is_cancelled());
    });
}

fn the_last_waker_of_a_finished_task_frees_it_anywhere<B: Backend>() {
    let wakers = Wakers::default();
    let mut event_loop = B::event_loop();
    let kept = wakers.clone();
    let task = event_loop.spawn(poll_fn(move |cx| {
        kept.lock().unwrap().push(cx.waker().clone());
        Poll::Ready(vec![1, 2, 3])
    }));
    assert_eq!(event_loop.block_on(task).unwrap().unwrap(), [1, 2, 3]);
    let waker = wakers.lock().unwrap().pop().unwrap();
    thread::spawn(move || {
        waker.wake_by_ref();
        drop(waker);
    })
    .join()
    .unwrap();
    drop(event_loop);
}

fn an_output_is_dropped_once_whoever_comes_last<B: Backend>() {
    for abandon_first in [true, false] {
        let drops = Drops::default();
        let mut event_loop = B::event_loop();
        let token = drops.token();
        let task = event_loop.spawn(async move { token });
        if abandon_first {
            drop(task);
            event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        } else {
            event_loop.take_turn(Some(Duration::ZERO)).unwrap();
            assert!(task.is_finished());
            assert_eq!(drops.count(), 0, "the handle has a right to it");
            drop(task);
        }
        drops.assert_once_here();
    }
}

fn futures_that_hold_each_other_s_handles_and_sockets_are_dropped<B: Backend>() {
    let drops = Drops::default();
    let mut event_loop = B::event_loop();
    let token = drops.token();
    event_loop
        .block_on(async move {
            let (one, mut other) = UnixStream::pair().unwrap();
            let inner = wakeful::spawn(async move {
                let _token = token;
                let _ = other.read(&mut [0; 1]).await;
            });
            wakeful::spawn(async move {
                let _one = one;
                let _ = inner.await;
                pending::<()>().await;
            })
            .detach();
            wakeful::task::yield_now().await;
            wakeful::task::yield_now().await;
        })
        .unwrap();
    drop(event_loop);
    drops.assert_once_here();
}

/// Spawns, queues callbacks and starts timers while it is dropped.
struct BusyDrop(Rc<RefCell<Vec<&'static str>>>, Option<Drops>);

impl Drop for BusyDrop {
    fn drop(&mut self) {
        let tokens: Vec<_> =
            self.1.iter().flat_map(|d| [d.token(), d.token(), d.token()]).collect();
        let mut tokens = tokens.into_iter();
        let (one, two, three) = (tokens.next(), tokens.next(), tokens.next());
        let task = wakeful::spawn(async move { drop(one) });
        assert!(task.is_finished(), "the loop ends: cancelled at once");
        wakeful::run_next_turn(move || drop(two));
        wakeful::run_this_turn(move || drop(three));
        let mut sleep = Box::pin(wakeful::time::sleep(Duration::from_secs(1)));
        let _ = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.0.borrow_mut().push("dropped");
    }
}

fn drops_that_make_new_work_during_the_end<B: Backend>() {
    let (log, drops) = (Rc::default(), Drops::default());
    let mut event_loop = B::event_loop();
    let busy = BusyDrop(Rc::clone(&log), Some(drops.clone()));
    event_loop
        .spawn(async move {
            let _busy = busy;
            pending::<()>().await;
        })
        .detach();
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    let busy = BusyDrop(Rc::clone(&log), None);
    event_loop.run_next_turn(move || drop(busy));
    drop(event_loop);
    assert_eq!(*log.borrow(), ["dropped", "dropped"]);
    assert_eq!(drops.count(), 3);
}

fn callbacks_and_hooks_are_dropped_once_at_the_end<B: Backend>() {
    let drops: Vec<_> = (0..4).map(|_| Drops::default()).collect();
    let event_loop = B::event_loop();
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| drops[i].token());
    event_loop.run_this_turn(move || drop(a));
    event_loop.run_next_turn(move || drop(b));
    let hooks = (event_loop.before_park(move || _ = &c), event_loop.after_turn(move || _ = &d));
    drop(event_loop);
    drops.iter().for_each(Drops::assert_once_here);
    drop(hooks);
    drops.iter().for_each(Drops::assert_once_here);
}

fn a_panic_in_a_future_s_drop_at_the_end_stops_nobody_else<B: Backend>() {
    struct PanicsInDrop;
    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let drops = Drops::default();
    let mut event_loop = B::event_loop();
    for number in 0..3 {
        let (token, bomb) = (drops.token(), (number == 1).then(|| PanicsInDrop));
        event_loop
            .spawn(async move {
                let (_token, _bomb) = (token, bomb);
                pending::<()>().await;
            })
            .detach();
    }
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    drop(event_loop);
    assert_eq!(drops.count(), 3);
}

fn sockets_and_timers_that_outlive_their_loop_give_errors_or_nothing<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (mut one, other, mut sleep) = event_loop
        .block_on(async {
            let (one, other) = UnixStream::pair().unwrap();
            let mut sleep = Box::pin(wakeful::time::sleep(Duration::from_secs(3600)));
            poll_fn(|cx| {
                assert!(sleep.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            (one, other, sleep)
        })
        .unwrap();
    drop(event_loop);
    B::block_on(async move {
        let error = one.read(&mut [0; 1]).await.unwrap_err();
        assert!(error.to_string().contains("ended"), "{error}");
        // Taken over by the loop that polls it.
        poll_fn(|cx| {
            assert!(Pin::new(&mut sleep).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    });
    drop(other);
}

fn handles_awaited_by_another_loop_are_answered_at_the_end<B: Backend>() {
    static POLLS: AtomicUsize = AtomicUsize::new(0);
    let (send, receive) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let mut event_loop = B::event_loop();
        send.send(event_loop.handle()).unwrap();
        event_loop.run().unwrap();
    });
    let handle = receive.recv().unwrap();
    let task = handle.spawn(|| {
        poll_fn(|_| {
            POLLS.fetch_add(1, Ordering::Relaxed);
            Poll::<()>::Pending
        })
    });
    B::block_on(async move {
        let waiting = wakeful::spawn(task.unwrap());
        wakeful::task::yield_now().await;
        handle.stop();
        assert!(waiting.await.unwrap().unwrap_err().is_cancelled());
    });
    thread.join().unwrap();
}

/// A future that owns its own task's handle: until it ends by itself, or until its loop ends.
fn a_future_that_holds_its_own_handle_is_dropped_once<B: Backend>() {
    type Slot = Rc<RefCell<Option<wakeful::JoinHandle<Token>>>>;
    for (ends, aborts) in [(true, false), (false, true), (false, false)] {
        let (future, output, slot) = (Drops::default(), Drops::default(), Slot::default());
        let mut event_loop = B::event_loop();
        let (own, token, mut result) = (slot.clone(), future.token(), Some(output.token()));
        let mut handle = None;
        let task = event_loop.spawn(poll_fn(move |cx| {
            let _ = &token;
            handle = handle.take().or_else(|| own.borrow_mut().take());
            if aborts {
                handle.as_ref().unwrap().abort();
            }
            match ends {
                true => Poll::Ready(result.take().unwrap()),
                false => {
                    let own = pin_poll(handle.as_mut().unwrap(), cx);
                    assert!(own.is_pending(), "it waits for itself");
                    Poll::Pending
                }
            }
        }));
        *slot.borrow_mut() = Some(task);
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        assert_eq!(future.count(), usize::from(ends || aborts));
        drop(event_loop);
        future.assert_once_here();
        output.assert_once_here();
    }
}

fn pin_poll<F: Future + Unpin>(future: &mut F, cx: &mut Context<'_>) -> Poll<F::Output> {
    Pin::new(future).poll(cx)
}

/// Fires its own waker, and aborts and drops its own handle, while it is dropped.
struct FiresInDrop {
    waker: Option<Waker>,
    handle: Rc<RefCell<Option<wakeful::JoinHandle<()>>>>,
    _token: Token,
}

impl FiresInDrop {
    fn arm(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
    }
}

impl Drop for FiresInDrop {
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake_by_ref();
            waker.wake_by_ref();
            thread::spawn(move || waker.wake()).join().unwrap();
        }
        if let Some(handle) = self.handle.take() {
            handle.abort();
        }
    }
}

fn a_future_that_fires_its_own_waker_while_it_is_dropped_is_not_run_again<B: Backend>() {
    for way in ["ends", "panics", "aborted", "loop ends"] {
        let (drops, handle) = (Drops::default(), Rc::new(RefCell::new(None)));
        let mut fires = FiresInDrop { waker: None, handle: handle.clone(), _token: drops.token() };
        let mut polls = 0;
        let mut event_loop = B::event_loop();
        let task = event_loop.spawn(poll_fn(move |cx| {
            polls += 1;
            assert_eq!(polls, 1);
            fires.arm(cx.waker());
            match way {
                "ends" => Poll::Ready(()),
                "panics" => panic!("on purpose"),
                _ => Poll::Pending,
            }
        }));
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        if way == "aborted" {
            task.abort();
        }
        *handle.borrow_mut() = Some(task);
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        drop(event_loop);
        drops.assert_once_here();
    }
}

fn a_task_that_is_aborted_from_another_thread_while_it_runs_is_dropped_at_home<B: Backend>() {
    for _ in 0..20 {
        let drops = Drops::default();
        let mut event_loop = B::event_loop();
        let token = drops.token();
        let (running, is_running) = std::sync::mpsc::channel();
        let task = event_loop.spawn(async move {
            let _token = token;
            running.send(()).unwrap();
            loop {
                wakeful::task::yield_now().await;
            }
        });
        let handle = event_loop.handle();
        let aborter = thread::spawn(move || {
            is_running.recv().unwrap();
            task.abort();
            let error: wakeful::JoinError = futures_lite::future::block_on(task).unwrap_err();
            handle.stop();
            error.is_cancelled()
        });
        event_loop.run().unwrap();
        assert!(aborter.join().unwrap());
        drops.assert_once_here();
    }
}
