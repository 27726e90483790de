//! The waits of a program that spins: events, timeouts, errors and signals are as without.
#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, pollfd, sigset_t, timespec};
use wakeful_spin::{Adaptive, counts};

/// Counts and handlers are the process's: one test at a time.
static PROCESS: Mutex<()> = Mutex::new(());
static HANDLED: AtomicU32 = AtomicU32::new(0);
/// Attempts to meet a spin: a neighbour may end one early.
const TRIES: usize = 30;
/// Longer than the first spins of a thread.
const LONG: c_int = 5_000;

fn enabled() -> MutexGuard<'static, ()> {
    let alone = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    wakeful_spin::enable_with(Adaptive::new().max_window(Duration::from_millis(16))).unwrap();
    alone
}

extern "C" fn count(_: c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

fn handle(signal: c_int, handler: usize, flags: c_int) {
    // SAFETY: all zeros is an action, and the handler counts only.
    let done = unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        libc::sigaction(signal, &raw const action, null_mut())
    };
    assert_eq!(done, 0);
}

fn counted() -> usize {
    count as *const () as usize
}

fn set_of(signals: &[c_int]) -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: it is filled in first.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// Sets this thread's mask, and returns what it was.
fn mask(set: Option<&sigset_t>) -> sigset_t {
    let mut before = MaybeUninit::uninit();
    let set = set.map_or(null(), |set| &raw const *set);
    // SAFETY: it reads one set, if there is one, and fills in the other.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, set, before.as_mut_ptr());
        before.assume_init()
    }
}

fn is_in(set: &sigset_t, signal: c_int) -> bool {
    // SAFETY: it reads a set.
    unsafe { libc::sigismember(&raw const *set, signal) == 1 }
}

/// A connection, whose one end is in an epoll.
struct Watched {
    near: UnixStream,
    far: UnixStream,
    epoll: OwnedFd,
}

const TOKEN: u64 = 7;

impl Watched {
    fn new() -> Self {
        let (near, far) = UnixStream::pair().unwrap();
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: TOKEN };
        // SAFETY: a new descriptor, and one event that is read.
        let epoll = unsafe {
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let near = near.as_raw_fd();
            let added =
                libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, near, &raw mut event);
            assert_eq!(added, 0);
            epoll
        };
        Self { near, far, epoll }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    EpollWait,
    EpollPwait,
    EpollPwait2,
    Poll,
    Ppoll,
}

const KINDS: [Kind; 5] =
    [Kind::EpollWait, Kind::EpollPwait, Kind::EpollPwait2, Kind::Poll, Kind::Ppoll];

impl Kind {
    /// Waits for the near end, and returns what libc's function does, or the error.
    fn wait(
        self,
        watched: &Watched,
        timeout: c_int,
        set: Option<&sigset_t>,
    ) -> Result<c_int, c_int> {
        let mut events = [epoll_event { events: 0, u64: 0 }; 4];
        let mut fds = [pollfd { fd: watched.near.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        let set = set.map_or(null(), |set| &raw const *set);
        let time = timespec {
            tv_sec: i64::from(timeout) / 1000,
            tv_nsec: i64::from(timeout) % 1000 * 1_000_000,
        };
        let (epoll, to) = (watched.epoll.as_raw_fd(), events.as_mut_ptr());
        // SAFETY: as many events as are named, and whatever else is read.
        let returned = unsafe {
            match self {
                Self::EpollWait => libc::epoll_wait(epoll, to, 4, timeout),
                Self::EpollPwait => libc::epoll_pwait(epoll, to, 4, timeout, set),
                Self::EpollPwait2 => libc::epoll_pwait2(epoll, to, 4, &raw const time, set),
                Self::Poll => libc::poll(fds.as_mut_ptr(), 1, timeout),
                Self::Ppoll => libc::ppoll(fds.as_mut_ptr(), 1, &raw const time, set),
            }
        };
        if returned < 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap());
        }
        if returned > 0 {
            let is_poll = matches!(self, Self::Poll | Self::Ppoll);
            let (token, ready) = (events[0].u64, fds[0].revents);
            assert!(if is_poll { ready == libc::POLLIN } else { token == TOKEN });
        }
        Ok(returned)
    }
}

/// A thread that waits.
#[derive(Clone, Copy)]
struct Waiting {
    thread: libc::pthread_t,
    number: libc::pid_t,
}

impl Waiting {
    fn kill(self, signal: c_int) {
        // SAFETY: it is not joined yet.
        assert_eq!(unsafe { libc::pthread_kill(self.thread, signal) }, 0);
    }
}

/// Has a new thread wait, calls `meanwhile` as soon as it spins, or sleeps, and returns
/// what `wait` has returned, and whether the spin was ended by `meanwhile`, or by the timeout: by
/// nothing that is counted.
fn spinning<T: Send>(
    wait: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(Waiting),
) -> (T, bool) {
    let before = counts();
    let (id, of_thread) = mpsc::channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            // SAFETY: both return this thread's id.
            id.send(unsafe { (libc::pthread_self() as usize, libc::gettid()) }).unwrap();
            wait()
        });
        let (thread, number) = of_thread.recv().unwrap();
        while counts().spins == before.spins && !sleeps(number) {
            thread::yield_now();
        }
        meanwhile(Waiting { thread: thread as libc::pthread_t, number });
        let waited = waiting.join().unwrap();
        let after = counts();
        let others = |counts: wakeful_spin::Counts| counts.misses + counts.gave_way;
        (waited, after.spins > before.spins && others(after) == others(before))
    })
}

/// Also if it has ended.
fn sleeps(thread: libc::pid_t) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    stat.map_or(true, |stat| stat.rsplit(") ").next().unwrap().starts_with('S'))
}

fn not_shown(what: &str, kind: Kind) {
    eprintln!("skipped: {what}, for {kind:?}: other programs leave no CPU to spin on");
}

#[test]
fn a_signal_ends_a_spin_with_eintr_and_its_handler_runs_once() {
    let _alone = enabled();
    for flags in [0, libc::SA_RESTART] {
        handle(libc::SIGUSR1, counted(), flags);
        for kind in KINDS {
            let (mut in_spins, mut overlooked) = (0, 0);
            for _ in 0..TRIES {
                let watched = Watched::new();
                let before = HANDLED.load(Ordering::SeqCst);
                let waited = || (kind.wait(&watched, LONG, None), mask(None));
                let before_it = counts();
                let mut sent_in_spin = false;
                let ((waited, mask), in_spin) = spinning(waited, |thread| {
                    thread.kill(libc::SIGUSR1);
                    let now = counts();
                    sent_in_spin = now.spins > before_it.spins
                        && (now.misses, now.gave_way) == (before_it.misses, before_it.gave_way);
                });
                assert_eq!(waited, Err(libc::EINTR), "{kind:?}");
                assert_eq!(HANDLED.load(Ordering::SeqCst), before + 1, "{kind:?}");
                assert!(!is_in(&mask, libc::SIGUSR1) && !is_in(&mask, libc::SIGTERM));
                in_spins += usize::from(in_spin);
                overlooked += usize::from(sent_in_spin && counts().misses > before_it.misses);
                if in_spins > 3 {
                    break;
                }
            }
            // One that is sent between the last look and the end of a spin ends the sleep.
            assert!(overlooked < 3, "{kind:?}: {overlooked} spins have not seen a signal");
            if in_spins == 0 {
                not_shown("a signal during a spin", kind);
            }
        }
    }
}

#[test]
fn a_signal_ends_the_sleep_behind_a_spin() {
    let _alone = enabled();
    handle(libc::SIGUSR1, counted(), 0);
    for kind in KINDS {
        for timeout in [LONG, -1] {
            let is_time = matches!(kind, Kind::EpollPwait2 | Kind::Ppoll);
            let watched = Watched::new();
            let before = HANDLED.load(Ordering::SeqCst);
            let waited = || kind.wait(&watched, if is_time { LONG } else { timeout }, None);
            let (waited, _) = spinning(waited, |thread| {
                while !sleeps(thread.number) {
                    thread::yield_now();
                }
                thread.kill(libc::SIGUSR1);
            });
            assert_eq!(waited, Err(libc::EINTR), "{kind:?}");
            assert_eq!(HANDLED.load(Ordering::SeqCst), before + 1, "{kind:?}");
        }
    }
}

#[test]
fn a_signal_that_the_program_blocks_ends_no_spin() {
    let _alone = enabled();
    handle(libc::SIGUSR1, counted(), 0);
    let blocked = set_of(&[libc::SIGUSR1]);
    for kind in KINDS {
        let by_argument = matches!(kind, Kind::EpollPwait | Kind::EpollPwait2 | Kind::Ppoll);
        let mut was_in_time = false;
        for _ in 0..TRIES {
            let watched = Watched::new();
            let before = HANDLED.load(Ordering::SeqCst);
            let waited = || {
                let own = mask((!by_argument).then_some(&blocked));
                let waited = kind.wait(&watched, 5, by_argument.then_some(&blocked));
                let over = Instant::now();
                let handled = HANDLED.load(Ordering::SeqCst) - before;
                mask(Some(&own));
                (waited, handled, over)
            };
            let mut sent = None;
            let ((waited, handled, over), _) = spinning(waited, |thread| {
                thread.kill(libc::SIGUSR1);
                sent = Some(Instant::now());
            });
            assert_eq!(waited, Ok(0), "{kind:?}");
            was_in_time = sent.unwrap() < over;
            if was_in_time {
                assert_eq!(HANDLED.load(Ordering::SeqCst), before + 1, "then it has come");
                // Blocked by the argument, its handler runs as soon as the wait is over.
                assert_eq!(handled, u32::from(by_argument), "{kind:?}");
                break;
            }
        }
        if !was_in_time {
            not_shown("a signal during a wait", kind);
        }
    }
}

#[test]
fn a_signal_that_only_the_argument_lets_in_ends_the_wait() {
    let _alone = enabled();
    handle(libc::SIGUSR1, counted(), 0);
    for kind in [Kind::EpollPwait, Kind::EpollPwait2, Kind::Ppoll] {
        let watched = Watched::new();
        let before = HANDLED.load(Ordering::SeqCst);
        let waited = || {
            mask(Some(&set_of(&[libc::SIGUSR1])));
            // SAFETY: it sends this thread a signal.
            unsafe { libc::raise(libc::SIGUSR1) };
            let handled = HANDLED.load(Ordering::SeqCst);
            (kind.wait(&watched, LONG, Some(&set_of(&[]))), handled)
        };
        let ((waited, handled), _) = spinning(waited, |_| ());
        assert_eq!((waited, handled), (Err(libc::EINTR), before), "{kind:?}");
        assert_eq!(HANDLED.load(Ordering::SeqCst), before + 1, "{kind:?}");
    }
}

#[test]
fn a_signal_that_nobody_handles_ends_no_spin() {
    let _alone = enabled();
    for kind in [Kind::Poll, Kind::Ppoll] {
        let watched = Watched::new();
        // Ignored unless it is handled.
        let (waited, _) =
            spinning(|| kind.wait(&watched, 5, None), |thread| thread.kill(libc::SIGURG));
        assert_eq!(waited, Ok(0), "{kind:?}");
    }
}

#[test]
fn an_event_ends_a_spin() {
    let _alone = enabled();
    for kind in KINDS {
        let hits = counts().hits;
        for _ in 0..TRIES {
            let watched = Watched::new();
            let (waited, _) = spinning(
                || kind.wait(&watched, LONG, None),
                |_| (&watched.far).write_all(&[1]).unwrap(),
            );
            assert_eq!(waited, Ok(1), "{kind:?}");
            assert_eq!((&watched.near).read(&mut [0; 8]).unwrap(), 1);
            if counts().hits > hits {
                break;
            }
        }
        if counts().hits == hits {
            not_shown("an event during a spin", kind);
        }
    }
}

#[test]
fn a_timeout_is_never_shorter() {
    let _alone = enabled();
    for kind in KINDS {
        let watched = Watched::new();
        let spins = counts().spins;
        // Within the first spin of a thread, and beyond.
        for timeout in [1, 1, 4, 5] {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let start = Instant::now();
                    assert_eq!(kind.wait(&watched, timeout, None), Ok(0), "{kind:?}");
                    let took = start.elapsed();
                    assert!(took >= Duration::from_millis(timeout as u64), "{kind:?}: {took:?}");
                });
            });
        }
        assert!(counts().spins > spins, "{kind:?}");
        assert_eq!(kind.wait(&watched, 0, None), Ok(0), "{kind:?}");
    }
}

/// What the kernel says to the same.
fn of_the_kernel(call: libc::c_long, arguments: [usize; 6]) -> c_int {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the kernel checks what is wrong on purpose here.
    let returned = unsafe { libc::syscall(call, a, b, c, d, e, f) };
    assert_eq!(returned, -1);
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[test]
fn errors_are_the_kernel_s() {
    let _alone = enabled();
    let bad = 8_usize;
    let check = |name: &str, returned: c_int, expected: c_int| {
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((returned, errno), (-1, Some(expected)), "{name}");
    };
    // Each by a new thread, which would spin.
    let in_new_thread =
        |test: &(dyn Fn() + Sync)| thread::scope(|scope| scope.spawn(test).join().unwrap());
    let watched = Watched::new();
    let epoll = watched.epoll.as_raw_fd();
    let mut events = [epoll_event { events: 0, u64: 0 }; 1];
    let to = events.as_mut_ptr() as usize;
    let wrong = timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
    let wrong = &raw const wrong as usize;
    let fine = timespec { tv_sec: 1, tv_nsec: 0 };
    let fine = &raw const fine as usize;
    for (name, epoll, events, most, timeout, mask) in [
        ("no descriptor", -1, to, 1, fine, 0),
        ("no epoll", watched.near.as_raw_fd(), to, 1, fine, 0),
        ("no room", epoll, to, 0, fine, 0),
        ("no mask", epoll, to, 1, fine, bad),
        ("no time", epoll, to, 1, bad, 0),
        ("a wrong time", epoll, to, 1, wrong, 0),
        ("no epoll and no time", -1, to, 1, bad, 0),
    ] {
        // SAFETY: what is wrong is for the kernel to find.
        in_new_thread(&|| unsafe {
            let arguments = [epoll as usize, events, most as usize, timeout, mask, 8];
            let expected = of_the_kernel(libc::SYS_epoll_pwait2, arguments);
            let returned = libc::epoll_pwait2(epoll, events as _, most, timeout as _, mask as _);
            check(name, returned, expected);
        });
        if timeout == fine {
            // SAFETY: as above.
            in_new_thread(&|| unsafe {
                let arguments = [epoll as usize, events, most as usize, 1000, mask, 8];
                let expected = of_the_kernel(libc::SYS_epoll_pwait, arguments);
                let returned = libc::epoll_pwait(epoll, events as _, most, 1000, mask as _);
                check(name, returned, expected);
                if mask == 0 {
                    let returned = libc::epoll_wait(epoll, events as _, most, 1000);
                    check(name, returned, expected);
                }
            });
        }
    }
    // SAFETY: as above.
    in_new_thread(&|| unsafe {
        check("no descriptors", libc::poll(bad as _, 1, 1000), libc::EFAULT);
        check("too many", libc::poll(bad as _, u64::MAX, 1000), libc::EINVAL);
        let mut fds = [pollfd { fd: 0, events: 0, revents: 0 }];
        check("no mask", libc::ppoll(fds.as_mut_ptr(), 1, fine as _, bad as _), libc::EFAULT);
        check("a wrong time", libc::ppoll(fds.as_mut_ptr(), 1, wrong as _, null()), libc::EINVAL);
    });
    (&watched.far).write_all(&[1]).unwrap();
    // SAFETY: as above.
    in_new_thread(&|| unsafe {
        check("no events", libc::epoll_wait(epoll, bad as _, 1, 1000), libc::EFAULT);
    });
}

#[test]
fn a_forked_child_spins_by_itself() {
    let _alone = enabled();
    let watched = Watched::new();
    // This thread has a spinner, which the child does not use.
    Kind::Poll.wait(&watched, 1, None).unwrap();
    // SAFETY: the child waits, and ends: no lock is held by another thread here that it takes.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let spins = counts().spins;
        let waited = Kind::Poll.wait(&watched, 1, None);
        let as_it_should = waited == Ok(0) && counts().spins == spins + 1;
        // SAFETY: it ends the child.
        unsafe { libc::_exit(c_int::from(!as_it_should)) };
    }
    let mut status = 0;
    // SAFETY: it writes a number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

static WATCHED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn wait_in_handler(_: c_int) {
    let mut fds =
        [pollfd { fd: WATCHED.load(Ordering::SeqCst) as c_int, events: libc::POLLIN, revents: 0 }];
    // SAFETY: one descriptor. `poll` is for signal handlers, too.
    unsafe { libc::poll(fds.as_mut_ptr(), 1, 1) };
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_handler_may_wait_during_a_spin() {
    let _alone = enabled();
    handle(libc::SIGUSR2, wait_in_handler as *const () as usize, 0);
    let watched = Watched::new();
    WATCHED.store(watched.near.as_raw_fd() as usize, Ordering::SeqCst);
    let before = HANDLED.load(Ordering::SeqCst);
    let (waited, _) = spinning(
        || Kind::EpollWait.wait(&watched, LONG, None),
        |thread| thread.kill(libc::SIGUSR2),
    );
    assert_eq!(waited, Err(libc::EINTR));
    assert_eq!(HANDLED.load(Ordering::SeqCst), before + 1);
}

mod cancellation {
    use std::sync::atomic::{AtomicBool, AtomicI32};

    use super::*;

    // The libc crate's are declared as functions that never unwind.
    unsafe extern "C-unwind" {
        fn epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int)
        -> c_int;
        fn poll(fds: *mut pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
        fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    }

    // As in `pthread.h` of both C libraries.
    const ENABLE: c_int = 0;
    const DISABLE: c_int = 1;
    const ASYNCHRONOUS: c_int = 1;
    /// Set in a process of a test that is alone in it, because a failure aborts the process.
    const ALONE: &str = "WAKEFUL_SPIN_TEST_ALONE";

    type Unwinding = extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void;

    /// Cancels a new thread as soon as `meanwhile` has returned, and waits for its end. `main` gets
    /// the number. Nothing in it may have to be dropped. (The libc crate's type of a thread's
    /// function is one that never unwinds; the C library's does.)
    fn is_cancelled(main: Unwinding, argument: c_int, meanwhile: impl FnOnce()) {
        type Main = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;
        let mut id = MaybeUninit::uninit();
        let mut result = null_mut();
        // SAFETY: the C library takes a function that a cancellation unwinds, whatever the libc
        // crate says. The thread is joined, and uses only its argument.
        unsafe {
            let main = std::mem::transmute::<Unwinding, Main>(main);
            let argument = argument as isize as *mut libc::c_void;
            assert_eq!(libc::pthread_create(id.as_mut_ptr(), null(), main, argument), 0);
            meanwhile();
            assert_eq!(libc::pthread_cancel(id.assume_init()), 0);
            CANCELLED.store(true, Ordering::SeqCst);
            assert_eq!(libc::pthread_join(id.assume_init(), &raw mut result), 0);
        }
        assert_eq!(result as isize, -1, "PTHREAD_CANCELED");
    }

    /// Runs `test`, which has this name, in a process of its own.
    fn in_its_own_process(name: &str, test: impl FnOnce()) {
        if std::env::var_os(ALONE).is_some() {
            return test();
        }
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        let program = program.args(["--exact", &format!("cancellation::{name}")]).env(ALONE, "1");
        let output = program.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    extern "C-unwind" fn wait_for_ever(descriptor: *mut libc::c_void) -> *mut libc::c_void {
        let descriptor = descriptor as c_int;
        let mut event = epoll_event { events: 0, u64: 0 };
        let mut fds = [pollfd { fd: -descriptor, events: libc::POLLIN, revents: 0 }];
        // SAFETY: one event, or one descriptor.
        unsafe {
            if descriptor > 0 {
                epoll_wait(descriptor, &raw mut event, 1, -1);
            } else {
                poll(fds.as_mut_ptr(), 1, -1);
            }
        }
        null_mut()
    }

    #[test]
    fn a_thread_that_waits_can_be_cancelled() {
        let _alone = enabled();
        let watched = Watched::new();
        for descriptor in [watched.epoll.as_raw_fd(), -watched.near.as_raw_fd()] {
            is_cancelled(wait_for_ever, descriptor, || {});
        }
    }

    static IS_READY: AtomicBool = AtomicBool::new(false);
    static CANCELLED: AtomicBool = AtomicBool::new(false);

    /// Has traffic until the survey is over, and then waits until a look at the quota is due.
    extern "C-unwind" fn wait_with_a_look_at_the_quota(
        near: *mut libc::c_void,
    ) -> *mut libc::c_void {
        has_traffic(near as c_int);
        let mut before = 0;
        // SAFETY: it writes a number.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        IS_READY.store(true, Ordering::SeqCst);
        until(|| CANCELLED.load(Ordering::SeqCst));
        // A quota is read once a second.
        thread::sleep(Duration::from_millis(1_100));
        // SAFETY: as above.
        unsafe { pthread_setcancelstate(ENABLE, &raw mut before) };
        wait_for_ever(-(near as isize) as *mut libc::c_void)
    }

    fn has_traffic(near: c_int) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) || is_surveying() {
            let mut fds = [pollfd { fd: near, events: libc::POLLIN, revents: 0 }];
            let mut byte = 0_u8;
            // SAFETY: one byte to write, one descriptor, one byte to read.
            unsafe {
                assert_eq!(libc::write(near, (&raw const byte).cast(), 1), 1);
                assert_eq!(poll(fds.as_mut_ptr(), 1, -1), 1);
                assert_eq!(libc::read(near, (&raw mut byte).cast(), 1), 1);
            }
        }
    }

    fn is_surveying() -> bool {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        threads.map_while(Result::ok).any(|thread| {
            let name = std::fs::read_to_string(thread.path().join("comm"));
            name.is_ok_and(|name| name.starts_with("wakeful-survey"))
        })
    }

    fn until(is_over: impl Fn() -> bool) {
        while !is_over() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_cancelled_thread_may_look_at_the_quota_before_it_waits() {
        in_its_own_process("a_cancelled_thread_may_look_at_the_quota_before_it_waits", || {
            let _alone = enabled();
            let Watched { near, mut far, .. } = Watched::new();
            let mut again = far.try_clone().unwrap();
            // Ends with the connection.
            let partner = thread::spawn(move || std::io::copy(&mut far, &mut again));
            is_cancelled(wait_with_a_look_at_the_quota, near.as_raw_fd(), || {
                until(|| IS_READY.load(Ordering::SeqCst));
            });
            drop(near);
            partner.join().unwrap().unwrap();
        });
    }

    static NUMBER: AtomicI32 = AtomicI32::new(0);

    extern "C-unwind" fn wait_and_be_cancelled_at_once(
        descriptor: *mut libc::c_void,
    ) -> *mut libc::c_void {
        let mut before = 0;
        // SAFETY: one returns this thread's id, and the other writes a number.
        unsafe {
            NUMBER.store(libc::gettid(), Ordering::SeqCst);
            pthread_setcanceltype(ASYNCHRONOUS, &raw mut before);
        }
        wait_for_ever(descriptor)
    }

    #[test]
    fn a_thread_that_may_be_cancelled_at_any_instruction_does_not_spin() {
        in_its_own_process(
            "a_thread_that_may_be_cancelled_at_any_instruction_does_not_spin",
            || {
                let _alone = enabled();
                let watched = Watched::new();
                let spins = counts().spins;
                for descriptor in [watched.epoll.as_raw_fd(), -watched.near.as_raw_fd()] {
                    for _ in 0..TRIES {
                        NUMBER.store(0, Ordering::SeqCst);
                        is_cancelled(wait_and_be_cancelled_at_once, descriptor, || {
                            until(|| NUMBER.load(Ordering::SeqCst) > 0);
                            let number = NUMBER.load(Ordering::SeqCst);
                            until(|| counts().spins > spins || sleeps(number));
                        });
                    }
                }
                assert_eq!(counts().spins, spins);
            },
        );
    }
}
