//! Groups of loops, and one listener for all of them.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::accept::{ConnectionServer, SharedListener};
use wakeful::group::Targets;
use wakeful::net::ListenAddr;

use crate::backend::{Backend, localhost};
use crate::background::LONG;

on_every_backend! {
    loops_run_on_named_threads_of_their_own_one_for_each_cpu_by_default,
    a_name_that_no_thread_can_have_is_an_error_and_not_a_panic,
    pinned_loops_have_one_cpu_each,
    shutdown_waits_for_tasks_within_its_grace_and_not_beyond,
    a_blocked_loop_is_reported_and_not_waited_for,
    one_listener_serves_through_all_loops_and_loses_no_connection,
    a_listener_that_nobody_accepts_from_does_not_make_its_loop_spin,
    a_left_over_socket_file_is_replaced_and_a_live_one_refused,
    under_light_load_a_connection_wakes_no_loop_but_the_active_one,
}

fn loops_run_on_named_threads_of_their_own_one_for_each_cpu_by_default<B: Backend>() {
    let group = B::group().loops(3).name("group").build().unwrap();
    let mut names: Vec<_> = group
        .handles()
        .iter()
        .map(|handle| {
            handle.post_and_wait(|| thread::current().name().unwrap().to_owned()).unwrap()
        })
        .collect();
    names.sort();
    assert_eq!(names, ["group-0", "group-1", "group-2"]);
    group.shutdown(LONG).unwrap();
    let default = B::group().build().unwrap();
    assert_eq!(default.handles().len(), thread::available_parallelism().unwrap().get());
}

fn a_name_that_no_thread_can_have_is_an_error_and_not_a_panic<B: Backend>() {
    let error = B::group().loops(1).name("a\0b").build().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("a\\0b"), "{error}");
    for name in ["", "of more than fifteen bytes", "ä ö"] {
        let group = B::group().loops(1).name(name).build().unwrap();
        let thread = group.handles()[0].post_and_wait(|| thread::current().name().map(Into::into));
        assert_eq!(thread.unwrap(), Some(format!("{name}-0")));
    }
}

fn pinned_loops_have_one_cpu_each<B: Backend>() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap().count();
    let group = B::group().loops(4).pin().build().unwrap();
    let mut cpus = HashSet::new();
    for handle in group.handles() {
        let set = handle.post_and_wait(|| {
            let set = rustix::thread::sched_getaffinity(None).unwrap();
            (0..1024).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>()
        });
        let set = set.unwrap();
        assert_eq!(set.len(), 1);
        cpus.insert(set[0]);
    }
    assert_eq!(cpus.len(), 4.min(allowed as usize));
}

fn shutdown_waits_for_tasks_within_its_grace_and_not_beyond<B: Backend>() {
    let group = B::group().loops(2).build().unwrap();
    let (done, is_done) = mpsc::channel();
    for handle in group.handles() {
        let done = done.clone();
        handle
            .spawn(move || async move {
                wakeful::time::sleep(Duration::from_millis(20)).await;
                done.send(()).unwrap();
            })
            .unwrap()
            .detach();
    }
    group.shutdown(LONG).unwrap();
    assert_eq!(is_done.try_iter().count(), 2, "they finished first");

    let group = B::group().loops(2).build().unwrap();
    let endless = group.handles()[0].spawn(std::future::pending::<()>).unwrap();
    let start = Instant::now();
    group.shutdown(Duration::from_millis(20)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20) && start.elapsed() < LONG);
    assert!(B::block_on(endless).unwrap_err().is_cancelled());
}

fn a_blocked_loop_is_reported_and_not_waited_for<B: Backend>() {
    let group = B::group().loops(1).name("stuck").build().unwrap();
    let (release, released) = mpsc::channel::<()>();
    let (blocked, is_blocked) = mpsc::channel();
    group.handles()[0]
        .post(move || {
            blocked.send(()).unwrap();
            let _ = released.recv();
        })
        .unwrap();
    is_blocked.recv().unwrap();
    let error = group.shutdown(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("stuck-0 is blocked"), "{error}");
    drop(release);
}

fn one_listener_serves_through_all_loops_and_loses_no_connection<B: Backend>() {
    let listener = SharedListener::bind(&localhost().into()).unwrap();
    let addr = listener.socket_addr().unwrap();
    let serving = ConnectionServer::new(vec![listener])
        .group(B::group().loops(4))
        .start(|| {
            async |mut connection| {
                let mut buf = [0; 16];
                let read = connection.stream.read(&mut buf).await.unwrap();
                connection.stream.write_all(&buf[..read]).await.unwrap();
            }
        })
        .unwrap();
    let clients: Vec<_> = (0..4_u8)
        .map(|client| {
            thread::spawn(move || {
                for number in 0..250_u8 {
                    let mut stream = std::net::TcpStream::connect(addr).unwrap();
                    stream.set_read_timeout(Some(LONG)).unwrap();
                    stream.write_all(&[client, number]).unwrap();
                    let mut answer = [0; 2];
                    stream.read_exact(&mut answer).unwrap();
                    assert_eq!(answer, [client, number]);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(serving.counts().accepted(), 1_000);
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
    assert!(std::net::TcpStream::connect(addr).is_err(), "it listens no more");
}

fn a_listener_that_nobody_accepts_from_does_not_make_its_loop_spin<B: Backend>() {
    let listener = SharedListener::bind(&localhost().into()).unwrap();
    let addr = listener.socket_addr().unwrap();
    B::block_on(async move {
        let attached = listener.attach().unwrap();
        let _waiting = std::net::TcpStream::connect(addr).unwrap();
        let handle = wakeful::LoopHandle::current();
        let before = handle.metrics().waits;
        for _ in 0..10 {
            wakeful::time::sleep(Duration::from_millis(1)).await;
        }
        let waits = handle.metrics().waits - before;
        assert!(waits < 40, "{waits} waits for 10 timers");
        // And it is still there to be accepted.
        let accepted = wakeful::time::timeout(LONG, attached.accept()).await.unwrap();
        assert!(accepted.is_ok());
    });
}

fn a_left_over_socket_file_is_replaced_and_a_live_one_refused<B: Backend>() {
    let path = std::env::temp_dir().join(format!("wakeful-group-{}.sock", std::process::id()));
    let addr = ListenAddr::Unix(path.clone());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "std leaves it behind");
    let live = SharedListener::bind(&addr).unwrap();
    let error = SharedListener::bind(&addr).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    drop(live);
    assert!(!path.exists());
    std::fs::write(&path, "not a socket").unwrap();
    assert!(SharedListener::bind(&addr).is_err());
    assert!(path.exists(), "somebody's file is left alone");
    std::fs::remove_file(&path).unwrap();
}

fn under_light_load_a_connection_wakes_no_loop_but_the_active_one<B: Backend>() {
    let listener = SharedListener::bind(&localhost().into()).unwrap();
    let addr = listener.socket_addr().unwrap();
    let group = B::group().loops(4).concentrate(Targets::default());
    let serving = ConnectionServer::new(vec![listener]).group(group).start(|| {
        async |mut connection| {
            let mut byte = [0];
            if let Ok(1) = connection.stream.read(&mut byte).await {
                let _ = connection.stream.write_all(&byte).await;
            }
        }
    });
    let serving = serving.unwrap();
    let others = || serving.handles()[1..].iter().map(|handle| handle.metrics().waits).sum::<u64>();
    // On a busy machine the active one may seem to have too much to do; but not every time.
    let slept = (0..20).any(|_| {
        let before = others();
        for _ in 0..50 {
            let mut stream = std::net::TcpStream::connect(addr).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(b"?").unwrap();
            stream.read_exact(&mut [0]).expect("it is served");
        }
        others() == before
    });
    assert!(slept, "others are woken for what the active loop can do");
    assert_eq!(serving.shutdown(LONG).unwrap(), 0);
}
