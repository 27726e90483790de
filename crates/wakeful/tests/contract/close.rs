//! Closing: what is closed wakes nobody, hurts no neighbour, and a socket that outlives its loop
//! says so.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::Read;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use wakeful::accept::{Connection, ConnectionServer, SharedListener};
use wakeful::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use wakeful::signal::{SIGUSR2, Signals};
use wakeful::task::yield_now;
use wakeful::time::{sleep, timeout};
use wakeful::{EventLoop, spawn};

use crate::backend::driven::Driven;
use crate::backend::{Backend, localhost};
use crate::support::{soon, tcp_pair};

on_every_backend! {
    a_close_with_a_pending_write_wakes_nobody_afterwards,
    a_stream_that_another_task_drops_is_closed_and_its_reader_not_woken,
    a_half_waits_on_while_the_other_one_goes,
    an_abandoned_connect_accept_or_receive_leaves_nothing_behind,
    a_socket_that_outlives_its_loop_says_so_instead_of_waiting,
    who_waits_in_another_executor_is_told_that_the_loop_has_ended,
    who_waits_in_another_executor_for_a_timer_or_a_task_is_woken_by_the_loop_s_end,
    who_waits_in_another_executor_for_a_drain_is_woken_by_the_loop_s_end,
    who_polls_within_the_wake_of_a_loop_s_end_finds_it_ended,
}

#[derive(Default)]
struct CountedWakes(AtomicUsize);

impl CountedWakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for CountedWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Turns enough for any event that is on its way.
async fn some_turns() {
    for _ in 0..5 {
        wakeful::time::sleep(Duration::from_micros(200)).await;
    }
}

fn a_close_with_a_pending_write_wakes_nobody_afterwards<B: Backend>() {
    B::block_on(async {
        for _ in 0..20 {
            let (client, server) = tcp_pair().await;
            let mut server = server.into_std();
            let wakes = Arc::new(CountedWakes::default());
            let waker = wakes.clone().into();
            {
                let mut client = client;
                let bytes = vec![7; 1 << 24];
                let mut writing = pin!(client.write_all(&bytes));
                assert!(writing.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            // What was taken by the kernel is delivered, then the stream ends.
            server.set_nonblocking(false).unwrap();
            let mut all = Vec::new();
            server.read_to_end(&mut all).unwrap();
            assert!(!all.is_empty() && all.len() < 1 << 24 && all.iter().all(|byte| *byte == 7));
            some_turns().await;
            assert_eq!(wakes.count(), 0);
            assert_eq!(Arc::strong_count(&wakes), 2, "the wakers went with the stream");
        }
    });
}

fn a_stream_that_another_task_drops_is_closed_and_its_reader_not_woken<B: Backend>() {
    B::block_on(async {
        let (stream, mut peer) = UnixStream::pair().unwrap();
        let stream = Rc::new(RefCell::new(Some(stream)));
        let polls = Rc::new(Cell::new(0));
        let reader = spawn({
            let (stream, polls) = (stream.clone(), polls.clone());
            poll_fn(move |cx| {
                polls.set(polls.get() + 1);
                let mut stream = stream.borrow_mut();
                let stream = stream.as_mut().expect("not polled without its stream");
                let mut buf = [0; 8];
                pin!(stream.read(&mut buf)).poll(cx)
            })
        });
        yield_now().await;
        assert_eq!(polls.get(), 1);
        spawn(async move { drop(stream.take()) }).await.unwrap();
        assert_eq!(soon(peer.read(&mut [0; 1])).await.unwrap(), 0);
        assert!(peer.write(b"x").await.is_err());
        some_turns().await;
        assert_eq!(polls.get(), 1);
        reader.abort();
        assert!(reader.await.unwrap_err().is_cancelled());
    });
}

fn a_half_waits_on_while_the_other_one_goes<B: Backend>() {
    B::block_on(async {
        let (client, mut server) = tcp_pair().await;
        let (mut read, write) = client.into_split();
        let reading = spawn(async move {
            let mut buf = [0; 8];
            let length = read.read(&mut buf).await.unwrap();
            buf[..length].to_vec()
        });
        yield_now().await;
        drop(write);
        assert_eq!(soon(server.read(&mut [0; 1])).await.unwrap(), 0);
        server.write_all(b"answer").await.unwrap();
        assert_eq!(soon(reading).await.unwrap(), b"answer");
    });
}

fn an_abandoned_connect_accept_or_receive_leaves_nothing_behind<B: Backend>() {
    B::block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let udp = UdpSocket::bind(localhost()).await.unwrap();
        for _ in 0..50 {
            assert!(timeout(Duration::ZERO, listener.accept()).await.is_err());
            assert!(timeout(Duration::ZERO, udp.recv(&mut [0; 1])).await.is_err());
            let mut connecting = Box::pin(TcpStream::connect(addr));
            poll_fn(|cx| {
                let _ = connecting.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
            drop(connecting);
            let whole = soon(TcpStream::connect(addr)).await.unwrap();
            // The abandoned one may be first in the backlog.
            while soon(listener.accept()).await.unwrap().1 != whole.local_addr().unwrap() {}
        }
        udp.send_to(b"!", udp.local_addr().unwrap()).await.unwrap();
        assert_eq!(soon(udp.recv(&mut [0; 4])).await.unwrap(), 1);
    });
}

fn a_socket_that_outlives_its_loop_says_so_instead_of_waiting<B: Backend>() {
    let mut event_loop = B::event_loop();
    let directory = std::env::temp_dir().join(format!("wakeful-close-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("socket");
    let sockets = event_loop.block_on(async {
        let listener = TcpListener::bind(localhost()).await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = listener.accept().await.unwrap().0;
        let udp = UdpSocket::bind(localhost()).await.unwrap();
        (listener, client, server, udp, UnixListener::bind(&path).unwrap())
    });
    let (listener, mut client, server, udp, unix) = sockets.unwrap();
    drop(event_loop);
    fn ended<T: std::fmt::Debug>(future: impl Future<Output = std::io::Result<T>>) {
        let error = futures_lite::future::block_on(future).unwrap_err();
        assert!(error.to_string().contains("has ended"), "{error}");
    }
    ended(client.read(&mut [0; 1]));
    ended(client.peek(&mut [0; 1]));
    ended(client.write_all(&vec![0; 1 << 24]));
    ended(listener.accept());
    ended(udp.recv_from(&mut [0; 1]));
    ended(unix.accept());
    let (mut read, write) = server.into_split();
    drop(write);
    // What needs no waiting still works, and so does taking the descriptor.
    let mut buf = vec![0; 1 << 16];
    assert!(futures_lite::future::block_on(read.read(&mut buf)).unwrap() > 0);
    drop(client.into_std());
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Polls `future` with a waker of another executor; it waits.
fn waits<F: Future>(
    event_loop: &mut EventLoop,
    future: F,
    wakes: &Arc<CountedWakes>,
) -> Pin<Box<F>> {
    let (mut future, waker) = (Box::pin(future), wakes.clone().into());
    let mut poll = || future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
    // The first poll of a new socket may meet its first event.
    assert!(event_loop.block_on(poll_fn(|_| Poll::Ready(poll()))).unwrap());
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert!(event_loop.block_on(poll_fn(|_| Poll::Ready(poll()))).unwrap());
    assert_eq!(wakes.count(), 0);
    future
}

/// Polls it again: an error of a loop that has ended.
fn is_told<T: std::fmt::Debug>(
    what: &str,
    event_loop: EventLoop,
    mut waiting: Pin<Box<impl Future<Output = std::io::Result<T>>>>,
    wakes: &Arc<CountedWakes>,
) {
    drop(event_loop);
    assert_eq!(wakes.count(), 1, "{what}: woken once");
    assert_eq!(Arc::strong_count(wakes), 1, "{what}: the waker is dropped");
    let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Err(error)) = polled else { panic!("{what}: {polled:?}") };
    assert!(error.to_string().contains("has ended"), "{what}: {error}");
}

fn who_waits_in_another_executor_is_told_that_the_loop_has_ended<B: Backend>() {
    let wakes = Arc::<CountedWakes>::default;
    let new = || (B::event_loop(), wakes());

    let (mut event_loop, wakes) = new();
    let (mut stream, peer) = event_loop.block_on(async { UnixStream::pair().unwrap() }).unwrap();
    let reading = async move { stream.read(&mut [0; 1]).await };
    let reading = waits(&mut event_loop, reading, &wakes);
    is_told("a read", event_loop, reading, &wakes);
    drop(peer);

    let (mut event_loop, wakes) = new();
    let (mut stream, peer) = event_loop.block_on(async { UnixStream::pair().unwrap() }).unwrap();
    let writing = async move { stream.write_all(&vec![0; 1 << 24]).await };
    let writing = waits(&mut event_loop, writing, &wakes);
    is_told("a write", event_loop, writing, &wakes);
    drop(peer);

    let (mut event_loop, wakes) = new();
    let listener = event_loop.block_on(TcpListener::bind(localhost())).unwrap().unwrap();
    let accepting = waits(&mut event_loop, async move { listener.accept().await }, &wakes);
    is_told("an accept", event_loop, accepting, &wakes);

    let (mut event_loop, wakes) = new();
    let udp = event_loop.block_on(UdpSocket::bind(localhost())).unwrap().unwrap();
    let receiving = waits(&mut event_loop, async move { udp.recv(&mut [0; 1]).await }, &wakes);
    is_told("a receive", event_loop, receiving, &wakes);

    let (mut event_loop, wakes) = new();
    let signals = event_loop.block_on(async { Signals::new(&[SIGUSR2]) });
    let mut signals = signals.unwrap().unwrap();
    let arriving = waits(&mut event_loop, async move { signals.recv().await }, &wakes);
    is_told("a signal", event_loop, arriving, &wakes);
}

fn who_waits_in_another_executor_for_a_timer_or_a_task_is_woken_by_the_loop_s_end<B: Backend>() {
    let (mut event_loop, wakes) = (B::event_loop(), Arc::<CountedWakes>::default());
    let far = sleep(Duration::from_secs(3600));
    let mut far = waits(&mut event_loop, far, &wakes);
    drop(event_loop);
    assert_eq!(wakes.count(), 1);
    // The loop that polls it next has the timer.
    assert!(B::block_on(poll_fn(|cx| Poll::Ready(far.as_mut().poll(cx)))).is_pending());

    let (mut event_loop, wakes) = (B::event_loop(), Arc::<CountedWakes>::default());
    let task = event_loop.spawn(std::future::pending::<()>());
    let mut task = waits(&mut event_loop, task, &wakes);
    drop(event_loop);
    assert_eq!(wakes.count(), 1);
    let Poll::Ready(ended) = task.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the task has ended");
    };
    assert!(ended.unwrap_err().is_cancelled());
}

fn who_waits_in_another_executor_for_a_drain_is_woken_by_the_loop_s_end<B: Backend>() {
    let wakes = Arc::<CountedWakes>::default();
    let listener = SharedListener::bind(&localhost().into()).unwrap();
    let addr = listener.socket_addr().unwrap();
    let waker: Waker = wakes.clone().into();
    let serving = ConnectionServer::new(vec![listener])
        .group(B::group().loops(1))
        .start(move || {
            let waker = waker.clone();
            move |mut connection: Connection| {
                let waker = waker.clone();
                async move {
                    let mut started = Box::pin(connection.draining.started());
                    let polled = started.as_mut().poll(&mut Context::from_waker(&waker));
                    assert!(polled.is_pending());
                    // Another executor of this thread has it, for longer than the loop lives.
                    std::mem::forget(started);
                    connection.stream.write_all(b"!").await.unwrap();
                }
            }
        })
        .unwrap();
    let mut client = std::net::TcpStream::connect(addr).unwrap();
    client.read_exact(&mut [0; 1]).unwrap();
    assert_eq!(wakes.count(), 0);
    drop(serving);
    assert_eq!(wakes.count(), 1);
}

/// A waker that polls at once, as some executors' do: it finds the loop gone, and is not asked to
/// wait again.
fn who_polls_within_the_wake_of_a_loop_s_end_finds_it_ended<B: Backend>() {
    type Waiting = Pin<Box<dyn Future<Output = std::io::Result<usize>>>>;
    thread_local! {
        static WAITING: RefCell<Option<Waiting>> = const { RefCell::new(None) };
        static ERROR: RefCell<Option<std::io::Error>> = const { RefCell::new(None) };
    }
    struct PollsAtOnce;
    impl Wake for PollsAtOnce {
        fn wake(self: Arc<Self>) {
            let mut waiting = WAITING.take().expect("woken once");
            match waiting.as_mut().poll(&mut Context::from_waker(&self.into())) {
                Poll::Ready(result) => ERROR.set(result.err()),
                Poll::Pending => WAITING.set(Some(waiting)),
            }
        }
    }
    let mut event_loop = B::event_loop();
    let waker = Arc::new(PollsAtOnce).into();
    let (mut stream, peer) = event_loop.block_on(async { UnixStream::pair().unwrap() }).unwrap();
    let mut reading: Waiting = Box::pin(async move { stream.read(&mut [0; 1]).await });
    assert!(reading.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    WAITING.set(Some(reading));
    drop(event_loop);
    let error = ERROR.take().expect("it was polled, and has its answer");
    assert!(error.to_string().contains("has ended"), "{error}");
    drop(peer);
}
