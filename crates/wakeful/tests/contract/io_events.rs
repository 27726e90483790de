//! Events of descriptors: one wakes who waits, in the turn that fetches it; what a handler does to
//! itself and to its peers, within the same batch, hurts nobody. Foreign wakers run in the middle
//! of the dispatch: they are the hard case.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use rustix::net::SendFlags;
use wakeful::net::UnixStream;
use wakeful::task::yield_now;
use wakeful::{EventLoop, JoinHandle, LoopHandle, spawn};

use crate::backend::Backend;
use crate::backend::driven::Driven;
use crate::support::{soon, tcp_pair};

on_every_backend! {
    a_read_event_wakes_its_reader_in_the_turn_that_fetches_it,
    a_write_event_wakes_its_writer_in_the_turn_that_fetches_it,
    a_persistent_reader_is_registered_once_and_polled_once_per_event,
    a_read_and_a_write_that_are_ready_are_immediate,
    a_reader_and_a_writer_of_one_socket_are_woken_simultaneously,
    a_partial_read_leaves_the_rest_for_the_next_one_at_once,
    a_handler_may_be_destroyed_in_its_own_callback,
    a_waker_may_destroy_its_own_socket,
    a_waker_s_side_effects_on_its_peers_hold_within_the_batch,
    out_of_band_data_alone_completes_no_read_and_does_not_make_the_loop_spin,
}

fn one_turn(event_loop: &mut EventLoop) {
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
}

/// Fills the socket's buffer until nothing fits. Returns how many bytes that took.
fn fill(mut socket: &StdUnixStream) -> usize {
    socket.set_nonblocking(true).unwrap();
    let mut filled = 0;
    loop {
        match socket.write(&[0; 4096]) {
            Ok(written) => filled += written,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return filled;
            }
        }
    }
}

/// Takes all that has arrived, now.
fn drain(mut socket: &StdUnixStream) -> usize {
    socket.set_nonblocking(true).unwrap();
    let (mut drained, mut buf) = (0, [0; 4096]);
    while let Ok(read @ 1..) = socket.read(&mut buf) {
        drained += read;
    }
    drained
}

fn a_read_event_wakes_its_reader_in_the_turn_that_fetches_it<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let reader = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        let mut buf = [0; 8];
        let read = socket.read(&mut buf).await.unwrap();
        buf[..read].to_vec()
    });
    for _ in 0..3 {
        one_turn(&mut event_loop);
    }
    assert_eq!(handle.metrics().polls, 1, "not woken while nothing is there");
    peer.write_all(b"read").unwrap();
    one_turn(&mut event_loop);
    assert_eq!(handle.metrics().polls, 2);
    assert!(reader.is_finished());
    assert_eq!(event_loop.block_on(reader).unwrap().unwrap(), b"read");
}

fn a_write_event_wakes_its_writer_in_the_turn_that_fetches_it<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (peer, socket) = StdUnixStream::pair().unwrap();
    let filled = fill(&socket);
    let writer = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        socket.write(b"write").await.unwrap()
    });
    for _ in 0..3 {
        one_turn(&mut event_loop);
    }
    assert_eq!(handle.metrics().polls, 1, "not woken while there is no room");
    assert_eq!(drain(&peer), filled);
    one_turn(&mut event_loop);
    assert_eq!(handle.metrics().polls, 2);
    assert!(writer.is_finished());
    assert_eq!(drain(&peer), event_loop.block_on(writer).unwrap().unwrap());
}

fn a_persistent_reader_is_registered_once_and_polled_once_per_event<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let seen = Rc::new(Cell::new(0));
    let count = seen.clone();
    let reader = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        while socket.read(&mut [0; 8]).await.unwrap() > 0 {
            count.set(count.get() + 1);
        }
    });
    one_turn(&mut event_loop);
    one_turn(&mut event_loop);
    for round in 1..=10 {
        peer.write_all(b"again").unwrap();
        let before = handle.metrics();
        one_turn(&mut event_loop);
        let after = handle.metrics();
        assert_eq!(seen.get(), round);
        assert_eq!((after.events - before.events, after.polls - before.polls), (1, 1));
        assert!(format!("{event_loop:?}").contains("descriptors: 1"), "{event_loop:?}");
        one_turn(&mut event_loop);
        assert_eq!(handle.metrics().events, after.events, "an event comes once");
    }
    drop(peer);
    one_turn(&mut event_loop);
    assert!(reader.is_finished());
}

fn a_read_and_a_write_that_are_ready_are_immediate<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    peer.write_all(b"early").unwrap();
    let both = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        let read = socket.read(&mut [0; 8]).await.unwrap();
        read + socket.write(b"at once").await.unwrap()
    });
    one_turn(&mut event_loop);
    assert!(both.is_finished(), "no event is waited for");
    let metrics = handle.metrics();
    assert_eq!((metrics.turns, metrics.polls, metrics.events), (1, 1, 0));
    assert_eq!(drain(&peer), 7);
}

fn a_reader_and_a_writer_of_one_socket_are_woken_simultaneously<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    fill(&socket);
    let (reader, writer) = event_loop
        .block_on(async {
            let (mut read, mut write) = UnixStream::from_std(socket).unwrap().into_split();
            let reader = spawn(async move {
                let length = read.read(&mut [0; 8]).await.unwrap();
                (read, length)
            });
            let writer = spawn(async move {
                let length = write.write(b"room").await.unwrap();
                (write, length)
            });
            (reader, writer)
        })
        .unwrap();
    for _ in 0..3 {
        one_turn(&mut event_loop);
    }
    assert!(!reader.is_finished() && !writer.is_finished());
    drain(&peer);
    peer.write_all(b"bytes").unwrap();
    one_turn(&mut event_loop);
    assert!(reader.is_finished() && writer.is_finished(), "both in the turn of their event");
    let both = event_loop.block_on(async { (reader.await.unwrap().1, writer.await.unwrap().1) });
    assert_eq!(both.unwrap(), (5, 4));
}

fn a_partial_read_leaves_the_rest_for_the_next_one_at_once<B: Backend>() {
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let log = lengths.clone();
    let reader = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        loop {
            let read = socket.read(&mut [0; 4]).await.unwrap();
            log.borrow_mut().push(read);
            if read == 0 {
                break;
            }
        }
    });
    one_turn(&mut event_loop);
    peer.write_all(b"ten bytes.").unwrap();
    one_turn(&mut event_loop);
    assert_eq!(*lengths.borrow(), [4, 4, 2]);
    assert_eq!(handle.metrics().polls, 2, "in one poll");
    // A read that exactly empties the socket does not hide what comes next.
    peer.write_all(b"four").unwrap();
    one_turn(&mut event_loop);
    peer.write_all(b"!").unwrap();
    one_turn(&mut event_loop);
    drop(peer);
    one_turn(&mut event_loop);
    assert_eq!(*lengths.borrow(), [4, 4, 2, 4, 1, 0]);
    assert!(reader.is_finished());
}

/// The handler of an event gives up its own task and closes its own socket, while more bytes wait
/// in it.
fn a_handler_may_be_destroyed_in_its_own_callback<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let own: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
    let (slot, handled, held) = (own.clone(), Rc::new(Cell::new(0)), Rc::new(()));
    let (count, inner) = (handled.clone(), held.clone());
    let task = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        let _inner = inner;
        loop {
            socket.read(&mut [0; 1]).await.unwrap();
            count.set(count.get() + 1);
            slot.borrow_mut().take().expect("it is handled once").abort();
            // What ends a task is the end of its poll.
            yield_now().await;
        }
    });
    *own.borrow_mut() = Some(task);
    one_turn(&mut event_loop);
    peer.write_all(b"more than one").unwrap();
    for _ in 0..3 {
        one_turn(&mut event_loop);
    }
    assert_eq!(handled.get(), 1);
    assert_eq!(Rc::strong_count(&held), 1, "dropped");
    assert!(format!("{event_loop:?}").contains("descriptors: 0"), "{event_loop:?}");
    assert_eq!(peer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// A future that owns a socket, and waits for a byte of it.
type Waiting = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    /// What a waker of this thread may reach: wakers have to be `Send`, sockets are not.
    static SOCKETS: RefCell<Vec<Option<Waiting>>> = const { RefCell::new(Vec::new()) };
    /// Kept open, or their ends would be events.
    static PEERS: RefCell<Vec<StdUnixStream>> = const { RefCell::new(Vec::new()) };
    static NEWCOMERS_WOKEN: Cell<u32> = const { Cell::new(0) };
}

/// Drops the futures (and the sockets in them) that it names, then calls `after`, within the wake.
struct Destroys {
    victims: Vec<usize>,
    after: fn(),
}

impl Wake for Destroys {
    fn wake(self: Arc<Self>) {
        let mut any = false;
        for victim in &self.victims {
            let victim = SOCKETS.with_borrow_mut(|all| all[*victim].take());
            any |= victim.is_some();
        }
        if any {
            (self.after)();
        }
    }
}

/// A future that owns `socket` and waits for a byte, polled once with `waker`.
fn waits(socket: StdUnixStream, waker: &Waker) {
    let mut socket = UnixStream::from_std(socket).unwrap();
    let mut future: Waiting = Box::pin(async move {
        let _ = socket.read(&mut [0; 1]).await;
    });
    assert!(future.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    SOCKETS.with_borrow_mut(|all| all.push(Some(future)));
}

/// The kernel's event is being dispatched when its socket goes.
fn a_waker_may_destroy_its_own_socket<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    event_loop
        .block_on(async {
            let destroys = Destroys { victims: vec![0], after: || () };
            waits(socket, &Arc::new(destroys).into());
        })
        .unwrap();
    peer.write_all(b"x").unwrap();
    one_turn(&mut event_loop);
    assert!(SOCKETS.take()[0].is_none(), "it was woken");
    assert_eq!(peer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert!(format!("{event_loop:?}").contains("descriptors: 0"), "{event_loop:?}");
}

struct CountsNewcomers;

impl Wake for CountsNewcomers {
    fn wake(self: Arc<Self>) {
        NEWCOMERS_WOKEN.set(NEWCOMERS_WOKEN.get() + 1);
    }
}

/// Of a batch of events, the first one's handler closes the sockets of all the others, and opens
/// new ones, which take their places (and, mostly, their numbers). What is left of the batch is
/// nobody's.
fn a_waker_s_side_effects_on_its_peers_hold_within_the_batch<B: Backend>() {
    fn newcomers() {
        for _ in 0..4 {
            let (peer, socket) = StdUnixStream::pair().unwrap();
            PEERS.with_borrow_mut(|peers| peers.push(peer));
            waits(socket, &Arc::new(CountsNewcomers).into());
        }
    }
    let mut event_loop = B::event_loop();
    let handle = event_loop.handle();
    let mut peers = Vec::new();
    event_loop
        .block_on(async {
            for number in 0..4 {
                let (peer, socket) = StdUnixStream::pair().unwrap();
                peers.push(peer);
                let victims = (0..4).filter(|other| *other != number).collect();
                waits(socket, &Arc::new(Destroys { victims, after: newcomers }).into());
            }
        })
        .unwrap();
    for peer in &mut peers {
        peer.write_all(b"x").unwrap();
    }
    let before = handle.metrics();
    one_turn(&mut event_loop);
    let after = handle.metrics();
    assert_eq!(after.waits - before.waits, 1, "one batch");
    assert_eq!(after.events - before.events, 1, "the others are for nobody");
    let left = SOCKETS.take();
    assert_eq!(left.len(), 4 + 4, "one handler had its effect, the others were gone");
    assert_eq!(left[..4].iter().flatten().count(), 1);
    assert_eq!(NEWCOMERS_WOKEN.get(), 0, "a stale event is dropped");
    drop((left, PEERS.take()));
}

fn out_of_band_data_alone_completes_no_read_and_does_not_make_the_loop_spin<B: Backend>() {
    B::block_on(async {
        let (mut client, mut server) = tcp_pair().await;
        let handle = LoopHandle::current();
        let reading = spawn(async move {
            let mut buf = [0; 8];
            let read = server.read(&mut buf).await.unwrap();
            buf[..read].to_vec()
        });
        yield_now().await;
        rustix::net::send(&client, b"!", SendFlags::OOB).unwrap();
        wakeful::time::sleep(Duration::from_millis(1)).await;
        let before = handle.metrics().events;
        for _ in 0..5 {
            wakeful::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!reading.is_finished(), "an urgent byte is not one of the stream's");
        assert_eq!(handle.metrics().events, before);
        client.write_all(b"bytes").await.unwrap();
        assert_eq!(soon(reading).await.unwrap(), b"bytes");
    });
}
