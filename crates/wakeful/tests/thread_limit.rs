//! A process at its limit of threads (`ulimit -u`): blocking work is refused while there is no
//! thread for it, and waits for the one that there is afterwards. Loops run, groups say why they
//! cannot start, dropped children are reaped, and a drain works.
//!
//! A process of its own, with one test, because it gives up being root, whom the limit does not
//! bind.

#![allow(unsafe_code)] // `setuid`, and a signal.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_lite::AsyncWriteExt;
use futures_lite::future::{block_on, poll_once};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, getuid, kill_process,
    setrlimit, waitid,
};
use wakeful::fs::File;
use wakeful::process::Command;
use wakeful::task::spawn_blocking;
use wakeful::time::{sleep, timeout};
use wakeful::{IdlePolicy, LoopGroup};

mod logged;

/// Nobody else is this user, so that what counts is this process alone.
const USER: libc::uid_t = 54_321;

/// From now on this many threads may be there; more are there already.
fn allow_threads(most: Option<u64>) {
    let maximum = getrlimit(Resource::Nproc).maximum;
    setrlimit(Resource::Nproc, Rlimit { current: most.or(maximum), maximum }).unwrap();
}

fn threads_called(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let called = |path: &Path| std::fs::read_to_string(path.join("comm")).unwrap_or_default();
    tasks.filter(|task| called(&task.as_ref().unwrap().path()).starts_with(name)).count()
}

fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = text.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    let ticks = |number: usize| fields[number].parse::<u64>().unwrap();
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

fn names_the_limits(error: &(impl std::fmt::Display + ?Sized)) {
    let text = error.to_string();
    assert!(text.contains("RLIMIT_NPROC") && text.contains("pids.max"), "{text}");
}

#[test]
fn at_the_thread_limit_blocking_work_is_refused_or_waits_and_a_drain_works() {
    if !getuid().is_root() {
        eprintln!("skipped: only root can become a user who has no other thread");
        return;
    }
    // SAFETY: it takes a number and returns one.
    assert_eq!(unsafe { libc::setuid(USER) }, 0);
    allow_threads(Some(0));
    logged::from_now_on(tracing::Level::WARN);

    // No loop has run: there is no thread, and none can be started.
    let refused = block_on(spawn_blocking(|| 42)).unwrap_err();
    assert!(refused.is_cancelled() && !refused.is_panic());
    names_the_limits(&refused);
    names_the_limits(&block_on(wakeful::net::resolve("localhost:1")).unwrap_err());
    // A write that was handed over is told by the flush, whatever is asked of the file before.
    let mut file = File::from_std(std::fs::File::open("/dev/zero").unwrap());
    assert_eq!(block_on(AsyncWriteExt::write(&mut file, b"x")).unwrap(), 1);
    names_the_limits(&block_on(File::read(&mut file, &mut [0])).unwrap_err());
    names_the_limits(&block_on(File::flush(&mut file)).unwrap_err());
    block_on(File::flush(&mut file)).unwrap();
    // If no call returns it, it is logged.
    assert_eq!(block_on(AsyncWriteExt::write(&mut file, b"x")).unwrap(), 1);
    let lost = || logged::count(&["an operation on a file failed", "RLIMIT_NPROC"]);
    assert_eq!(lost(), 0);
    drop(file);
    assert_eq!(lost(), 1);
    // Nothing waits, so no line says so.
    assert!(logged::count(&["cannot start a thread for blocking work", "is refused"]) > 0);
    assert_eq!(logged::count(&["the work waits"]), 0);
    names_the_limits(&LoopGroup::builder().loops(2).build().unwrap_err());
    let keeps_warm = wakeful::EventLoop::builder().idle(IdlePolicy::KeepWarm).build();
    names_the_limits(&keeps_warm.unwrap_err());
    // A loop needs no other thread, and nothing spins.
    let before = cpu_time();
    wakeful::block_on(async {
        assert!(spawn_blocking(|| 42).await.is_err());
        wakeful::time::sleep(Duration::from_secs(1)).await;
    });
    let spent = cpu_time() - before;
    assert!(spent < Duration::from_millis(500), "{spent:?}");
    assert_eq!(threads_called("blocking-"), 0);
    // A task that tries again and again leaves its loop to others.
    wakeful::block_on(async {
        let tries = async {
            for _ in 0..100_000 {
                assert!(spawn_blocking(|| 42).await.is_err());
            }
        };
        let given_up = timeout(Duration::from_millis(1), tries).await;
        assert!(given_up.is_err(), "no timer had its turn");
    });

    // A drain needs none either.
    let here = std::thread::current().id();
    let raise = || {
        // SAFETY: it takes two numbers.
        assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGTERM) }, 0);
        Ok(here)
    };
    let drained = wakeful::signal::run_until_terminated(raise, |started| {
        (started, std::thread::current().id())
    });
    assert_eq!(drained.unwrap(), Some((here, here)));

    // Nor does a dropped child.
    wakeful::block_on(async {
        let child = drop_a_child();
        assert_eq!(threads_called("blocking-"), 0);
        kill(child);
        until_reaped(child).await;
    });

    // With room again, a loop's start has a thread started, before any work. Not at once after an
    // attempt that failed.
    allow_threads(None);
    let start = Instant::now();
    while threads_called("blocking-") != 1 {
        assert!(start.elapsed() < Duration::from_secs(60), "no thread is started");
        wakeful::block_on(async {});
    }
    allow_threads(Some(0));
    // It does all the work.
    wakeful::block_on(async {
        let work: Vec<_> = (0..100).map(|number| spawn_blocking(move || number)).collect();
        for (number, work) in work.into_iter().enumerate() {
            assert_eq!(work.await.unwrap(), number);
        }
        wakeful::net::resolve("localhost:1").await.unwrap();
    });
    assert_eq!(threads_called("blocking-"), 1);
    work_gets_a_thread_when_there_is_room();
}

/// Even if the only thread never becomes free, and nobody gives other work.
fn work_gets_a_thread_when_there_is_room() {
    const LONG: Duration = Duration::from_secs(60);
    let ((began, begun), (hold, held)) = (mpsc::channel(), mpsc::channel::<()>());
    wakeful::block_on(async {
        let busy = spawn_blocking(move || {
            began.send(()).unwrap();
            held.recv().is_err()
        });
        begun.recv().unwrap();
        let mut waits = spawn_blocking(|| 42);
        assert!(poll_once(&mut waits).await.is_none());
        allow_threads(None);
        let answer = timeout(LONG, waits).await.expect("no thread was started");
        assert_eq!(answer.unwrap(), 42);
        drop(hold);
        assert!(busy.await.unwrap());
        while threads_called("blocking-") > 1 {
            sleep(Duration::from_millis(10)).await;
        }
    });

    work_gets_a_thread_by_the_loop_that_waits_for_it();
    a_dropped_child_occupies_no_thread_and_is_reaped();
    a_dropped_child_is_reaped_while_the_only_thread_is_busy();

    // The only thread waits for what it has given itself.
    allow_threads(Some(0));
    let (began, begun) = mpsc::channel();
    let outer = spawn_blocking(move || {
        wakeful::block_on(async {
            let mut inner = spawn_blocking(|| 42);
            let is_there = poll_once(&mut inner).await.is_some();
            began.send(is_there).unwrap();
            timeout(LONG, inner).await.expect("no thread was started").unwrap()
        })
    });
    assert!(!begun.recv().unwrap());
    allow_threads(None);
    assert_eq!(block_on(outer).unwrap(), 42);
}

/// The loop that has given the work has ended.
fn work_gets_a_thread_by_the_loop_that_waits_for_it() {
    const LONG: Duration = Duration::from_secs(60);
    allow_threads(Some(0));
    let ((began, begun), (hold, held)) = (mpsc::channel(), mpsc::channel::<()>());
    let busy = spawn_blocking(move || {
        began.send(()).unwrap();
        held.recv().is_err()
    });
    begun.recv().unwrap();
    let mut waits = None;
    wakeful::block_on(async { waits = Some(spawn_blocking(|| 42)) });
    let waits = waits.expect("it was given");
    assert!(!waits.is_finished());
    allow_threads(None);
    wakeful::block_on(async {
        let answer = timeout(LONG, waits).await.expect("no thread was started");
        assert_eq!(answer.unwrap(), 42);
        drop(hold);
        assert!(busy.await.unwrap());
        while threads_called("blocking-") > 1 {
            sleep(Duration::from_millis(10)).await;
        }
    });
}

/// No thread can be started that waits for its end.
fn a_dropped_child_occupies_no_thread_and_is_reaped() {
    wakeful::block_on(async {
        let pid = drop_a_child();
        assert_eq!(threads_called("blocking-"), 1);
        let answer = timeout(Duration::from_secs(20), spawn_blocking(|| 42)).await;
        kill(pid);
        assert_eq!(answer.expect("the only thread waits for the child").unwrap(), 42);
        until_reaped(pid).await;
    });
}

/// No thread can be started, and none becomes free.
fn a_dropped_child_is_reaped_while_the_only_thread_is_busy() {
    let ((began, begun), (hold, held)) = (mpsc::channel(), mpsc::channel::<()>());
    let busy = spawn_blocking(move || {
        began.send(()).unwrap();
        held.recv().is_err()
    });
    begun.recv().unwrap();
    wakeful::block_on(async {
        let child = drop_a_child();
        kill(child);
        until_reaped(child).await;
    });
    a_child_that_was_dropped_by_a_loop_that_has_ended_is_reaped();
    a_dropped_child_that_has_ended_does_not_keep_another_one_from_starting();
    drop(hold);
    assert!(block_on(busy).unwrap());
}

fn a_child_that_was_dropped_by_a_loop_that_has_ended_is_reaped() {
    let child = wakeful::block_on(async { drop_a_child() });
    kill(child);
    wakeful::block_on(until_reaped(child));
}

fn a_dropped_child_that_has_ended_does_not_keep_another_one_from_starting() {
    let dropped = wakeful::block_on(async { drop_a_child() });
    kill(dropped);
    let id = WaitId::Pid(Pid::from_raw(dropped.cast_signed()).unwrap());
    waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
    wakeful::block_on(async {
        allow_threads(Some(threads_called("") as u64 + 1));
        // The zombie has the only place. There is no turn meanwhile, in which the loop would look.
        let refused = std::process::Command::new("true").spawn().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let mut child = Command::new("true").spawn().expect("the zombie is reaped");
        assert!(child.wait().await.unwrap().success());
    });
}

/// Drops a child for which no thread can be started, and returns its number.
fn drop_a_child() -> u32 {
    allow_threads(None);
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id().unwrap();
    allow_threads(Some(0));
    drop(child);
    assert_eq!(threads_called("wakeful-reaper"), 0);
    pid
}

fn kill(child: u32) {
    kill_process(Pid::from_raw(child.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

async fn until_reaped(child: u32) {
    let (start, entry) = (Instant::now(), format!("/proc/{child}"));
    while Path::new(&entry).exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "it stays a zombie");
        sleep(Duration::from_millis(10)).await;
    }
}
