//! Futures and values of a loop in types that are `Send`: used on their loop only, and dropped on
//! its thread only, wherever they were moved meanwhile.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn, ready};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};

use wakeful::net::{TcpListener, TcpStream};
use wakeful::{LoopBound, OnThisLoop, on_this_loop};

use crate::backend::{Backend, localhost};

on_every_backend! {
    a_future_that_holds_a_socket_is_send_and_runs_here,
    on_another_thread_it_is_refused_and_goes_home_to_be_dropped,
    by_another_loop_of_the_thread_it_is_refused,
    an_output_need_not_be_send,
    it_is_cancelled_with_its_owner_at_once,
    once_ready_its_future_is_gone_and_another_poll_panics,
    what_is_dropped_elsewhere_while_the_loop_ends_is_dropped_at_home,
    what_is_dropped_elsewhere_after_its_loop_leaks,
    without_a_loop_it_panics_and_says_so,
    a_bound_value_is_lent_at_home_only,
}

fn is_send<T: Send>(value: T) -> T {
    value
}

/// Says on which thread it was dropped.
struct SaysWhere(mpsc::Sender<ThreadId>, PhantomData<Rc<()>>);

impl SaysWhere {
    fn new() -> (Self, mpsc::Receiver<ThreadId>) {
        let (sender, receiver) = mpsc::channel();
        (Self(sender, PhantomData), receiver)
    }
}

impl Drop for SaysWhere {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().id());
    }
}

fn message(panicked: thread::Result<impl Sized>) -> String {
    let payload = panicked.err().expect("it panics");
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|&text| text.to_owned())).expect("a text")
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A future that is never ready and says where it was dropped, after its first poll.
async fn begun() -> (OnThisLoop<impl Future<Output = ()>>, mpsc::Receiver<ThreadId>) {
    let (says, dropped) = SaysWhere::new();
    let mut future = on_this_loop(async move {
        let _says = says;
        pending::<()>().await;
    });
    poll_fn(|cx| {
        assert!(Pin::new(&mut future).poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    (future, dropped)
}

fn a_future_that_holds_a_socket_is_send_and_runs_here<B: Backend>() {
    async fn handler() -> usize {
        on_this_loop(async {
            let listener = TcpListener::bind(localhost()).await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            client.write_all(b"hello").await.unwrap();
            stream.read(&mut [0; 64]).await.unwrap()
        })
        .await
    }
    assert_eq!(B::block_on(is_send(handler())), 5);
}

fn on_another_thread_it_is_refused_and_goes_home_to_be_dropped<B: Backend>() {
    B::block_on(async {
        let (mut future, dropped) = begun().await;
        let elsewhere = wakeful::task::spawn_blocking(move || {
            let refused = catch_unwind(AssertUnwindSafe(|| poll(&mut future)));
            drop(future);
            message(refused)
        });
        let refused = elsewhere.await.expect("no panic");
        assert!(refused.contains("outside of its event loop"), "{refused}");
        assert!(refused.contains(file!()), "it says where it was made: {refused}");
        let mut where_it_was = None;
        while where_it_was.is_none() {
            wakeful::task::yield_now().await;
            where_it_was = dropped.try_recv().ok();
        }
        assert_eq!(where_it_was, Some(thread::current().id()));
    });
}

fn by_another_loop_of_the_thread_it_is_refused<B: Backend>() {
    let (mut future, dropped) = B::block_on(begun());
    let refused = catch_unwind(AssertUnwindSafe(|| B::block_on(async { poll(&mut future) })));
    assert!(message(refused).contains("outside of its event loop"));
    let refused = catch_unwind(AssertUnwindSafe(|| poll(&mut future)));
    assert!(message(refused).contains("outside of its event loop"));
    // Its loop has ended, but this is its thread.
    drop(future);
    assert_eq!(dropped.try_recv(), Ok(thread::current().id()));
}

fn an_output_need_not_be_send<B: Backend>() {
    async fn handler() -> u32 {
        let number = on_this_loop(async { Rc::new(Cell::new(41)) }).await.get();
        wakeful::task::yield_now().await;
        number + 1
    }
    assert_eq!(B::block_on(is_send(handler())), 42);
}

fn it_is_cancelled_with_its_owner_at_once<B: Backend>() {
    B::block_on(async {
        let (future, dropped) = begun().await;
        drop(future);
        assert_eq!(dropped.try_recv(), Ok(thread::current().id()));
        let (future, dropped) = begun().await;
        let task = wakeful::spawn(future);
        task.abort();
        assert!(task.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(dropped.try_recv(), Ok(thread::current().id()));
    });
}

fn once_ready_its_future_is_gone_and_another_poll_panics<B: Backend>() {
    B::block_on(async {
        let (says, dropped) = SaysWhere::new();
        let mut future = on_this_loop(poll_fn(move |_| {
            let _kept = &says;
            Poll::Ready(())
        }));
        assert!(poll(&mut future).is_ready());
        assert_eq!(dropped.try_recv(), Ok(thread::current().id()), "before its owner goes");
        let again = catch_unwind(AssertUnwindSafe(|| poll(&mut future)));
        assert!(message(again).contains("after it was ready"));
    });
}

fn what_is_dropped_elsewhere_while_the_loop_ends_is_dropped_at_home<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (future, dropped) = event_loop.block_on(begun()).unwrap();
    thread::spawn(move || drop(future)).join().expect("no panic");
    assert!(dropped.try_recv().is_err(), "the loop takes no turn");
    drop(event_loop);
    assert_eq!(dropped.try_recv(), Ok(thread::current().id()));
}

fn what_is_dropped_elsewhere_after_its_loop_leaks<B: Backend>() {
    let (future, dropped) = B::block_on(begun());
    thread::spawn(move || drop(future)).join().expect("no panic");
    // The sender is neither used nor dropped.
    assert_eq!(dropped.try_recv(), Err(mpsc::TryRecvError::Empty));
}

fn without_a_loop_it_panics_and_says_so<B: Backend>() {
    let refused = catch_unwind(|| on_this_loop(ready(())));
    assert!(message(refused).contains("no event loop runs on this thread"));
}

fn a_bound_value_is_lent_at_home_only<B: Backend>() {
    B::block_on(async {
        let mut bound = LoopBound::new(Rc::new(1));
        *bound.get_mut().expect("at home") = Rc::new(2);
        let elsewhere = thread::spawn(move || {
            assert!(bound.get().is_none() && bound.get_mut().is_none());
            assert_eq!(format!("{bound:?}"), "(of another thread)");
            bound.into_inner().expect_err("it comes back")
        });
        let bound = elsewhere.join().expect("no panic");
        assert!(bound.home().is_same(&wakeful::LoopHandle::current()));
        assert_eq!(format!("{bound:?}"), "2");
        assert_eq!(bound.into_inner().ok(), Some(Rc::new(2)));
    });
}
