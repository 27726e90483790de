//! `wakeful serve --workers --exec`: all that `workers.rs` tests, and what only workers have that
//! execute the program.

#[path = "workers.rs"]
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use workers::common::{GUARD, PROGRAM, Service, get};
use workers::{Master, Method, children, signal, with};

fn start(program: &Path, workers: &'static str) -> Master {
    let arguments = with(&["--workers", workers, "--admin", "127.0.0.1:0"]);
    Master::start_as(Method::Exec, Command::new(program), &arguments)
}

/// How many descriptors of each kind a process has open.
fn open(pid: u32) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        // One that was closed meanwhile is none.
        let Ok(link) = fs::read_link(entry.unwrap().path()) else { continue };
        let link = link.to_string_lossy();
        let kind = if link.ends_with("/log") { "log" } else { &link };
        let kind = kind.split(|c: char| c.is_ascii_digit()).collect::<String>();
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

#[test]
fn a_worker_that_is_executed_has_open_what_a_forked_one_has() {
    let [forked, mut executed] = [Method::Fork, Method::Exec].map(|method| {
        let arguments = with(&["--workers", "2", "--admin", "127.0.0.1:0"]);
        let mut master = Master::start_as(method, Command::new(PROGRAM), &arguments);
        // With what a master has after a while.
        master.signal("HUP");
        master.waits_for("all workers accept", 2);
        master.waits_until(|this| this.workers().len() == 2, "drained");
        master
    });
    let of = |master: &Master| master.workers().into_iter().map(open).collect::<Vec<_>>();
    // A worker opens some things later, and a connection may just end.
    executed.waits_until(|this| of(this) == of(&forked), "equal");
    let count = |kind: &str| open(*executed.workers().first().unwrap()).get(kind).copied();
    assert_eq!(count("/memfd:wakeful-shared (deleted)"), Some(2));
    assert_eq!(count("/memfd:wakeful-worker (deleted)"), None, "it was read, and is closed");
}

/// The strings of a file in which each ends with a zero.
fn strings(path: String) -> BTreeSet<String> {
    let text = String::from_utf8(fs::read(path).unwrap()).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn a_worker_has_the_words_and_the_environment_of_its_master_and_no_secret() {
    let master = start(Path::new(PROGRAM), "1");
    let (pid, worker) = (master.pid(), *master.workers().first().unwrap());
    let of = |what: &str| [pid, worker].map(|pid| strings(format!("/proc/{pid}/{what}")));
    let [masters, workers] = of("cmdline");
    assert_eq!(workers, masters);
    let [masters, workers] = of("environ");
    let added: Vec<_> = workers.difference(&masters).collect();
    let [added] = &added[..] else { panic!("{added:?}") };
    let descriptor = added.strip_prefix(&format!("WAKEFUL_WORKER={worker} ")).unwrap();
    assert!(descriptor.parse::<u32>().is_ok(), "{added}");
    assert_eq!(masters.difference(&workers).next(), None);
    let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(name(worker), name(pid));
}

/// The file that a process runs.
fn identity(pid: u32) -> (u64, u64) {
    let file = fs::metadata(format!("/proc/{pid}/exe")).unwrap();
    (file.dev(), file.ino())
}

fn is_replaced(before: &BTreeSet<u32>) -> impl Fn(&Master) -> bool {
    |this| {
        let workers = this.workers();
        !workers.is_empty() && workers.is_disjoint(before)
    }
}

#[test]
fn workers_execute_the_file_that_their_master_runs_until_an_upgrade() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("wakeful");
    fs::copy(PROGRAM, &program).unwrap();
    let mut master = start(&program, "1");
    let pid = master.pid();
    let put_nothing = || fs::remove_file(&program).unwrap();
    let put_another = || {
        fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let changes: [&dyn Fn(); 2] = [&put_nothing, &put_another];
    for (reloads, change) in (2..).zip(changes) {
        change();
        let before = master.workers();
        master.signal("HUP");
        master.waits_for("all workers accept", reloads);
        master.waits_until(is_replaced(&before), "replaced");
        assert_eq!(identity(*master.workers().first().unwrap()), identity(pid));
    }
    put_nothing();
    fs::copy(PROGRAM, &program).unwrap();
    let old = identity(pid);
    master.signal("USR2");
    master.waits_until(|this| this.pid() != pid, "in charge");
    assert_ne!(identity(master.pid()), old);
    assert_eq!(identity(*master.workers().first().unwrap()), identity(master.pid()));
}

#[test]
fn a_program_that_cannot_be_executed_leaves_the_old_workers_and_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("wakeful");
    fs::copy(PROGRAM, &program).unwrap();
    let mut master = start(&program, "1");
    let may_be_executed = |may: bool| {
        let mode = if may { 0o755 } else { 0o644 };
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
    };
    may_be_executed(false);
    let before = master.workers();
    master.signal("HUP");
    master.waits_for("before it accepted: the old workers continue", 1);
    let reason = "this worker cannot execute its program (/proc/self/exe): Permission denied";
    assert!(master.log().contains(reason), "{}", master.log());
    assert_eq!(master.workers(), before);
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
    // Without a worker it is tried again, after pauses.
    signal(*before.first().unwrap(), "KILL");
    master.waits_for(reason, 3);
    may_be_executed(true);
    assert!(get(&master.addr(), "/healthz").ends_with("ok\n"));
}

#[test]
fn what_a_settings_file_says_of_the_master_is_the_master_s_until_an_upgrade() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.toml");
    let settings = |text: &str| fs::write(&file, text).unwrap();
    settings("workers = 2\nexec = true\nlisten = '127.0.0.1:0'\nmax-body = '10B'\n");
    let mut service = Service::start(&["http", "--config", file.to_str().unwrap()]);
    let addr = service.behind("master listening on ");
    let addr = addr.split(' ').next().unwrap();
    service.behind("all workers accept");
    let pid = service.child.id();
    let before = children(pid);
    // No workers at all, other sockets, and something that each worker may change.
    settings("listen = '127.0.0.1:1'\nadmin = '127.0.0.1:1'\ngrace = 1\nmax-body = '1B'\n");
    service.signal("-HUP");
    service.behind("only an upgrade (USR2) changes: --workers, --exec, --listen, --grace, --admin");
    service.behind("all workers accept");
    let start = Instant::now();
    let workers = loop {
        let workers = children(pid);
        if workers.len() == 2 && workers.is_disjoint(&before) {
            break workers;
        }
        assert!(start.elapsed() < GUARD, "they are not replaced");
    };
    assert!(get(addr, "/healthz").ends_with("ok\n"));
    let base = |pid| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap()[..12].to_owned();
    let bases: BTreeSet<_> = workers.into_iter().chain([pid]).map(base).collect();
    let is_random = fs::read_to_string("/proc/sys/kernel/randomize_va_space").unwrap();
    assert_eq!(bases.len(), if is_random.trim() == "0" { 1 } else { 3 });
}

#[test]
fn what_cannot_be_executed_is_refused_at_the_start() {
    let output = Command::new(PROGRAM).args(["serve", "echo", "--exec"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("--workers"), "{said}");
    let script = r#"umount -l /proc || exit 77; exec "$0" serve "$@""#;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script, PROGRAM]);
    let output = unshare.args(with(&["--workers", "1", "--exec"])).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(77) || said.starts_with("unshare: ") {
        eprintln!("skipped: /proc cannot be unmounted here: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot execute this program again: /proc/self/exe: "), "{said}");
    assert!(said.contains("Mount /proc"), "{said}");
}
