//! The control group of `priority --by quota` is removed, however the program ends. The test needs
//! root and a `cpu` controller.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

/// Finds the control group of this name anywhere below `dir`.
fn group(dir: &Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?;
    let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path())
        .find_map(|path| if path.ends_with(name) { Some(path) } else { group(&path, name) })
}

fn nothing_is_left_behind(contender: &str, signal: Signal) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ready-list"))
        .args(["priority", "--by", "quota", "--seconds", "60", "--contender", contender])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let name = format!("wakeful-ready-list-{}", child.id());
    let cgroups = Path::new("/sys/fs/cgroup");
    while group(cgroups, &name).is_none() {
        if let Some(status) = child.try_wait().unwrap() {
            eprintln!("skipped: it needs root and a cpu controller of control groups ({status})");
            return;
        }
        thread::yield_now();
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = child.wait().unwrap();
    let left = group(cgroups, &name);
    if let Some(left) = &left {
        std::fs::remove_dir(left).ok();
    }
    assert_eq!(left, None);
    let ended_by = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(ended_by, Some(signal.as_raw()), "{status}");
}

#[test]
fn a_signal_leaves_no_control_group_behind() {
    nothing_is_left_behind("ready-queue", Signal::INT);
    nothing_is_left_behind("mutexed-deque", Signal::TERM);
}
