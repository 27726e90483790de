//! A loop driven by somebody else's: `turn`, the descriptor, and `prepare_to_park`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use wakeful::accept::SharedListener;
use wakeful::net::{ListenAddr, UnixStream};
use wakeful::{EventLoop, spawn};

use crate::backend::Backend;
use crate::backend::driven::{BY_HAND, Driven, skip_on_guests};
use crate::support::soon;

on_every_backend! {
    timers_posts_and_sockets_arrive_through_plain_poll,
    preparing_is_refused_while_there_is_work_and_ended_by_a_turn,
    a_loop_is_driven_by_a_task_of_another_loop,
    work_of_the_own_thread_after_the_permission_makes_the_descriptor_readable,
    a_listener_that_nobody_accepts_from_is_left_before_another_loop_waits,
}

/// A foreign loop: it knows nothing of wakeful but a descriptor that turns readable.
fn drive(event_loop: &mut EventLoop, until: impl Fn() -> bool) {
    while !until() {
        if event_loop.asks_to_park().unwrap() {
            let mut fds = [PollFd::new(&*event_loop, PollFlags::IN)];
            // Work that is lost shows as a poll that nothing ends; the guard makes it a failure.
            let guard = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
            match poll(&mut fds, Some(&guard)) {
                Ok(0) => panic!("a wake was lost"),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
}

fn timers_posts_and_sockets_arrive_through_plain_poll<B: Backend>() {
    let mut event_loop = B::event_loop();
    let deadline = Instant::now() + Duration::from_millis(3);
    let timer = event_loop.spawn(wakeful::time::sleep_until(deadline));
    drive(&mut event_loop, || timer.is_finished());
    assert!(Instant::now() >= deadline);

    let (mut peer, socket) = StdUnixStream::pair().unwrap();
    let echo = event_loop.spawn(async move {
        let mut socket = UnixStream::from_std(socket).unwrap();
        let mut buf = [0; 8];
        for _ in 0..100 {
            let read = socket.read(&mut buf).await.unwrap();
            socket.write_all(&buf[..read]).await.unwrap();
        }
    });
    let client = thread::spawn(move || {
        for _ in 0..100 {
            peer.write_all(b"ping").unwrap();
            peer.read_exact(&mut [0; 4]).unwrap();
        }
    });
    drive(&mut event_loop, || echo.is_finished());
    client.join().unwrap();

    let (handle, received) = (event_loop.handle(), Rc::new(std::cell::Cell::new(0)));
    let (send, receive) = async_channel::unbounded();
    let counted = received.clone();
    event_loop
        .spawn(async move {
            while let Ok(()) = receive.recv().await {
                counted.set(counted.get() + 1);
            }
        })
        .detach();
    let producers: Vec<_> = (0..4)
        .map(|_| {
            let (handle, send) = (handle.clone(), send.clone());
            thread::spawn(move || {
                for _ in 0..500 {
                    let send = send.clone();
                    handle.post(move || send.try_send(()).unwrap()).unwrap();
                }
            })
        })
        .collect();
    drive(&mut event_loop, || received.get() == 2_000);
    producers.into_iter().for_each(|p| p.join().unwrap());
}

fn preparing_is_refused_while_there_is_work_and_ended_by_a_turn<B: Backend>() {
    let mut event_loop = B::event_loop();
    event_loop.run_next_turn(|| ());
    assert!(!event_loop.asks_to_park().unwrap());
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert!(event_loop.asks_to_park().unwrap());
    assert!(event_loop.asks_to_park().unwrap(), "asked again, it is still so");
    let handle = event_loop.handle();
    handle.post(|| ()).unwrap();
    assert!(!event_loop.asks_to_park().unwrap());
    event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    assert!(format!("{handle:?}").contains("asleep: false"));
}

fn a_loop_is_driven_by_a_task_of_another_loop<B: Backend>() {
    skip_on_guests(BY_HAND);
    B::block_on(async {
        let mut inner = B::event_loop();
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let std_socket = socket.into_std();
        let served = inner.spawn(async move {
            let mut socket = UnixStream::from_std(std_socket).unwrap();
            let mut buf = [0; 8];
            let read = socket.read(&mut buf).await.unwrap();
            wakeful::time::sleep(Duration::from_millis(1)).await;
            socket.write_all(&buf[..read]).await.unwrap();
        });
        // The outer loop watches the inner one's descriptor, by way of a blocking wait on the pool.
        let driver = spawn(async move {
            while !served.is_finished() {
                if inner.asks_to_park().unwrap() {
                    let fd = rustix::io::dup(&inner).unwrap();
                    wakeful::task::spawn_blocking(move || {
                        poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
                    })
                    .await
                    .unwrap();
                }
                inner.take_turn(Some(Duration::ZERO)).unwrap();
            }
        });
        peer.write_all(b"hello").await.unwrap();
        let mut buf = [0; 8];
        assert_eq!(peer.read(&mut buf).await.unwrap(), 5);
        driver.await.unwrap();
    });
}

/// How the thread queues work outside a turn.
type Way = fn(&EventLoop);

/// Between the permission and the wait, the thread itself may queue work outside a turn.
fn work_of_the_own_thread_after_the_permission_makes_the_descriptor_readable<B: Backend>() {
    let ways: [(&str, Way); 6] = [
        ("spawn", |event_loop| event_loop.spawn(async {}).detach()),
        ("run_this_turn", |event_loop| event_loop.run_this_turn(|| ())),
        ("run_next_turn", |event_loop| event_loop.run_next_turn(|| ())),
        ("a handle's run", |event_loop| event_loop.handle().post(|| ()).unwrap()),
        ("a handle's spawn", |event_loop| {
            event_loop.handle().spawn(|| async {}).unwrap().detach();
        }),
        ("a handle's wake", |event_loop| event_loop.handle().wake()),
    ];
    let mut event_loop = B::event_loop();
    for (name, queue) in ways {
        assert!(event_loop.asks_to_park().unwrap());
        queue(&event_loop);
        let readable = {
            let mut fds = [PollFd::new(&event_loop, PollFlags::IN)];
            poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap()
        };
        assert_eq!(readable, 1, "{name}");
        event_loop.take_turn(Some(Duration::ZERO)).unwrap();
    }
}

fn a_listener_that_nobody_accepts_from_is_left_before_another_loop_waits<B: Backend>() {
    let path = std::env::temp_dir().join(format!("wakeful-embedding-{}", std::process::id()));
    let shared = SharedListener::bind(&ListenAddr::Unix(path.clone())).unwrap();
    let mut event_loop = B::event_loop();
    let listener = event_loop.block_on(async { shared.attach().unwrap() }).unwrap();
    assert!(event_loop.asks_to_park().unwrap());
    // It waits in the backlog when this returns.
    let _client = StdUnixStream::connect(&path).unwrap();
    let now = rustix::event::Timespec::default();
    let ready = poll(&mut [PollFd::new(&event_loop, PollFlags::IN)], Some(&now)).unwrap();
    assert_eq!(ready, 0, "a connection would wake a loop that does not take it");
    event_loop.block_on(soon(listener.accept())).unwrap().unwrap();
    drop(shared);
    let _ = std::fs::remove_file(path);
}
