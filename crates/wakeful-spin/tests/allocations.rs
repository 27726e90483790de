//! A wait allocates nothing where it may be in a signal handler that has interrupted `malloc`. In a
//! process of its own, whose allocator counts.
#![allow(unsafe_code)] // An allocator, libc's calls, and what blocks a signal.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::{null, null_mut};
use std::thread;
use std::time::{Duration, Instant};

use wakeful::idle::Quota;
use wakeful_spin::Adaptive;

/// Reached only by what never comes.
const LONG: Duration = Duration::from_secs(30);
/// More than a thread needs to find out what a sleep costs.
const SPINS: u64 = 64;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does the work. Counting allocates nothing: the thread-local has a
// constant for its first value, and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[test]
fn a_look_at_a_quota_allocates_nothing() {
    // A path as long as a container's, for which the standard library would allocate.
    let root = std::env::temp_dir().join(format!("wakeful-quota-{}", std::process::id()));
    let directory = (0..4).fold(root.clone(), |path, _| path.join("d".repeat(200)));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("cpu.max"), "50000 100000\n").unwrap();
    fs::write(directory.join("cpu.stat"), "usage_usec 1\nnr_throttled 0\n").unwrap();
    let quota = Quota::of_directory(directory);
    let before = ALLOCATIONS.get();
    let share = quota.look(0);
    assert_eq!(ALLOCATIONS.get(), before);
    assert!(share < 0.5, "it was not read: {share}");
    fs::remove_dir_all(root).unwrap();
}

/// Waits by `wait` for what another thread echoes, until this process has spun some times more.
/// Returns what this thread allocated meanwhile.
fn allocations_of(mut wait: impl FnMut()) -> impl FnOnce(UnixStream) -> u64 {
    move |mut stream| {
        let (start, spun) = (Instant::now(), wakeful_spin::counts().spins);
        let before = ALLOCATIONS.get();
        while wakeful_spin::counts().spins < spun + SPINS {
            assert!(start.elapsed() < LONG, "it does not spin");
            stream.write_all(&[1]).unwrap();
            wait();
            stream.read_exact(&mut [0]).unwrap();
        }
        ALLOCATIONS.get() - before
    }
}

fn echoed() -> UnixStream {
    let (here, mut there) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let mut byte = [0];
        while there.read(&mut byte).is_ok_and(|read| read > 0) && there.write_all(&byte).is_ok() {}
    });
    here
}

/// As in a signal handler: its signal is blocked.
fn by_poll_with_a_signal_blocked() -> u64 {
    let stream = echoed();
    let mut fds = [libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    // SAFETY: the set is filled in before it is read, and `fds` has one descriptor.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigemptyset(&raw mut mask);
        libc::sigaddset(&raw mut mask, libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, null_mut());
        allocations_of(|| assert_eq!(libc::poll(fds.as_mut_ptr(), 1, -1), 1))(stream)
    }
}

fn by_epoll() -> u64 {
    let stream = echoed();
    // SAFETY: there is room for one event.
    unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &raw mut event);
        let wait = || assert_eq!(libc::epoll_pwait(epoll, &raw mut event, 1, -1, null()), 1);
        let allocations = allocations_of(wait)(stream);
        libc::close(epoll);
        allocations
    }
}

#[test]
fn a_poll_that_may_be_in_a_signal_handler_starts_no_thread_and_another_wait_does() {
    wakeful_spin::enable_with(Adaptive::new()).unwrap();
    let on_a_thread = |run: fn() -> u64| thread::spawn(run).join().unwrap();
    assert_eq!(on_a_thread(by_poll_with_a_signal_blocked), 0);
    assert!(on_a_thread(by_epoll) > 0, "no thread measures what a wake costs");
}
