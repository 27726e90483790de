use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::processes::start_of;
use super::*;
use crate::machine::online_cpus;

#[test]
fn what_perf_events_need_is_a_limit_or_a_privilege() {
    for (refusal, says) in [
        (Errno::MFILE, "ulimit -n"),
        (Errno::NFILE, "fs.file-max"),
        (Errno::ACCESS, "CAP_PERFMON"),
        (Errno::PERM, "CAP_PERFMON"),
    ] {
        assert!(needed(&refusal.into()).contains(says), "{refusal:?}");
    }
}

/// Counts a thread that sleeps 100 times, and a thread that it starts meanwhile.
fn counted(open: impl FnOnce(i32) -> io::Result<Switches>) -> io::Result<u64> {
    let (go, wait) = mpsc::channel::<()>();
    let (ended, end) = mpsc::channel::<()>();
    let sleeper = thread::spawn(move || {
        wait.recv().unwrap();
        let sleeps = || (0..50).for_each(|_| thread::sleep(Duration::from_micros(100)));
        let child = thread::spawn(sleeps);
        sleeps();
        child.join().unwrap();
        ended.send(()).unwrap();
        // Its count is there as long as it is.
        let _ = wait.recv();
    });
    let mut switches = open(std::process::id().try_into().unwrap())?;
    let before = switches.count(&mut BTreeSet::new())?;
    go.send(()).unwrap();
    end.recv().unwrap();
    let mut used = BTreeSet::new();
    let counted = switches.count(&mut used)?.saturating_sub(before);
    let online: BTreeSet<usize> = online_cpus()?.into_iter().collect();
    assert!(!used.is_empty() && used.is_subset(&online), "{used:?}");
    drop(go);
    sleeper.join().unwrap();
    Ok(counted)
}

fn target(pid: i32) -> (Target, Processes) {
    (Target::Process(Pid::from_raw(pid).unwrap()), Processes::of(pid))
}

fn by_events(pid: i32) -> io::Result<Switches> {
    let (target, mut processes) = target(pid);
    let events = Events::of_processes(&mut processes, usize::MAX, &[])?;
    Ok(Switches::new(target, processes, Ok(events), None))
}

fn by_proc(pid: i32) -> io::Result<Switches> {
    let (target, mut processes) = target(pid);
    let sampled = Sampled::of(&mut processes)?;
    Ok(Switches::new(target, processes, Err(Errno::ACCESS.into()), Some(sampled)))
}

#[test]
fn events_count_the_threads_that_there_are_and_their_children() {
    match counted(by_events) {
        Ok(switches) => assert!(switches >= 100, "{switches}"),
        Err(error) => eprintln!("skipped: {error}"),
    }
}

#[test]
fn proc_counts_the_threads_that_there_are() {
    let count = || counted(by_proc).unwrap();
    // Another test's thread that ends meanwhile takes its count along.
    let counts: Vec<u64> = (0..10).map(|_| count()).collect();
    assert!(counts.iter().any(|switches| *switches >= 50), "{counts:?}");
}

/// Waits until a condition is met, checking like the watcher.
/// Looks at most this often, whatever the clock says: the machine may be paused.
const MOST_LOOKS: usize = 600;

fn look_until(switches: &mut Switches, is_so: impl Fn(&Switches) -> bool) {
    let mut looks = 0..MOST_LOOKS;
    while !is_so(switches) {
        assert!(looks.next().is_some(), "{switches:?}");
        thread::sleep(Duration::from_millis(50));
        switches.count(&mut BTreeSet::new()).unwrap();
        switches.settle(true);
        // `/proc` misses children of other tests that have ended. For that the events would stay.
        switches.relief = Relief::default();
    }
}

#[test]
fn under_much_traffic_no_event_is_open_and_threads_that_start_then_are_counted() {
    // The thread that opens the events is not counted, and this one starts the traffic.
    let own = std::process::id().try_into().unwrap();
    let Ok(mut switches) = thread::spawn(move || by_events(own)).join().unwrap() else {
        return eprintln!("skipped: perf events are refused");
    };
    let sleeps = |times: usize| {
        (0..times).for_each(|_| thread::sleep(Duration::from_micros(20)));
    };
    let (end_traffic, traffic) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // The threads end with these senders, also if this test fails.
        let _traffic = end_traffic;
        scope.spawn(move || {
            while traffic.try_recv() == Err(TryRecvError::Empty) {
                sleeps(1);
            }
        });
        look_until(&mut switches, Switches::wakes_nobody);
        assert_eq!(switches.descriptors().count(), 0);
        let before = switches.total;
        let (ended, end) = mpsc::channel::<()>();
        let (_held, hold) = mpsc::channel::<()>();
        scope.spawn(move || {
            sleeps(5_000);
            ended.send(()).unwrap();
            let _ = hold.recv();
        });
        end.recv().unwrap();
        let counted = switches.count(&mut BTreeSet::new()).unwrap() - before;
        assert!(counted >= 5_000, "{counted}");
    });
    look_until(&mut switches, |switches| !switches.wakes_nobody());
    assert!(switches.descriptors().count() > 0);
}

#[test]
fn at_the_end_of_traffic_events_are_open_before_anybody_waits_for_them() {
    let Ok(mut switches) = by_events(std::process::id().try_into().unwrap()) else {
        return eprintln!("skipped: perf events are refused");
    };
    if switches.descriptors().count() > MOST_EVENTS / 2 {
        return eprintln!("skipped: with so many CPUs, events are not opened again");
    }
    let (target, mut processes) = target(std::process::id().try_into().unwrap());
    (switches.events, switches.sampled) = (None, Sampled::of(&mut processes).ok());
    assert!(switches.wakes_nobody() && switches.refusal().is_none());
    switches.count(&mut BTreeSet::new()).unwrap();
    switches.settle(false);
    assert!(!switches.wakes_nobody() && switches.sampled.is_none());
    // If no event can be opened any more, the counts are read at intervals.
    let nobody = Pid::from_raw(i32::MAX).unwrap();
    switches.target = Target::Process(nobody);
    (switches.processes, switches.events) = (Processes::of(i32::MAX), None);
    switches.settle(false);
    assert!(switches.wakes_nobody());
    (switches.target, switches.processes) = (target, processes);
    // Not at each check: an attempt may open many events before the one that fails.
    switches.settle(false);
    assert!(switches.wakes_nobody() && switches.sampled.is_some());
    switches.retry = Retry::default();
    switches.settle(false);
    assert!(!switches.wakes_nobody());
}

/// How many threads the process of the next test has.
const THREADS: &str = "WAKEFUL_AWAKE_TEST_THREADS";
const HAVE_STARTED: &str = "have started";

#[test]
fn role_many_threads() {
    let Ok(threads) = std::env::var(THREADS) else { return };
    let (never, wait) = mpsc::channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    for _ in 0..threads.parse().unwrap() {
        let wait = wait.clone();
        thread::spawn(move || drop(wait.lock().map(|wait| wait.recv())));
    }
    println!("{HAVE_STARTED}");
    // This ends with the other test.
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(never);
    std::process::exit(0);
}

#[test]
fn events_that_would_be_too_many_are_not_opened_again() {
    let threads = MOST_EVENTS / online_cpus().unwrap().len() + 1;
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "switches::tests::role_many_threads", "--nocapture"]);
    program.env(THREADS, threads.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(HAVE_STARTED)));
    // As if its events had been closed under traffic.
    let mut switches = by_proc(program.id().try_into().unwrap()).unwrap();
    switches.refusal = None;
    switches.settle(false);
    assert!(switches.wakes_nobody() && switches.sampled.is_some());
    assert!(switches.sampled.as_ref().is_some_and(|sampled| sampled.threads() >= threads));
    drop(program.stdin.take());
    program.wait().unwrap();
}

/// Removes the events that have hung up, like the watcher.
fn remove_hung_up(switches: &mut Switches) {
    let fds = switches.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> = fds.collect();
    poll(&mut fds, Some(&Timespec::default())).unwrap();
    let fds = fds.iter().enumerate();
    let hung_up = fds.filter(|(_, fd)| fd.revents().contains(PollFlags::HUP));
    let hung_up: Vec<usize> = hung_up.map(|(number, _)| number).collect();
    switches.remove(&hung_up).unwrap();
}

/// A shell that runs a set-user-ID program, which answers each line with one.
struct SetId {
    shell: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    program: PathBuf,
}

impl SetId {
    /// After the first line the shell runs `run`, in which `$0` is the program.
    fn start(run: &str) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        const SOMEBODY: u32 = 65_534;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("wakeful-set-id-{}-{number}", std::process::id());
        let program = std::env::temp_dir().join(name);
        // Not by this process: a child that another test has just forked would have a copy of the
        // descriptor for a moment, and a file that is open to write is not executed.
        assert!(Command::new("cp").arg("/bin/sh").arg(&program).status().unwrap().success());
        if std::os::unix::fs::chown(&program, Some(SOMEBODY), None).is_err() {
            std::fs::remove_file(program).unwrap();
            eprintln!("skipped: only root may make such a program");
            return None;
        }
        std::fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
        let script = format!("read line; {run} -c 'echo; while read line; do echo; done'; true");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).arg(&program).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let (to, from) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        Some(Self { shell, to, from: BufReader::new(from), program })
    }

    fn by_events(&self) -> Option<Switches> {
        let switches = by_events(self.shell.id().try_into().unwrap());
        switches.inspect_err(|error| eprintln!("skipped: {error}")).ok()
    }

    fn answers(&mut self, times: usize) {
        for _ in 0..times {
            self.to.write_all(b"\n").unwrap();
            assert_eq!(self.from.read_line(&mut String::new()).unwrap(), 1);
        }
    }

    /// How many switches are counted while it answers 20 times.
    fn counted(&mut self, switches: &mut Switches) -> u64 {
        let before = switches.count(&mut BTreeSet::new()).unwrap();
        switches.settle(false);
        self.answers(20);
        switches.count(&mut BTreeSet::new()).unwrap() - before
    }
}

impl Drop for SetId {
    fn drop(&mut self) {
        // The program, if it is a child, ends when its input does.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        let _ = std::fs::remove_file(&self.program);
    }
}

/// The kernel ends the events of a process that executes a set-user-ID program.
#[test]
fn a_process_that_executes_a_program_with_other_rights_is_still_counted() {
    let Some(mut process) = SetId::start(r#"exec "$0""#) else { return };
    let Some(mut switches) = process.by_events() else { return };
    process.answers(1);
    remove_hung_up(&mut switches);
    if switches.descriptors().count() > 0 {
        eprintln!("not shown: the program was executed with the same rights (nosuid)");
    }
    let counted = process.counted(&mut switches);
    assert!(counted >= 20, "{counted}");
    // If no event can be opened any more, `/proc` counts.
    switches.target = Target::Cgroup("/nonexistent".into());
    let all: Vec<usize> = (0..switches.descriptors().count()).collect();
    switches.remove(&all).unwrap();
    assert!(switches.wakes_nobody());
    let counted = process.counted(&mut switches);
    assert!(counted >= 20 && switches.wakes_nobody(), "{counted}");
}

#[test]
fn a_child_that_executes_a_program_with_other_rights_is_still_counted() {
    let Some(mut process) = SetId::start(r#""$0""#) else { return };
    let Some(mut switches) = process.by_events() else { return };
    process.answers(1);
    remove_hung_up(&mut switches);
    switches.follow_children();
    process.answers(200);
    switches.count(&mut BTreeSet::new()).unwrap();
    switches.follow_children();
    let counted = process.counted(&mut switches);
    assert!(counted >= 20, "{counted}");
}

#[test]
fn events_are_opened_again_when_other_cpus_are_online() {
    let mut sleeper = Command::new("sleep").arg("100").spawn().unwrap();
    let switches = by_events(sleeper.id().try_into().unwrap());
    if let Ok(mut switches) = switches {
        let number = |switches: &Switches| switches.descriptors().count();
        let online = online_cpus().unwrap();
        assert_eq!(number(&switches), online.len());
        // As if its CPU had been away: the event does not count any more.
        switches.remove(&[0]).unwrap();
        switches.follow_cpus(&online);
        assert_eq!(number(&switches), online.len() - 1, "nothing has changed");
        switches.follow_cpus(&online[1..]);
        assert_eq!(number(&switches), online.len());
    } else {
        eprintln!("skipped: perf events are refused");
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_child_that_was_listed_is_listed_when_its_parent_has_ended() {
    let script = "(sleep 100 & echo $!; read line); sleep 100 & echo $!; wait";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut processes = Processes::of(shell.id().try_into().unwrap());
    let mut next = || -> i32 { lines.next().unwrap().parse().unwrap() };
    let orphan = next();
    assert!(processes.threads().unwrap().contains(&orphan));
    drop(shell.stdin.take());
    let child = next();
    let threads = processes.threads().unwrap();
    assert!(threads.contains(&orphan) && threads.contains(&child), "{threads:?}");
    for ends in [orphan, child] {
        rustix::process::kill_process(Pid::from_raw(ends).unwrap(), Signal::KILL).unwrap();
    }
    shell.wait().unwrap();
    assert!(processes.threads().is_err());
}

#[test]
fn a_process_that_got_the_number_of_a_child_that_ended_is_not_listed() {
    let own = std::process::id().try_into().unwrap();
    let mut others = Command::new("sleep").arg("100").spawn().unwrap();
    let root = others.id().try_into().unwrap();
    let start = start_of(own).unwrap();
    for (start, is_listed) in [(start, true), (start - 1, false)] {
        let mut processes = Processes::Of { root, known: [(own, start)].into() };
        let lists_own = |threads: BTreeSet<i32>| threads.contains(&own);
        // The first time it is only known; the second time it was listed.
        for _ in 0..2 {
            assert_eq!(lists_own(processes.threads().unwrap()), is_listed);
        }
    }
    others.kill().unwrap();
    others.wait().unwrap();
}

#[test]
fn the_threads_of_a_cgroup_are_those_of_its_folders_too() {
    let folder = std::env::temp_dir().join(format!("wakeful-threads-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("inner")).unwrap();
    let own = rustix::thread::gettid().as_raw_nonzero();
    std::fs::write(folder.join("cgroup.threads"), format!("7\n0\n{own}\n")).unwrap();
    std::fs::write(folder.join("inner/cgroup.threads"), "9\n").unwrap();
    let mut processes = Processes::In(folder.clone());
    assert_eq!(processes.threads().unwrap(), BTreeSet::from([7, 9]));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(processes.threads().unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_folder_that_was_removed_and_made_again_is_another_one() {
    let folder = std::env::temp_dir().join(format!("wakeful-group-{}", std::process::id()));
    let target = Target::Cgroup(folder.clone());
    assert_eq!(target.folder(), None);
    std::fs::create_dir(&folder).unwrap();
    let first = target.folder();
    assert!(first.is_some() && target.folder() == first);
    // Kept open, its number is not given to another one.
    let kept = File::open(&folder).unwrap();
    std::fs::remove_dir(&folder).unwrap();
    assert_eq!(target.folder(), None);
    std::fs::create_dir(&folder).unwrap();
    assert!(target.folder().is_some_and(|second| Some(second) != first));
    std::fs::remove_dir(&folder).unwrap();
    drop(kept);
    let pid = rustix::process::getpid();
    assert_eq!(Target::Process(pid).folder(), None);
}

#[test]
fn who_is_not_there_is_an_error_that_says_so() {
    // Above the kernel's largest.
    let nobody = Target::Process(Pid::from_raw(i32::MAX).unwrap());
    assert!(matches!(Switches::open(&nobody, &[]), Err(CountError::NoProcess(i32::MAX))));
    let nowhere = Target::Cgroup("/nonexistent".into());
    assert!(matches!(Switches::open(&nowhere, &[]), Err(CountError::NoCgroup(..))));
    let no_cgroup = Target::Cgroup("/proc".into());
    assert!(matches!(Switches::open(&no_cgroup, &[]), Err(CountError::NoCgroup(..))));
}
