//! A process forks while one of its loops has CPUs held by a keeper: the child has no copy of the
//! hold, and the loop does not wait for the fork. The keeper is a socket of the test's.
//!
//! Each test runs in a process of its own, because handlers of `pthread_atfork(3)` stay registered,
//! and because the environment names the keeper.

#![allow(unsafe_code)] // `fork`, its handlers, and how a child ends.

use std::env;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, send, socket_with,
};
use wakeful::idle::Hold;
use wakeful::{EventLoop, IdlePolicy, LoopHandle};

/// Reached only by what never comes.
const LONG: Duration = Duration::from_secs(20);
const KEEPER: &str = "WAKEFUL_KEEPER";
const ROLE: &str = "WAKEFUL_TEST_ROLE";
const END: &str = "end";

/// Runs the test in a process of its own. `false`: this is the one.
fn elsewhere(test: &str) -> bool {
    if env::var_os(ROLE).is_some() {
        return false;
    }
    let socket = env::temp_dir().join(format!("wakeful-{test}-{}", std::process::id()));
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .env(KEEPER, &socket)
        .output()
        .unwrap();
    let _ = std::fs::remove_file(socket);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// What one client says, and at last that it has ended. Each hold is granted.
fn keeper() -> Receiver<String> {
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(env::var_os(KEEPER).unwrap()).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    let (said, hears) = mpsc::channel();
    thread::spawn(move || {
        let client: OwnedFd = accept(&listener).unwrap();
        let mut bytes = [0; 4096];
        loop {
            let length = recv(&client, &mut bytes[..], RecvFlags::empty()).map_or(0, |it| it.0);
            let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
            let answer = if message.starts_with("hold") { "held 0" } else { "released" };
            if length == 0 || send(&client, answer.as_bytes(), SendFlags::NOSIGNAL).is_err() {
                let _ = said.send(END.to_owned());
                return;
            }
            let _ = said.send(message);
        }
    });
    hears
}

fn next(hears: &Receiver<String>, begins: &str) {
    let message = hears.recv_timeout(LONG).unwrap_or_else(|_| panic!("no {begins}"));
    assert!(message.starts_with(begins), "{message}, not {begins}");
}

fn start_loop(silence: Duration) -> (LoopHandle, JoinHandle<()>) {
    let (made, is_made) = mpsc::channel();
    let running = thread::spawn(move || {
        let policy = IdlePolicy::Hold(Hold::new().silence(silence));
        let mut event_loop = EventLoop::builder().idle(policy).build().unwrap();
        made.send(event_loop.handle()).unwrap();
        event_loop.run().unwrap();
    });
    (is_made.recv().unwrap(), running)
}

#[test]
fn a_fork_ends_no_hold_and_its_child_has_no_copy_of_it() {
    if elsewhere("a_fork_ends_no_hold_and_its_child_has_no_copy_of_it") {
        return;
    }
    let hears = keeper();
    let (handle, running) = start_loop(Duration::from_secs(1));
    handle.post(|| ()).unwrap();
    next(&hears, "hold");
    // SAFETY: the child only waits for its end, which is allowed after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: both are allowed after a fork.
        unsafe {
            libc::sleep(60);
            libc::_exit(0);
        }
    }
    // It continues holding, and lets go by itself.
    next(&hears, "release");
    handle.stop();
    running.join().unwrap();
    next(&hears, END);
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
    assert_eq!(ended, 0, "it was not the end of the child that ended the connection");
    // SAFETY: our own child.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

static FORK_MAY_GO_ON: OnceLock<Mutex<Receiver<()>>> = OnceLock::new();
static FORK_HAS_BEGUN: OnceLock<mpsc::Sender<()>> = OnceLock::new();

/// Registered before wakeful's own handler, so it runs after it.
extern "C" fn prepare() {
    FORK_HAS_BEGUN.get().unwrap().send(()).unwrap();
    let _ = FORK_MAY_GO_ON.get().unwrap().lock().unwrap().recv_timeout(2 * LONG);
}

#[test]
fn a_loop_that_holds_does_not_wait_for_another_thread_s_fork() {
    if elsewhere("a_loop_that_holds_does_not_wait_for_another_thread_s_fork") {
        return;
    }
    let (go_on, may_go_on) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    FORK_MAY_GO_ON.set(Mutex::new(may_go_on)).unwrap();
    FORK_HAS_BEGUN.set(begun).unwrap();
    // SAFETY: the handler runs on the thread that forks.
    assert_eq!(unsafe { libc::pthread_atfork(Some(prepare), None, None) }, 0);
    let hears = keeper();
    let (handle, running) = start_loop(Duration::from_millis(1));
    handle.post(|| ()).unwrap();
    next(&hears, "hold");
    next(&hears, "release");
    let forking = thread::spawn(|| {
        // SAFETY: the child does nothing but end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    });
    has_begun.recv_timeout(LONG).unwrap();
    for _ in 0..3 {
        handle.post(|| ()).unwrap();
        next(&hears, "hold");
        next(&hears, "release");
    }
    go_on.send(()).unwrap();
    forking.join().unwrap();
    handle.stop();
    running.join().unwrap();
    next(&hears, END);
}
