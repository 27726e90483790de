//! System calls that a seccomp filter refuses: the error says which.

use std::io::{self, Read};
use std::time::Duration;

use futures_lite::future;
use wakeful::accept::{AcceptStrategy, ConnectionServer, Descriptors, SharedListener};
use wakeful::net::TcpListener;
use wakeful::process::Command;
use wakeful::signal::{SIGUSR1, SIGUSR2, Signals};
use wakeful::time::sleep;
use wakeful::{EventLoop, LoopGroup};

mod refused;

use refused::{refuse, refuse_of};

/// On a thread of its own: a filter cannot be taken off.
fn named(call: libc::c_long, name: &'static str, what: fn(EventLoop) -> io::Error) {
    let event_loop = || EventLoop::builder().idle(wakeful::IdlePolicy::Park).build();
    let test = move || {
        // Neither the survey's thread nor the first loop should meet the filter.
        let before = event_loop().unwrap();
        if let Err(error) = refuse(call) {
            return eprintln!("skipped: no filter can be set: {error}");
        }
        let error = what(before);
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("seccomp"), "{name}: {text}");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{text}");
    };
    std::thread::spawn(test).join().unwrap();
}

fn another_loop(before: EventLoop) -> io::Error {
    drop(before);
    EventLoop::new().unwrap_err()
}

#[test]
fn a_loop_names_the_call_that_it_cannot_do_without() {
    named(libc::SYS_epoll_create1, "epoll_create1", another_loop);
    named(libc::SYS_eventfd2, "eventfd2", another_loop);
    named(libc::SYS_epoll_ctl, "epoll_ctl", another_loop);
    named(libc::SYS_sched_getaffinity, "sched_getaffinity", |_| {
        EventLoop::builder().idle(wakeful::IdlePolicy::KeepWarm).build().unwrap_err()
    });
    named(libc::SYS_eventfd2, "eventfd2", |mut event_loop| {
        event_loop.block_on(async { Signals::new(&[SIGUSR1]).unwrap_err() }).unwrap()
    });
}

/// A filter may refuse the calls of sockets to a program that only reads files.
#[test]
fn a_signal_arrives_without_any_call_of_sockets() {
    let test = || {
        let mut event_loop = EventLoop::new().unwrap();
        for call in [libc::SYS_socketpair, libc::SYS_sendto, libc::SYS_sendmsg] {
            if let Err(error) = refuse(call) {
                return eprintln!("skipped: no filter can be set: {error}");
            }
        }
        let received = event_loop.block_on(async {
            let mut signals = Signals::new(&[SIGUSR2]).unwrap();
            // On this thread: the filter is in front of what the handler calls.
            signal_hook::low_level::raise(SIGUSR2).unwrap();
            future::or(async { signals.recv().await.ok() }, async {
                sleep(Duration::from_secs(20)).await;
                None
            })
            .await
        });
        assert_eq!(received.unwrap(), Some(SIGUSR2));
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn a_listener_names_the_call_that_it_cannot_do_without() {
    let listen = |_: EventLoop| SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap_err();
    for (call, name) in [
        (libc::SYS_socket, "socket"),
        (libc::SYS_setsockopt, "setsockopt"),
        (libc::SYS_bind, "bind"),
        (libc::SYS_listen, "listen"),
        (libc::SYS_getsockname, "getsockname"),
    ] {
        named(call, name, listen);
    }
    named(libc::SYS_accept4, "accept4", |mut event_loop| {
        event_loop
            .block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                // A connection, without which nobody calls it.
                let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                listener.accept().await.unwrap_err()
            })
            .unwrap()
    });
}

#[test]
fn a_passed_listener_names_the_call_that_it_cannot_do_without() {
    let take = |_: EventLoop| {
        let passed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        SharedListener::from_socket(passed.into()).unwrap_err()
    };
    for (call, name) in [
        (libc::SYS_getsockopt, "getsockopt"),
        (libc::SYS_getsockname, "getsockname"),
        (libc::SYS_fcntl, "fcntl"),
    ] {
        named(call, name, take);
    }
}

#[test]
fn a_server_with_a_socket_for_each_loop_names_the_call_that_it_cannot_do_without() {
    named(libc::SYS_getsockopt, "getsockopt", |_| {
        let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let server = ConnectionServer::new(vec![listener]).group(LoopGroup::builder().loops(2));
        let server = server.strategy(AcceptStrategy::ReusePort);
        server.start(|| async |_connection| ()).unwrap_err()
    });
}

/// This is so in a chroot without /dev and /proc: no file can be opened.
#[test]
fn a_server_needs_no_file() {
    serves_without(libc::SYS_openat, || ());
}

#[test]
fn a_server_needs_no_answer_about_its_limit_of_descriptors() {
    serves_without(libc::SYS_prlimit64, || {
        assert!(Descriptors::limit().is_some());
        let text = Descriptors::raise_limit().unwrap_err().to_string();
        assert!(text.contains("prlimit64") && text.contains("seccomp"), "{text}");
    });
}

fn serves_without(call: libc::c_long, before: fn()) {
    let test = move || {
        if let Err(error) = refuse(call) {
            return eprintln!("skipped: no filter can be set: {error}");
        }
        before();
        let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.socket_addr().unwrap();
        let server = ConnectionServer::new(vec![listener]).group(LoopGroup::builder().loops(1));
        let serving = server.start(|| |_connection| async {}).unwrap();
        let mut client = std::net::TcpStream::connect(addr).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it was served, and closed");
        serving.shutdown(Duration::from_secs(20)).unwrap();
    };
    std::thread::spawn(test).join().unwrap();
}

/// Then a thread waits, and the loop does not.
#[test]
fn children_are_waited_for_without_pidfds() {
    children_are_waited_for_with(|| refuse(libc::SYS_pidfd_open));
    // As on Linux 5.3: there are pidfds, and `waitid` does not take them.
    children_are_waited_for_with(|| refuse_of(libc::SYS_waitid, libc::P_PIDFD));
}

fn children_are_waited_for_with(filter: fn() -> io::Result<()>) {
    let test = move || {
        let mut event_loop = EventLoop::builder().idle(wakeful::IdlePolicy::Park).build().unwrap();
        if let Err(error) = filter() {
            return eprintln!("skipped: no filter can be set: {error}");
        }
        let run = async {
            let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn()?;
            let stdin = child.stdin.take();
            assert!(future::poll_once(child.wait()).await.is_none());
            assert_eq!(child.try_wait()?, None);
            sleep(Duration::from_millis(1)).await;
            drop(stdin);
            assert!(child.wait().await?.success() && child.wait().await?.success());

            let mut killed = Command::new("sleep").arg("1000").spawn()?;
            killed.kill().await?;
            assert_eq!(killed.id(), None);

            let dropped = Command::new("sleep").arg("1000").kill_on_drop(true).spawn()?;
            let entry = format!("/proc/{}", dropped.id().unwrap());
            drop(dropped);
            while std::path::Path::new(&entry).exists() {
                sleep(Duration::from_millis(1)).await;
            }
            Ok::<_, io::Error>(())
        };
        event_loop.block_on(run).unwrap().unwrap();
    };
    std::thread::spawn(test).join().unwrap();
}
