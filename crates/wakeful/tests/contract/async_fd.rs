//! `AsyncFd`: any descriptor that the kernel can watch wakes its tasks, and what is known of its
//! readiness is neither lost nor made up.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::net::{TcpListener as StdTcpListener, TcpStream as StdTcpStream, UdpSocket as StdUdp};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Wake, Waker};

use rustix::event::{EventfdFlags, epoll as kernel, eventfd};
use rustix::fs::OFlags;
use rustix::net::{SendFlags, send};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use wakeful::readiness::{AsyncFd, Interest, NotReady};
use wakeful::task::yield_now;
use wakeful::{Priority, spawn};

use crate::backend::{Backend, localhost};
use crate::support::{is_pending, soon};

on_every_backend! {
    descriptors_of_every_kind_wake_their_task,
    what_is_ready_stays_ready_until_an_attempt_would_block,
    what_nobody_has_said_is_not_ready,
    an_event_behind_a_guard_is_not_cleared_with_it,
    all_who_wait_are_told,
    a_wait_that_is_given_up_leaves_nothing,
    only_who_asked_last_is_woken_by_hand,
    what_cannot_be_watched_is_an_error,
    the_mode_of_the_open_file_stays_as_it_is,
    urgent_data_is_a_readiness_of_its_own,
    an_end_stays_ready,
    what_came_in_another_direction_is_not_cleared,
    an_error_that_has_passed_is_not_ready_for_ever,
    a_task_that_never_clears_lets_others_run,
    who_waits_is_told_of_the_loop_s_end,
    a_high_descriptor_is_told_too,
    given_back_it_can_be_watched_again,
}

fn pair() -> (AsyncFd<StdUnixStream>, StdUnixStream) {
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (AsyncFd::nonblocking(ours).unwrap(), theirs)
}

fn read(mut stream: &StdUnixStream) -> io::Result<usize> {
    stream.read(&mut [0; 64])
}

async fn read_a_word(fd: impl AsFd) {
    let fd = AsyncFd::new(fd).unwrap();
    let mut buf = [0; 8];
    let read = fd.async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut buf)?));
    assert!(soon(read).await.unwrap() > 0);
}

fn descriptors_of_every_kind_wake_their_task<B: Backend>() {
    B::block_on(async {
        // A pipe.
        let (reads, writes) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        let reading = spawn(async move { read_a_word(reads).await });
        yield_now().await;
        rustix::io::write(&writes, b"word").unwrap();
        reading.await.unwrap();

        // A counter of the kernel's.
        let counter = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        let counter = Rc::new(counter);
        let reading = spawn({
            let counter = counter.clone();
            async move { read_a_word(&*counter).await }
        });
        yield_now().await;
        rustix::io::write(&*counter, &1_u64.to_ne_bytes()).unwrap();
        reading.await.unwrap();

        // A timer of the kernel's.
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).unwrap();
        let millisecond = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: millisecond };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once).unwrap();
        read_a_word(timer).await;

        // Another library's epoll.
        let other = AsyncFd::new(kernel::create(kernel::CreateFlags::CLOEXEC).unwrap()).unwrap();
        let (watched, mut theirs) = StdUnixStream::pair().unwrap();
        let data = kernel::EventData::new_u64(0);
        kernel::add(other.get_ref(), &watched, data, kernel::EventFlags::IN).unwrap();
        assert!(is_pending(other.readable()).await);
        theirs.write_all(b"x").unwrap();
        drop(soon(other.readable()).await.unwrap());
    });
}

fn what_is_ready_stays_ready_until_an_attempt_would_block<B: Backend>() {
    B::block_on(async {
        let (ours, mut theirs) = pair();
        theirs.write_all(b"one").unwrap();
        for _ in 0..3 {
            let guard = soon(ours.readable()).await.unwrap();
            assert!(guard.ready().is_readable() && !guard.ready().is_writable());
        }
        let mut guard = soon(ours.readable()).await.unwrap();
        assert_eq!(guard.try_io(read).unwrap().unwrap(), 3);
        // It may still be ready: nobody has found otherwise.
        let mut guard = soon(ours.readable()).await.unwrap();
        assert_eq!(guard.try_io(read).unwrap_err(), NotReady);
        assert!(is_pending(ours.readable()).await);
        theirs.write_all(b"two").unwrap();
        soon(ours.readable()).await.unwrap().clear_ready();
        assert!(is_pending(ours.readable()).await, "it was said to be over");
        theirs.write_all(b"three").unwrap();
        assert_eq!(soon(ours.async_io(Interest::READABLE, read)).await.unwrap(), 8);

        let both = Interest::READABLE | Interest::WRITABLE;
        let guard = soon(ours.ready(both)).await.unwrap();
        assert!(guard.ready().is_writable());
        assert!(soon(ours.writable()).await.is_ok());
    });
}

fn what_nobody_has_said_is_not_ready<B: Backend>() {
    B::block_on(async {
        let (ours, _theirs) = pair();
        assert!(is_pending(ours.readable()).await);
        assert!(is_pending(ours.ready(Interest::PRIORITY)).await);
        // The kernel says so by itself.
        drop(soon(ours.writable()).await.unwrap());
    });
}

/// What the kernel had to say before is dispatched after this.
async fn ask_the_kernel() {
    let (ours, mut theirs) = pair();
    theirs.write_all(b"x").unwrap();
    drop(soon(ours.readable()).await.unwrap());
}

fn an_event_behind_a_guard_is_not_cleared_with_it<B: Backend>() {
    B::block_on(async {
        let (ours, mut theirs) = pair();
        theirs.write_all(b"one").unwrap();
        let mut early = soon(ours.readable()).await.unwrap();
        assert_eq!(read(ours.get_ref()).unwrap(), 3);
        theirs.write_all(b"three").unwrap();
        ask_the_kernel().await;
        early.clear_ready();
        let mut late = soon(ours.readable()).await.unwrap();
        early.clear_ready();
        drop(soon(ours.readable()).await.unwrap());
        // An attempt finds what is so now, whichever guard it is made by.
        assert_eq!(early.try_io(read).unwrap().unwrap(), 5);
        assert_eq!(early.try_io(read).unwrap_err(), NotReady);
        assert!(is_pending(ours.readable()).await);
        assert_eq!(late.try_io(read).unwrap_err(), NotReady);
    });
}

fn all_who_wait_are_told<B: Backend>() {
    B::block_on(async {
        let (ours, mut theirs) = pair();
        let ours = Rc::new(ours);
        let told = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let (ours, told) = (ours.clone(), told.clone());
                spawn(async move {
                    let guard = ours.readable().await.unwrap();
                    told.set(told.get() + 1);
                    // Held until all have theirs.
                    while told.get() < 10 {
                        yield_now().await;
                    }
                    drop(guard);
                })
            })
            .collect();
        yield_now().await;
        theirs.write_all(b"x").unwrap();
        for task in tasks {
            soon(task).await.unwrap();
        }
    });
}

fn a_wait_that_is_given_up_leaves_nothing<B: Backend>() {
    B::block_on(async {
        let (ours, mut theirs) = pair();
        let woken = Arc::new(Counting::default());
        let waker = Waker::from(woken.clone());
        for _ in 0..100 {
            let all = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
            assert!(pin!(ours.ready(all)).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(Arc::strong_count(&woken), 2, "the waker of a wait went with it");
        theirs.write_all(b"x").unwrap();
        ask_the_kernel().await;
        drop(soon(ours.readable()).await.unwrap());
    });
}

#[derive(Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn only_who_asked_last_is_woken_by_hand<B: Backend>() {
    B::block_on(async {
        let (ours, mut theirs) = pair();
        let first = Arc::new(Counting::default());
        let waker = Waker::from(first.clone());
        assert!(ours.poll_readable(&mut Context::from_waker(&waker)).is_pending());
        let ours = Rc::new(ours);
        let reading = spawn({
            let ours = ours.clone();
            async move { poll_fn(|cx| ours.poll_readable(cx).map_ok(drop)).await }
        });
        yield_now().await;
        theirs.write_all(b"x").unwrap();
        soon(reading).await.unwrap().unwrap();
        assert_eq!(first.0.load(Relaxed), 0);
        poll_fn(|cx| ours.poll_writable(cx).map_ok(drop)).await.unwrap();
    });
}

fn what_cannot_be_watched_is_an_error<B: Backend>() {
    let file = std::env::current_exe().unwrap();
    let (ours, _theirs) = StdUnixStream::pair().unwrap();
    let nowhere = AsyncFd::new(&ours).unwrap_err();
    assert!(nowhere.to_string().contains("no event loop runs"), "{nowhere}");
    B::block_on(async {
        let regular = AsyncFd::new(std::fs::File::open(&file).unwrap()).unwrap_err();
        assert_eq!(regular.kind(), io::ErrorKind::InvalidInput);
        assert!(regular.to_string().contains("regular file"), "{regular}");
        let directory = AsyncFd::new(std::fs::File::open("/").unwrap()).unwrap_err();
        assert_eq!(directory.kind(), io::ErrorKind::InvalidInput);

        let watched = AsyncFd::new(&ours).unwrap();
        let again = AsyncFd::new(&ours).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        drop(watched);
        let duplicate = ours.try_clone().unwrap();
        let _both = (AsyncFd::new(&ours).unwrap(), AsyncFd::new(&duplicate).unwrap());

        // Not open for I/O: a mere name of the file.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let name = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()).unwrap();
        let closed = AsyncFd::new(name).unwrap_err();
        assert!(closed.to_string().contains("not open"), "{closed}");
    });
}

fn the_mode_of_the_open_file_stays_as_it_is<B: Backend>() {
    let is_nonblocking =
        |fd: &StdUnixStream| rustix::fs::fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK);
    B::block_on(async {
        let (ours, mut theirs) = StdUnixStream::pair().unwrap();
        let inherited = ours.try_clone().unwrap();
        let watched = AsyncFd::new(&ours).unwrap();
        assert!(!is_nonblocking(&inherited));
        theirs.write_all(b"x").unwrap();
        assert_eq!(soon(watched.async_io(Interest::READABLE, |fd| read(fd))).await.unwrap(), 1);
        drop(watched);
        assert!(!is_nonblocking(&inherited));
        drop(AsyncFd::nonblocking(&ours).unwrap());
        assert!(is_nonblocking(&inherited), "it was asked for");
    });
}

fn urgent_data_is_a_readiness_of_its_own<B: Backend>() {
    let listener = StdTcpListener::bind(localhost()).unwrap();
    let client = StdTcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    B::block_on(async {
        let server = AsyncFd::nonblocking(server).unwrap();
        let mut plain = &client;
        plain.write_all(b"plain").unwrap();
        drop(soon(server.readable()).await.unwrap());
        assert!(is_pending(server.ready(Interest::PRIORITY)).await);
        send(&client, b"!", SendFlags::OOB).unwrap();
        let mut guard = soon(server.ready(Interest::PRIORITY)).await.unwrap();
        assert!(guard.ready().is_priority() && !guard.ready().is_readable());
        guard.clear_ready();
        assert!(is_pending(server.ready(Interest::PRIORITY)).await);
        drop(soon(server.readable()).await.unwrap());
        // A task that waits for this interest learns of the end, too.
        drop(client);
        for _ in 0..2 {
            soon(server.ready(Interest::PRIORITY)).await.unwrap().clear_ready();
        }
    });
}

fn an_end_stays_ready<B: Backend>() {
    B::block_on(async {
        let (ours, theirs) = pair();
        drop(theirs);
        for _ in 0..3 {
            let mut guard = soon(ours.readable()).await.unwrap();
            guard.clear_ready();
            assert!(guard.ready().is_read_closed());
            let mut guard = soon(ours.writable()).await.unwrap();
            guard.clear_ready();
            assert!(guard.ready().is_write_closed());
        }
        assert_eq!(soon(ours.async_io(Interest::READABLE, read)).await.unwrap(), 0);

        // A full pipe whose reader is gone has an error, and nothing else. One with room is
        // writable, too.
        for is_full in [true, false] {
            let (reads, writes) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
            let writes = AsyncFd::new(writes).unwrap();
            while is_full && rustix::io::write(&writes, &[0; 4096]).is_ok() {}
            drop(reads);
            ask_the_kernel().await;
            for _ in 0..3 {
                let mut guard = soon(writes.writable()).await.unwrap();
                assert!(guard.ready().is_write_closed());
                guard.clear_ready();
            }
        }
    });
}

/// A guard speaks of what it saw.
fn what_came_in_another_direction_is_not_cleared<B: Backend>() {
    B::block_on(async {
        let (ours, mut theirs) = pair();
        let both = Interest::READABLE | Interest::WRITABLE;
        let mut writable = soon(ours.ready(both)).await.unwrap();
        assert!(!writable.ready().is_readable());
        theirs.write_all(b"x").unwrap();
        ask_the_kernel().await;
        let full = |_: &StdUnixStream| Err::<(), _>(io::ErrorKind::WouldBlock.into());
        assert_eq!(writable.try_io(full).unwrap_err(), NotReady);
        let mut guard = soon(ours.ready(both)).await.unwrap();
        assert!(guard.ready().is_readable() && !guard.ready().is_writable());
        guard.clear_ready_matching(Interest::WRITABLE);
        drop(soon(ours.readable()).await.unwrap());
        guard.clear_ready_matching(both);
        assert!(is_pending(ours.readable()).await);
    });
}

fn an_error_that_has_passed_is_not_ready_for_ever<B: Backend>() {
    // It takes only what comes from itself.
    let nobody = StdUdp::bind(localhost()).unwrap();
    nobody.connect(nobody.local_addr().unwrap()).unwrap();
    let socket = StdUdp::bind(localhost()).unwrap();
    socket.connect(nobody.local_addr().unwrap()).unwrap();
    B::block_on(async {
        let socket = AsyncFd::nonblocking(socket).unwrap();
        let receive = |socket: &StdUdp| socket.recv(&mut [0; 8]);
        for _ in 0..3 {
            socket.get_ref().send(b"is anybody there").unwrap();
            let refused = soon(socket.async_io(Interest::READABLE, receive)).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let mut guard = soon(socket.readable()).await.unwrap();
            assert_eq!(guard.try_io(receive).unwrap_err(), NotReady);
            assert!(is_pending(socket.readable()).await, "the error has been read");
            let writable = soon(socket.writable()).await.unwrap();
            assert!(!writable.ready().is_write_closed(), "it has passed");
        }
    });
}

fn a_task_that_never_clears_lets_others_run<B: Backend>() {
    B::block_on(async {
        let (ours, mut theirs) = pair();
        theirs.write_all(b"x").unwrap();
        let greedy = spawn(async move {
            loop {
                drop(ours.readable().await.unwrap());
            }
        });
        for _ in 0..100 {
            soon(yield_now()).await;
        }
        drop(greedy);
    });
}

fn who_waits_is_told_of_the_loop_s_end<B: Backend>() {
    let mut event_loop = B::event_loop();
    let (ours, _theirs) = event_loop.block_on(async { pair() }).unwrap();
    let woken = Arc::new(Counting::default());
    let waker = Waker::from(woken.clone());
    let mut waits = pin!(ours.readable());
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(event_loop);
    assert_eq!(woken.0.load(Relaxed), 1);
    let told = waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(told, std::task::Poll::Ready(Err(_))), "the loop has ended");
}

fn a_high_descriptor_is_told_too<B: Backend>() {
    B::block_on(async {
        let (ours, mut theirs) = pair();
        ours.set_priority(Priority::High).unwrap();
        theirs.write_all(b"x").unwrap();
        assert_eq!(soon(ours.async_io(Interest::READABLE, read)).await.unwrap(), 1);
    });
}

fn given_back_it_can_be_watched_again<B: Backend>() {
    B::block_on(async {
        let (ours, mut theirs) = pair();
        let plain: StdUnixStream = ours.into_inner();
        theirs.write_all(b"x").unwrap();
        let again = AsyncFd::new(OwnedFd::from(plain)).unwrap();
        drop(soon(again.readable()).await.unwrap());
    });
}
