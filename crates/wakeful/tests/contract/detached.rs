//! Sockets that are on no loop: what is theirs travels along, what is the loop's stays behind.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use wakeful::accept::{Listener, SharedListener};
use wakeful::net::{
    Attached, DetachedStream, PeerAddr, Stream, TcpListener, TcpStream, UnixListener, UnixStream,
};
use wakeful::time::timeout;
use wakeful::{EventLoop, Priority};

use crate::backend::driven::Driven;
use crate::backend::{Backend, localhost};
use crate::background::LONG;
use crate::support::{soon, tcp_pair};

on_every_backend! {
    a_detached_stream_takes_its_unread_bytes_along,
    what_came_while_a_stream_was_on_no_loop_is_read_at_once,
    a_wake_that_was_on_its_way_reaches_nobody_behind_a_detach,
    a_stream_that_no_loop_takes_comes_back_whole,
    a_detached_stream_that_is_dropped_closes_the_connection,
    a_stream_leaves_a_loop_that_has_ended,
    a_stream_that_was_split_is_detached_when_it_is_whole_again,
    a_stream_s_options_travel_along,
    a_stream_s_priority_travels_along,
    a_stream_of_each_kind_is_read_in_its_own_way_on_the_next_loop,
    a_listener_of_each_kind_moves_with_its_backlog,
    a_shared_listener_that_was_detached_is_still_shared,
}

/// Both ends of a connection, of each kind.
async fn pairs() -> [(Stream, Stream); 2] {
    let (client, server) = tcp_pair().await;
    let (one, other) = UnixStream::pair().unwrap();
    [(client.into(), server.into()), (one.into(), other.into())]
}

/// All that comes until the end.
async fn rest(mut stream: Stream) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), [0; 64]);
    loop {
        match soon(stream.read(&mut buf)).await.unwrap() {
            0 => return all,
            read => all.extend_from_slice(&buf[..read]),
        }
    }
}

fn a_detached_stream_takes_its_unread_bytes_along<B: Backend>() {
    let group = B::group().loops(1).build().unwrap();
    B::block_on(async {
        for (mut client, mut server) in pairs().await {
            client.write_all(b"one two ").await.unwrap();
            let mut buf = [0; 8];
            soon(server.peek(&mut buf)).await.unwrap();
            assert_eq!(soon(server.read(&mut buf)).await.unwrap(), 8);
            let detached = server.detach().with_unread(&buf[4..6]).with_unread(&buf[6..]);
            assert_eq!(detached.unread(), b"two ");
            client.write_all(b"three").await.unwrap();
            drop(client);
            let read = group.handles()[0].spawn(move || async move {
                let Attached { stream, unread } = detached.attach().unwrap();
                [unread, rest(stream).await].concat()
            });
            assert_eq!(soon(read.unwrap()).await.unwrap(), b"two three");
        }
    });
    group.shutdown(LONG).unwrap();
}

fn what_came_while_a_stream_was_on_no_loop_is_read_at_once<B: Backend>() {
    let (mut here, mut there) = (B::event_loop(), B::event_loop());
    let pairs = here.block_on(async {
        let mut detached = Vec::new();
        for (mut client, mut server) in pairs().await {
            // It waited here, and was told so.
            let mut cx = Context::from_waker(Waker::noop());
            assert!(pin!(server.read(&mut [0; 1])).poll(&mut cx).is_pending());
            let server = server.detach();
            client.write_all(b"bye").await.unwrap();
            detached.push(server);
        }
        detached
    });
    there
        .block_on(async {
            for detached in pairs.unwrap() {
                let mut stream = detached.attach().unwrap().stream;
                let mut buf = [0; 8];
                let mut cx = Context::from_waker(Waker::noop());
                let read = pin!(stream.read(&mut buf)).poll(&mut cx);
                assert!(matches!(read, std::task::Poll::Ready(Ok(3))), "{read:?}");
                // The end came with the bytes, before this loop knew the socket.
                assert_eq!(rest(stream).await, b"");
            }
        })
        .unwrap();
}

thread_local! {
    static STREAMS: RefCell<[Option<UnixStream>; 2]> = const { RefCell::new([None, None]) };
    static DETACHED: RefCell<Vec<DetachedStream>> = const { RefCell::new(Vec::new()) };
    static WOKEN: Cell<usize> = const { Cell::new(0) };
}

/// Takes the other stream off the loop, in the midst of the batch that has an event for it too.
struct DetachesTheOther(usize);

impl Wake for DetachesTheOther {
    fn wake(self: Arc<Self>) {
        WOKEN.set(WOKEN.get() + 1);
        if let Some(other) = STREAMS.with_borrow_mut(|streams| streams[1 - self.0].take()) {
            DETACHED.with_borrow_mut(|detached| detached.push(other.detach()));
        }
    }
}

fn a_wake_that_was_on_its_way_reaches_nobody_behind_a_detach<B: Backend>() {
    let (mut here, mut there) = (B::event_loop(), B::event_loop());
    let mut peers = Vec::new();
    here.block_on(async {
        for number in 0..2 {
            let (peer, socket) = StdUnixStream::pair().unwrap();
            peers.push(peer);
            let mut stream = UnixStream::from_std(socket).unwrap();
            let waker = Arc::new(DetachesTheOther(number)).into();
            let mut cx = Context::from_waker(&waker);
            assert!(pin!(stream.read(&mut [0; 1])).poll(&mut cx).is_pending());
            STREAMS.with_borrow_mut(|streams| streams[number] = Some(stream));
        }
    })
    .unwrap();
    peers.iter_mut().for_each(|peer| peer.write_all(b"x").unwrap());
    let before = here.handle().metrics();
    here.take_turn(Some(Duration::ZERO)).unwrap();
    let after = here.handle().metrics();
    assert_eq!(after.waits - before.waits, 1, "one batch");
    assert_eq!(after.events - before.events, 1, "the other event is for nobody");
    assert_eq!(WOKEN.get(), 1);
    let detached = DETACHED.take().pop().expect("it was detached");
    drop((STREAMS.take(), peers));
    there
        .block_on(async { assert_eq!(rest(detached.attach().unwrap().stream).await, b"x") })
        .unwrap();
    assert_eq!(WOKEN.get(), 1);
}

fn a_stream_that_no_loop_takes_comes_back_whole<B: Backend>() {
    let mut event_loop = B::event_loop();
    let pairs = event_loop.block_on(pairs()).unwrap();
    for (mut client, server) in pairs {
        let detached = server.detach().with_unread(*b"early ");
        let error = detached.attach().expect_err("no loop runs here");
        assert!(error.to_string().contains("no event loop runs on this thread"), "{error}");
        assert_eq!(error.error().kind(), io::ErrorKind::Other);
        let again = error.into_inner();
        let read = event_loop.block_on(async {
            let Attached { stream, unread } = again.attach().unwrap();
            client.write_all(b"late").await.unwrap();
            drop(client);
            [unread, rest(stream).await].concat()
        });
        assert_eq!(read.unwrap(), b"early late");
    }
    let (client, server) = event_loop.block_on(tcp_pair()).unwrap();
    // With `?` it is closed, and the error is the kernel's or the runtime's own.
    let attached = server.detach().attach().map_err(io::Error::from);
    assert!(attached.unwrap_err().to_string().starts_with("no event loop runs"));
    assert_eq!(event_loop.block_on(rest(client.into())).unwrap(), b"");
}

fn a_detached_stream_that_is_dropped_closes_the_connection<B: Backend>() {
    B::block_on(async {
        for (client, server) in pairs().await {
            let detached = server.detach();
            match detached.peer_addr().unwrap() {
                PeerAddr::Tcp(peer) => {
                    let Stream::Tcp(client) = &client else { panic!("it is TCP") };
                    assert_eq!(peer, client.local_addr().unwrap());
                }
                PeerAddr::Unix => assert!(matches!(client, Stream::Unix(_))),
            }
            thread::spawn(move || drop(detached)).join().unwrap();
            assert_eq!(rest(client).await, b"");
        }
    });
}

fn a_stream_leaves_a_loop_that_has_ended<B: Backend>() {
    let mut ended = B::event_loop();
    let pairs = ended.block_on(pairs()).unwrap();
    drop(ended);
    B::block_on(async {
        for (client, server) in pairs {
            let mut client = client.detach().attach().unwrap().stream;
            let server = server.detach().attach().unwrap().stream;
            client.write_all(b"alive").await.unwrap();
            drop(client);
            assert_eq!(rest(server).await, b"alive");
        }
    });
}

fn a_stream_that_was_split_is_detached_when_it_is_whole_again<B: Backend>() {
    B::block_on(async {
        for (client, server) in pairs().await {
            let (read, write) = client.into_split();
            let whole = read.reunite(write).unwrap();
            let mut client = whole.detach().attach().unwrap().stream;
            client.write_all(b"whole").await.unwrap();
            drop(client);
            assert_eq!(rest(server).await, b"whole");
        }
    });
}

fn a_stream_s_options_travel_along<B: Backend>() {
    let mut there = B::event_loop();
    let detached = B::block_on(async {
        let (client, server) = tcp_pair().await;
        assert!(!server.nodelay().unwrap());
        server.set_nodelay(true).unwrap();
        drop(client);
        server.detach()
    });
    let stream = there.block_on(async { detached.attach().unwrap().stream }).unwrap();
    let Stream::Tcp(stream) = stream else { panic!("it is TCP") };
    assert!(stream.nodelay().unwrap());
}

/// Counts the bytes that a stream brings, one in a read.
fn counts(event_loop: &EventLoop, priority: Priority, stream: DetachedStream) -> Rc<Cell<usize>> {
    let read = Rc::new(Cell::new(0));
    let counted = read.clone();
    let task = async move {
        let mut stream = stream.attach().unwrap().stream;
        while stream.read(&mut [0; 1]).await.unwrap() > 0 {
            counted.set(counted.get() + 1);
        }
    };
    event_loop.spawn_with(priority, task).detach();
    read
}

/// With ten sockets ready in front of it, and one event fetched in a turn, a high one is served in
/// the next turn and a normal one is not.
fn a_stream_s_priority_travels_along<B: Backend>() {
    for priority in [Priority::Normal, Priority::High] {
        let mut event_loop = B::builder().io_batch(1).build().unwrap();
        let (mut peers, mut reads) = (Vec::new(), Vec::new());
        for number in 0..11 {
            let (peer, socket) = StdUnixStream::pair().unwrap();
            let detached = B::block_on(async {
                let stream = UnixStream::from_std(socket).unwrap();
                if number == 10 {
                    stream.set_priority(priority).unwrap();
                }
                stream.detach()
            });
            peers.push(peer);
            reads.push(counts(&event_loop, priority, detached));
        }
        let turn = |event_loop: &mut EventLoop| event_loop.take_turn(Some(Duration::ZERO)).unwrap();
        (0..20).for_each(|_| turn(&mut event_loop));
        peers.iter_mut().for_each(|peer| peer.write_all(b"x").unwrap());
        turn(&mut event_loop);
        let is_high = priority == Priority::High;
        assert_eq!(reads[10].get(), usize::from(is_high), "{priority:?}");
        (0..20).for_each(|_| turn(&mut event_loop));
        assert!(reads.iter().all(|read| read.get() == 1));
    }
}

/// Urgent data and attached descriptors hide bytes behind them from a short read: each kind of
/// socket knows of its own.
fn a_stream_of_each_kind_is_read_in_its_own_way_on_the_next_loop<B: Backend>() {
    B::block_on(async {
        for _ in 0..20 {
            let (client, server) = tcp_pair().await;
            client.set_nodelay(true).unwrap();
            let server = server.detach();
            rustix::net::send(&client, b"abc!", SendFlags::OOB).unwrap();
            rustix::net::send(&client, b"def", SendFlags::empty()).unwrap();
            drop(client);
            assert_eq!(rest(server.attach().unwrap().stream).await, b"abcdef");

            let (client, server) = UnixStream::pair().unwrap();
            let mut stream = server.detach().attach().unwrap().stream;
            let mut buf = [0; 64];
            // It waits, so that what the loop is told of a new socket is over: nothing but the kind
            // of the read says that there are more bytes.
            let waits = timeout(Duration::from_micros(500), stream.read(&mut buf)).await;
            assert!(waits.is_err(), "nothing was sent");
            let attached = std::fs::File::open("/dev/null").unwrap();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [attached.as_fd()];
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            let flags = SendFlags::empty();
            rustix::net::sendmsg(&client, &[IoSlice::new(b"abc")], &mut control, flags).unwrap();
            rustix::net::send(&client, b"def", flags).unwrap();
            let mut bytes = Vec::new();
            while bytes.len() < 6 {
                let read = soon(stream.read(&mut buf)).await.unwrap();
                bytes.extend_from_slice(&buf[..read]);
            }
            assert_eq!(bytes, b"abcdef");
        }
    });
}

/// Says a byte to who connected, on the loop of the group.
async fn greets(listener: Listener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_all(b"!").await.unwrap();
}

fn a_listener_of_each_kind_moves_with_its_backlog<B: Backend>() {
    let group = B::group().loops(1).build().unwrap();
    let other = &group.handles()[0];
    let path = std::env::temp_dir().join(format!("wakeful-detached-{}", std::process::id()));
    B::block_on(async {
        let tcp = TcpListener::bind(localhost()).await.unwrap();
        let addr = tcp.local_addr().unwrap();
        let client = std::net::TcpStream::connect(addr).unwrap();
        let detached = tcp.detach();
        let greeting = other.spawn(move || greets(detached.attach().unwrap())).unwrap();
        assert_eq!(rest(TcpStream::from_std(client).unwrap().into()).await, b"!");
        soon(greeting).await.unwrap();

        let unix = UnixListener::bind(&path).unwrap();
        let client = StdUnixStream::connect(&path).unwrap();
        let detached = unix.detach();
        let greeting = other.spawn(move || greets(detached.attach().unwrap())).unwrap();
        assert_eq!(rest(UnixStream::from_std(client).unwrap().into()).await, b"!");
        soon(greeting).await.unwrap();
    });
    std::fs::remove_file(&path).unwrap();
    group.shutdown(LONG).unwrap();
}

fn a_shared_listener_that_was_detached_is_still_shared<B: Backend>() {
    let group = B::group().loops(1).build().unwrap();
    let shared = SharedListener::bind(&localhost().into()).unwrap();
    let addr = shared.socket_addr().unwrap();
    let detached = B::block_on(async { shared.attach().unwrap().detach() });
    let refused = detached.attach().expect_err("no loop runs here");
    let detached = refused.into_inner();
    let greeting = group.handles()[0].spawn(move || async move {
        let Listener::Tcp(listener) = detached.attach().unwrap() else { panic!("it is TCP") };
        let refused = listener.set_priority(Priority::High).unwrap_err().to_string();
        assert!(refused.contains("several loops share"), "{refused}");
        greets(Listener::Tcp(listener)).await;
    });
    B::block_on(async {
        let client = TcpStream::connect(addr).await.unwrap();
        soon(greeting.unwrap()).await.unwrap();
        assert_eq!(rest(client.into()).await, b"!");
    });
    group.shutdown(LONG).unwrap();
}
