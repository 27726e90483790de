//! Descriptors: a socket is closed once, wherever it is dropped; a number that is used again has
//! nothing of its predecessor; a copy that outlives ours costs the loop nothing. In a process of
//! its own, one test at a time, because numbers are the process's.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use wakeful::accept::{Listener, SharedListener};
use wakeful::net::{DetachedStream, TcpListener, UnixStream};
use wakeful::task::yield_now;
use wakeful::{EventLoop, Priority, spawn};

#[macro_use]
#[path = "contract/backend.rs"]
mod backend;
#[path = "contract/background.rs"]
mod background;

use backend::Backend;
use backend::descriptors::{kept, open};
use background::{Background, LONG, until_asleep};

on_every_backend! {
    a_socket_is_closed_once_wherever_it_is_dropped,
    a_number_that_is_used_again_within_a_batch_gets_no_event_of_its_predecessor,
    a_duplicate_that_outlives_ours_costs_the_loop_no_wait,
    a_shutdown_under_load_leaves_no_descriptor,
}

/// One test at a time, which leaves the process with the descriptors that it had.
fn alone(test: impl FnOnce()) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    kept(test);
}

/// More than any socket's buffer takes.
const MUCH: usize = 1 << 24;

/// Writes until the end of time: nobody reads.
async fn writes(mut stream: UnixStream) {
    stream.write_all(&vec![7; MUCH]).await.unwrap();
    unreachable!("nobody reads");
}

fn one_turn(event_loop: &mut EventLoop) {
    event_loop.turn(Some(Duration::ZERO)).unwrap();
}

type Handler = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    static HANDLER: RefCell<Option<Handler>> = const { RefCell::new(None) };
}

/// Drops what waits, in the midst of the dispatch of its own event.
struct DropsTheHandler;

impl Wake for DropsTheHandler {
    fn wake(self: Arc<Self>) {
        drop(HANDLER.take());
    }
}

/// Closes the socket, on a loop that continues or that ends with it. The socket's peer reads when
/// it is asked to.
type Close = fn(EventLoop, UnixStream, &StdUnixStream) -> Option<EventLoop>;

/// Where a socket is dropped that has a write pending.
const PLACES: [(&str, Close); 6] = [
    ("by another task", |mut event_loop, stream, _| {
        let writing = event_loop.spawn(writes(stream));
        one_turn(&mut event_loop);
        let abort = async move {
            writing.abort();
            assert!(writing.await.unwrap_err().is_cancelled());
        };
        event_loop.block_on(abort).unwrap();
        Some(event_loop)
    }),
    ("by its own task", |mut event_loop, stream, _| {
        let gives_up = async move {
            let write = wakeful::time::timeout(Duration::from_micros(100), writes(stream));
            assert!(write.await.is_err());
        };
        event_loop.block_on(event_loop.spawn(gives_up)).unwrap().unwrap();
        Some(event_loop)
    }),
    ("by its own waker", |mut event_loop, stream, peer| {
        let mut handler: Handler = Box::pin(writes(stream));
        let waker = Arc::new(DropsTheHandler).into();
        assert!(handler.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        one_turn(&mut event_loop);
        HANDLER.set(Some(handler));
        let mut buf = vec![0; MUCH];
        while HANDLER.with_borrow(Option::is_some) {
            assert!((&*peer).read(&mut buf).unwrap() > 0);
            one_turn(&mut event_loop);
        }
        Some(event_loop)
    }),
    ("detached", |event_loop, mut stream, _| {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(stream.write_all(&vec![7; MUCH])).poll(&mut cx).is_pending());
        let detached: DetachedStream = stream.detach();
        std::thread::spawn(move || drop(detached)).join().unwrap();
        Some(event_loop)
    }),
    ("at the loop's end", |mut event_loop, stream, _| {
        event_loop.spawn(writes(stream)).detach();
        one_turn(&mut event_loop);
        drop(event_loop);
        None
    }),
    ("after the loop's end", |event_loop, mut stream, _| {
        let mut cx = Context::from_waker(Waker::noop());
        let much = vec![7; MUCH];
        let mut write = pin!(stream.write_all(&much));
        assert!(write.as_mut().poll(&mut cx).is_pending());
        drop(event_loop);
        None
    }),
];

fn a_socket_is_closed_once_wherever_it_is_dropped<B: Backend>() {
    for (place, close) in PLACES {
        alone(|| {
            let (mut peer, socket) = StdUnixStream::pair().unwrap();
            let number = socket.as_raw_fd();
            let null = File::open("/dev/null").unwrap();
            let mut event_loop = B::event_loop();
            let stream = async { UnixStream::from_std(socket).unwrap() };
            let stream = event_loop.block_on(stream).unwrap();
            let after = close(event_loop, stream, &peer);
            assert!(!open().contains_key(&number), "{place}: it is closed");
            // Somebody else gets the number. A second close would be theirs.
            let others = on_number(number, null);
            if let Some(mut event_loop) = after {
                let events = event_loop.handle().metrics().events;
                let mut buf = vec![0; MUCH];
                while peer.read(&mut buf).unwrap() > 0 {}
                (0..3).for_each(|_| one_turn(&mut event_loop));
                assert_eq!(event_loop.handle().metrics().events, events, "{place}: no late event");
            }
            assert_eq!(peer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe, "{place}");
            assert_eq!(open()[&number], "/dev/null", "{place}");
            drop(others);
        });
    }
}

/// A copy of `file` with this number, which nobody has.
fn on_number(number: RawFd, file: impl AsFd) -> OwnedFd {
    let copy = rustix::io::fcntl_dupfd_cloexec(file, number).unwrap();
    assert_eq!(copy.as_raw_fd(), number, "the lowest that is free from there on");
    copy
}

thread_local! {
    static STREAMS: RefCell<[Option<UnixStream>; 2]> = const { RefCell::new([None, None]) };
    static NEWCOMER: RefCell<Option<(UnixStream, StdUnixStream)>> = const { RefCell::new(None) };
    static WOKEN: Cell<usize> = const { Cell::new(0) };
    static NEWCOMER_WOKEN: Cell<usize> = const { Cell::new(0) };
}

struct CountsNewcomer;

impl Wake for CountsNewcomer {
    fn wake(self: Arc<Self>) {
        NEWCOMER_WOKEN.set(NEWCOMER_WOKEN.get() + 1);
    }
}

/// Closes the other stream, for which the batch has an event too, and puts a new one in its place:
/// the same number, and the same place in the loop's table.
struct TakesTheOthersPlace(usize);

impl Wake for TakesTheOthersPlace {
    fn wake(self: Arc<Self>) {
        WOKEN.set(WOKEN.get() + 1);
        let Some(other) = STREAMS.with_borrow_mut(|streams| streams[1 - self.0].take()) else {
            return;
        };
        let (peer, socket) = StdUnixStream::pair().unwrap();
        let number = other.as_fd().as_raw_fd();
        drop(other);
        let socket = on_number(number, socket);
        NEWCOMER.set(Some((waits(socket.into(), &Arc::new(CountsNewcomer).into()), peer)));
    }
}

/// On this thread's loop, with a read that waits.
fn waits(socket: StdUnixStream, waker: &Waker) -> UnixStream {
    let mut stream = UnixStream::from_std(socket).unwrap();
    let mut cx = Context::from_waker(waker);
    assert!(pin!(stream.read(&mut [0; 1])).poll(&mut cx).is_pending());
    stream
}

fn a_number_that_is_used_again_within_a_batch_gets_no_event_of_its_predecessor<B: Backend>() {
    alone(|| {
        let mut event_loop = B::event_loop();
        let mut peers = Vec::new();
        event_loop
            .block_on(async {
                for number in 0..2 {
                    let (peer, socket) = StdUnixStream::pair().unwrap();
                    peers.push(peer);
                    let stream = waits(socket, &Arc::new(TakesTheOthersPlace(number)).into());
                    STREAMS.with_borrow_mut(|streams| streams[number] = Some(stream));
                }
            })
            .unwrap();
        peers.iter_mut().for_each(|peer| peer.write_all(b"x").unwrap());
        let before = event_loop.handle().metrics();
        one_turn(&mut event_loop);
        let after = event_loop.handle().metrics();
        assert_eq!(after.waits - before.waits, 1, "one batch");
        assert_eq!((after.events - before.events, WOKEN.get()), (1, 1));
        assert_eq!(NEWCOMER_WOKEN.get(), 0, "the event was its predecessor's");
        // But its own it gets. (The first event of a new socket says that it can be written.)
        let (stream, mut peer) = NEWCOMER.take().expect("it came");
        peer.write_all(b"y").unwrap();
        one_turn(&mut event_loop);
        assert_eq!(NEWCOMER_WOKEN.get(), 1);
        drop((stream, STREAMS.take()));
    });
}

fn a_duplicate_that_outlives_ours_costs_the_loop_no_wait<B: Backend>() {
    /// Puts a socket on the loop, waits there until it would block, and gives it up.
    async fn used_for_a_while(socket: StdUnixStream, priority: Priority, detach: bool) {
        let mut stream = UnixStream::from_std(socket).unwrap();
        stream.set_priority(priority).unwrap();
        let reading = spawn(async move {
            let mut buf = [0; 1];
            let read = wakeful::time::timeout(Duration::from_millis(1), stream.read(&mut buf));
            assert!(read.await.is_err(), "nothing came");
            if detach {
                drop(stream.detach());
            }
        });
        reading.await.unwrap();
    }
    alone(|| {
        let looping = Background::start(B::builder(), |_| ());
        let handle = looping.handle();
        for (priority, detach) in [(Priority::Normal, false), (Priority::High, false)]
            .into_iter()
            .chain([(Priority::Normal, true), (Priority::High, true)])
        {
            let (mut peer, socket) = StdUnixStream::pair().unwrap();
            let duplicate = socket.try_clone().unwrap();
            let used = handle.spawn(move || used_for_a_while(socket, priority, detach)).unwrap();
            B::block_on(used).unwrap();
            until_asleep(handle);
            let before = handle.metrics().waits;
            (0..50).for_each(|_| peer.write_all(b"to the duplicate").unwrap());
            handle.post_and_wait(|| ()).unwrap();
            until_asleep(handle);
            let waits = handle.metrics().waits - before;
            assert!(waits <= 3, "{waits} waits: {priority:?}, {detach}");
            drop(duplicate);
        }
        // Shared listeners are watched level-triggered: one that stayed would be reported for ever.
        let shared = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = shared.socket_addr().unwrap();
        let on_loop = shared.clone();
        let used = handle.spawn(move || async move {
            let Listener::Tcp(listener) = on_loop.attach().unwrap() else { panic!("it is TCP") };
            gives_up_to_accept(&listener).await;
            let again = listener.detach().attach().unwrap();
            let Listener::Tcp(listener) = again else { panic!("it is TCP") };
            gives_up_to_accept(&listener).await;
        });
        B::block_on(used.unwrap()).unwrap();
        until_asleep(handle);
        let before = handle.metrics().waits;
        let clients: Vec<_> = (0..10).map(|_| std::net::TcpStream::connect(addr)).collect();
        handle.post_and_wait(|| ()).unwrap();
        until_asleep(handle);
        let waits = handle.metrics().waits - before;
        assert!(waits <= 3, "{waits} waits, and nobody accepts");
        drop((clients, shared));
        looping.end();
    });
}

async fn gives_up_to_accept(listener: &TcpListener) {
    let accepted = wakeful::time::timeout(Duration::from_millis(1), listener.accept()).await;
    assert!(accepted.is_err(), "nobody came");
}

/// Loops that are shut down while connections wait, write, are detached, and travel between them.
fn a_shutdown_under_load_leaves_no_descriptor<B: Backend>() {
    for _ in 0..5 {
        alone(|| {
            let group = B::group().loops(2).build().unwrap();
            let mut peers = Vec::new();
            for number in 0..40 {
                let (peer, socket) = StdUnixStream::pair().unwrap();
                peers.push(peer);
                let (one, other) = (&group.handles()[number % 2], &group.handles()[1 - number % 2]);
                let other = other.clone();
                let life = move || async move {
                    let mut stream = UnixStream::from_std(socket).unwrap();
                    match number % 4 {
                        0 => writes(stream).await,
                        1 => assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0),
                        // Moves back and forth.
                        2 => {
                            let detached = stream.detach();
                            let _ = other.post(move || drop(detached.attach()));
                        }
                        _ => {
                            let detached = stream.detach();
                            yield_now().await;
                            std::future::pending::<()>().await;
                            drop(detached);
                        }
                    }
                };
                one.spawn(life).unwrap().detach();
            }
            group.shutdown(Duration::ZERO).unwrap();
            for mut peer in peers {
                peer.set_read_timeout(Some(LONG)).unwrap();
                let mut sink = vec![0; MUCH];
                while peer.read(&mut sink).unwrap() > 0 {}
            }
        });
    }
}
