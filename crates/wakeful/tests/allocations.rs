//! Waking a task allocates nothing, on whichever thread, and an idle connection takes little
//! memory. In a process of its own, whose allocator counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use wakeful::EventLoop;
use wakeful::net::{UdpSocket, UnixStream};

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;

use backend::Backend;

on_every_backend! {
    a_wake_from_another_thread_allocates_nothing_there_nor_on_the_loop,
    a_wake_within_the_loop_allocates_nothing,
    two_tasks_wait_for_one_socket_again_and_again_without_an_allocation,
    an_idle_connection_takes_few_bytes,
}

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The allocations of this thread so far.
fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// What this thread has asked for so far, in bytes.
fn bytes() -> usize {
    BYTES.get()
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code, reason = "to count allocations is to be the allocator")]
// SAFETY: the system's allocator does the work. Counting allocates nothing: the thread-local has a
// constant initialiser and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get() + layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn one_turn(event_loop: &mut EventLoop) {
    event_loop.turn(Some(Duration::ZERO)).unwrap();
}

const TASKS: usize = 10;

fn a_wake_from_another_thread_allocates_nothing_there_nor_on_the_loop<B: Backend>() {
    let mut event_loop = B::unhurried();
    let handle = event_loop.handle();
    let wakers = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..TASKS {
        let wakers = wakers.clone();
        let mut first = true;
        let waits = poll_fn(move |cx| {
            if std::mem::replace(&mut first, false) {
                wakers.lock().unwrap().push(cx.waker().clone());
            }
            Poll::<()>::Pending
        });
        event_loop.spawn(waits).detach();
    }
    // Twice, so that what grows once has grown.
    for round in 0..2 {
        one_turn(&mut event_loop);
        let there = thread::scope(|scope| {
            let wakes = scope.spawn(|| {
                let wakers = wakers.lock().unwrap();
                let before = allocations();
                wakers.iter().for_each(Waker::wake_by_ref);
                allocations() - before
            });
            wakes.join().unwrap()
        });
        let (polls, before) = (handle.metrics().polls, allocations());
        one_turn(&mut event_loop);
        let here = allocations() - before;
        assert_eq!(handle.metrics().polls - polls, TASKS as u64);
        assert_eq!(there, 0);
        // The debug mode that runs tasks in another order takes memory for that.
        let shuffled = std::env::var_os("WAKEFUL_SHUFFLE").is_some();
        assert!(round == 0 || shuffled || here == 0, "{here}");
    }
}

fn a_wake_within_the_loop_allocates_nothing<B: Backend>() {
    let mut event_loop = B::unhurried();
    let wakers = Rc::new(RefCell::new(Vec::with_capacity(TASKS)));
    for _ in 0..TASKS {
        let wakers = wakers.clone();
        event_loop
            .spawn(async move {
                poll_fn(|cx| {
                    wakers.borrow_mut().push(cx.waker().clone());
                    Poll::Ready(())
                })
                .await;
                pending::<()>().await;
            })
            .detach();
    }
    one_turn(&mut event_loop);
    let seen = Rc::new(Cell::new(u64::MAX));
    let count = seen.clone();
    event_loop.run_next_turn(move || {
        let before = allocations();
        wakers.borrow().iter().for_each(Waker::wake_by_ref);
        count.set(allocations() - before);
    });
    let polls = event_loop.handle().metrics().polls;
    one_turn(&mut event_loop);
    assert_eq!(seen.get(), 0);
    assert_eq!(event_loop.handle().metrics().polls - polls, TASKS as u64);
}

fn two_tasks_wait_for_one_socket_again_and_again_without_an_allocation<B: Backend>() {
    let mut event_loop = B::unhurried();
    let socket = Rc::new(event_loop.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap());
    let received = Rc::new(Cell::new(0));
    for _ in 0..2 {
        let (socket, received) = (socket.clone(), received.clone());
        event_loop
            .spawn(async move {
                while socket.recv(&mut [0; 1]).await.is_ok() {
                    received.set(received.get() + 1);
                }
            })
            .detach();
    }
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.connect(socket.local_addr().unwrap()).unwrap();
    let mut after_the_first = 0;
    for datagrams in 1..=50 {
        if datagrams == 5 {
            after_the_first = allocations();
        }
        peer.send(b"x").unwrap();
        while received.get() < datagrams {
            one_turn(&mut event_loop);
        }
    }
    let shuffled = std::env::var_os("WAKEFUL_SHUFFLE").is_some();
    assert!(shuffled || allocations() == after_the_first);
}

/// A stream beside its own 40 bytes, an empty task, and a task with a stream that waits in a read.
/// The loop's tables, which grow now and then, are not in it.
fn an_idle_connection_takes_few_bytes<B: Backend>() {
    let few = |what: &mut dyn FnMut() -> usize| (0..20).map(|_| what()).min().unwrap();
    B::block_on(async {
        let mut kept = Vec::with_capacity(100);
        let streams = few(&mut || {
            let before = bytes();
            kept.push(UnixStream::pair().unwrap());
            bytes() - before
        });
        let empty = few(&mut || {
            let before = bytes();
            wakeful::spawn(async {}).detach();
            bytes() - before
        });
        let waits = few(&mut || {
            let (mut stream, _) = kept.pop().unwrap();
            let before = bytes();
            wakeful::spawn(async move { stream.read(&mut [0; 32]).await }).detach();
            bytes() - before
        });
        assert_eq!([size_of::<UnixStream>(), streams / 2, empty, waits], [40, 112, 120, 232]);
    });
}
