//! The signal handlers. A handler sets a flag, and writes to the eventfd that a loop watches. A
//! forked child inherits the handlers and the eventfd. A signal that is sent to the child must not
//! reach the parent's loop, so the handler checks for a fork first.
//!
//! The handler uses an eventfd and not a socket, because a seccomp filter that refuses `sendto`
//! would hide the signal. A loop cannot work without `write` anyway.
//!
//! A process may fork while another thread is in a handler, perhaps in the program's own one, which
//! this crate's calls. (`signal-hook` counts the handlers that run, and waits for them when a
//! signal is registered: in such a child for ever.) So nobody waits for a handler, and it takes no
//! lock.
//! The [entries](ENTRIES) that it reads are never freed. Their actions are freed later if a handler
//! [runs](running_handlers). Changes are made [between forks](between_forks), one at a time.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io, iter, mem, ptr};

use signal_hook::low_level::emulate_default_handler;

use crate::sys::before_fork::between_forks;
use crate::sys::clock::monotonic;
use crate::sys::fork_check::Process;
use crate::sys::running_handlers;

/// Unblocks `signals` on this thread, and on those that it starts from now on.
pub(crate) fn unblock(signals: &[i32]) -> io::Result<()> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call fills in `set`, the others change and read it. A number that is no
    // signal is refused.
    let refused = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        // Every signal is added, even after a number that is no signal.
        let add = |signal: &i32| libc::sigaddset(set.as_mut_ptr(), *signal) != 0;
        let refused = signals.iter().map(add).fold(false, |any, refused| any | refused);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        refused
    };
    if refused { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(()) }
}

/// From now on, each arrival of `signal` in this process sets `arrived`, and then adds to
/// `eventfd`, until the returned value is dropped. The eventfd must not block. Several signals may
/// share it.
pub(crate) fn watch(
    signal: i32,
    arrived: Arc<AtomicBool>,
    eventfd: Arc<OwnedFd>,
) -> io::Result<Watch> {
    let process = Process::current()?;
    let tell = move || {
        if !process.is_forked() {
            arrived.store(true, Ordering::Release);
            // If the counter is full, there are arrivals that are not yet taken, and the task that
            // takes one checks all flags.
            let _ = rustix::io::write(&eventfd, &1_u64.to_ne_bytes());
        }
    };
    // SAFETY: what runs in the handler is async-signal-safe: a load, a store and one system call;
    // nothing is allocated or locked, and nothing panics.
    unsafe { register(signal, Box::new(tell)) }
}

/// An arrival of `signal` in this process after `from` does what the signal does by default, until
/// the returned value is dropped. It is for a process whose loop cannot receive signals because it
/// is busy.
pub(crate) fn end_by(signal: i32, from: Instant) -> io::Result<Watch> {
    let process = Process::current()?;
    let end = move || {
        if !process.is_forked() && Instant::now() >= from {
            let _ = emulate_default_handler(signal);
        }
    };
    // SAFETY: what runs in the handler is async-signal-safe: a load, a read of the clock, and a
    // function that says it is; nothing is allocated or locked, and nothing panics.
    unsafe { register(signal, Box::new(end)) }
}

/// An arrival of `signal` more than `pause` from now, while nothing here watches it, does what it
/// did before this crate caught it, unless other code has installed its handler since. In process
/// 1 of a container it has no effect: the kernel ignores it there.
pub(crate) fn give_back(signal: i32, pause: Duration) {
    let nanoseconds = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    if let Some(from) = of_signal(&GIVEN_BACK, signal) {
        from.store(monotonic().saturating_add(nanoseconds), Ordering::Relaxed);
    }
}

/// What a handler calls.
type Action = Box<dyn Fn() + Send + Sync>;

/// A place for the action of a signal.
struct Entry {
    signal: c_int,
    next: Option<&'static Entry>,
    /// Of an `Arc`. Null: the entry is free.
    action: AtomicPtr<Action>,
}

/// The last entry that was made.
static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// What each signal did before this crate's handler was installed. Null: it is not installed. What
/// it points to is never freed.
static EARLIER: [AtomicPtr<libc::sigaction>; 65] = [const { AtomicPtr::new(ptr::null_mut()) }; 65];

/// From when on each signal has its default effect again, if no entry has an action for it, on the
/// clock of [`monotonic`]. 0: never.
static GIVEN_BACK: [AtomicU64; 65] = [const { AtomicU64::new(0) }; 65];

/// Actions that no entry has any more, and that a handler may still be calling.
static REMOVED: Mutex<Vec<Arc<Action>>> = Mutex::new(Vec::new());

fn of_signal<T>(table: &'static [T; 65], signal: c_int) -> Option<&'static T> {
    usize::try_from(signal).ok().and_then(|signal| table.get(signal))
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: null, or an entry that `entry_for` has published and that is never freed.
    let last = unsafe { ENTRIES.load(Ordering::Acquire).as_ref() };
    iter::successors(last, |entry| entry.next)
}

/// A free entry, which is made if there is none.
fn entry_for(signal: c_int) -> &'static Entry {
    let is_free =
        |entry: &&Entry| entry.signal == signal && entry.action.load(Ordering::Relaxed).is_null();
    entries().find(is_free).unwrap_or_else(|| {
        let (next, action) = (entries().next(), AtomicPtr::default());
        let entry = Box::leak(Box::new(Entry { signal, next, action }));
        ENTRIES.store(entry, Ordering::Release);
        entry
    })
}

/// From now on, each arrival of `signal` calls `action`, until the returned value is dropped.
///
/// # Safety
/// The action must be async-signal-safe, and must not panic.
unsafe fn register(signal: c_int, action: Action) -> io::Result<Watch> {
    let action = Arc::into_raw(Arc::new(action)).cast_mut();
    let (watch, installed) = between_forks(|| {
        let entry = entry_for(signal);
        // The handler must find it as soon as there is a handler.
        entry.action.store(action, Ordering::SeqCst);
        (Watch(entry), install(signal))
    });
    installed.map(|()| watch)
}

/// Installs the handler, unless that has been done.
fn install(signal: c_int) -> io::Result<()> {
    let earlier = of_signal(&EARLIER, signal);
    let earlier = earlier.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    if !earlier.load(Ordering::Relaxed).is_null() {
        return Ok(());
    }
    // SAFETY: zeros are a valid value.
    let mut before: libc::sigaction = unsafe { mem::zeroed() };
    let mut ours = before;
    ours.sa_sigaction = handle as *const () as usize;
    ours.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
    let done = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the call only fills in `before`.
    done(unsafe { libc::sigaction(signal, ptr::null(), &raw mut before) })?;
    // The handler must find it, too.
    earlier.store(Box::into_raw(Box::new(before)), Ordering::Release);
    let mut replaced = before;
    // SAFETY: the call reads `ours`, and fills in `replaced`. The handler is async-signal-safe.
    done(unsafe { libc::sigaction(signal, &raw const ours, &raw mut replaced) }).inspect_err(
        |_| {
            let unused = earlier.swap(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: it was made above, and there is no handler that could have read it.
            drop(unsafe { Box::from_raw(unused) });
        },
    )?;
    if replaced.sa_sigaction != before.sa_sigaction {
        // Other code has installed its handler between the two calls. The first value stays: a
        // handler may be reading it.
        earlier.store(Box::into_raw(Box::new(replaced)), Ordering::Release);
    }
    Ok(())
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: it is this thread's, and the interrupted code may be about to read it.
    let errno = unsafe { *libc::__errno_location() };
    let was_default = call_earlier(signal, info, context);
    let mut is_watched = false;
    running_handlers::during(|| {
        for entry in entries().filter(|entry| entry.signal == signal) {
            let action = entry.action.load(Ordering::SeqCst);
            // SAFETY: null, or of an `Arc` that is not dropped while a handler runs.
            if let Some(action) = unsafe { action.as_ref() } {
                action();
                is_watched = true;
            }
        }
    });
    if was_default && !is_watched && is_given_back(signal) && is_ours(signal) {
        // It is async-signal-safe. If it is refused, the signal has no effect.
        let _ = emulate_default_handler(signal);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn is_given_back(signal: c_int) -> bool {
    let from = of_signal(&GIVEN_BACK, signal).map_or(0, |from| from.load(Ordering::Relaxed));
    from != 0 && monotonic() >= from && std::process::id() != 1
}

/// Is our handler the one that the kernel calls? Otherwise it was called by another one, which may
/// have an action of its own.
fn is_ours(signal: c_int) -> bool {
    // SAFETY: zeros are a valid value.
    let mut now: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: the call only fills in `now`, and is async-signal-safe.
    let result = unsafe { libc::sigaction(signal, ptr::null(), &raw mut now) };
    result == 0 && now.sa_sigaction == handle as *const () as usize
}

/// Calls the handler that the program had installed before, if it had one. Returns whether the
/// signal had its default effect.
fn call_earlier(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    let earlier = of_signal(&EARLIER, signal);
    // SAFETY: null, or what `install` has published and nobody frees.
    let earlier = earlier.and_then(|earlier| unsafe { earlier.load(Ordering::Acquire).as_ref() });
    let Some(earlier) = earlier else { return false };
    let handler = earlier.sa_sigaction;
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&handler) {
        return handler == libc::SIG_DFL;
    }
    let handler = handler as *const ();
    // SAFETY: it is a function of this kind, which the kernel would have called like this.
    unsafe {
        if earlier.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            mem::transmute::<*const (), Handler>(handler)(signal, info, context);
        } else {
            mem::transmute::<*const (), extern "C" fn(c_int)>(handler)(signal);
        }
    }
    false
}

/// A signal's action is called until this is dropped.
pub(crate) struct Watch(&'static Entry);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.signal).finish()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let unused = between_forks(|| {
            let action = self.0.action.swap(ptr::null_mut(), Ordering::SeqCst);
            // SAFETY: it is of the `Arc` that `register` has stored, and this takes it out.
            let action = unsafe { Arc::from_raw(action) };
            let mut removed = REMOVED.lock().unwrap_or_else(PoisonError::into_inner);
            removed.push(action);
            // A handler that begins after this finds the action in no entry.
            if running_handlers::are_none() { mem::take(&mut *removed) } else { Vec::new() }
        });
        drop(unused);
    }
}

#[cfg(all(test, not(wakeful_loom), not(miri)))] // Miri has no masks of signals.
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// The signals that this thread blocks now.
    fn blocked() -> libc::sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the call changes no mask, and fills in `set`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr());
            set.assume_init()
        }
    }

    fn is_blocked(signal: i32) -> bool {
        let set = blocked();
        // SAFETY: it reads a set that the kernel has filled in.
        unsafe { libc::sigismember(&raw const set, signal) == 1 }
    }

    #[test]
    fn a_number_that_is_no_signal_leaves_no_other_one_blocked() {
        const BLOCKED: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];
        let mut set = blocked();
        // SAFETY: the calls change a set and this thread's mask.
        unsafe {
            BLOCKED.iter().for_each(|signal| _ = libc::sigaddset(&raw mut set, *signal));
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        assert!(BLOCKED.iter().all(|signal| is_blocked(*signal)));
        let error = unblock(&[libc::SIGUSR1, 9_999, -1, libc::SIGUSR2]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(!BLOCKED.iter().any(|signal| is_blocked(*signal)));
    }

    /// A signal that nothing else here uses.
    const SIGNAL: c_int = libc::SIGURG;

    static EARLIER_SAW: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn earlier(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: the kernel has made it.
        let of = unsafe { (*info).si_signo };
        EARLIER_SAW.fetch_add(usize::from((signal, of) == (SIGNAL, SIGNAL)), Ordering::Relaxed);
    }

    fn raise() {
        // SAFETY: it takes a number.
        assert_eq!(unsafe { libc::raise(SIGNAL) }, 0);
    }

    fn watch_by(action: impl Fn() + Send + Sync + 'static) -> Watch {
        // SAFETY: the actions of these tests only use atomics.
        unsafe { register(SIGNAL, Box::new(action)) }.unwrap()
    }

    #[test]
    fn the_earlier_handler_is_called_and_actions_are_until_they_are_removed() {
        // SAFETY: zeros are a valid value, and the handler is async-signal-safe.
        unsafe {
            let mut own: libc::sigaction = mem::zeroed();
            own.sa_sigaction = earlier as *const () as usize;
            own.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(SIGNAL, &raw const own, ptr::null_mut()), 0);
        }
        let calls = Arc::new(AtomicUsize::new(0));
        let counts = |calls: &Arc<AtomicUsize>| {
            let calls = calls.clone();
            watch_by(move || _ = calls.fetch_add(1, Ordering::Relaxed))
        };
        let watches = [counts(&calls), counts(&calls)];
        let seen = || (EARLIER_SAW.load(Ordering::Relaxed), calls.load(Ordering::Relaxed));
        raise();
        assert_eq!(seen(), (1, 2));
        drop(watches);
        raise();
        assert_eq!(seen(), (2, 2));
        let entries = || entries().filter(|entry| entry.signal == SIGNAL).count();
        let before = entries();
        let watch = counts(&calls);
        assert_eq!(entries(), before, "they are used again");
        raise();
        assert_eq!(seen(), (3, 3));
        drop(watch);

        // What a handler on another thread uses stays until it has ended.
        let (begun, may_end) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new((begun, may_end));
        let its = shared.clone();
        let watch = watch_by(move || {
            its.0.store(true, Ordering::Release);
            while !its.1.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        });
        let handles = std::thread::spawn(raise);
        while !shared.0.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        drop(watch);
        drop(counts(&calls));
        assert_eq!(Arc::strong_count(&shared), 2);
        shared.1.store(true, Ordering::Release);
        handles.join().unwrap();
        // Handlers of other tests may run meanwhile.
        while Arc::strong_count(&shared) > 1 {
            drop(counts(&calls));
        }
    }
}
