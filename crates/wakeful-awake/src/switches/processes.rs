//! The threads of a process and of its descendants.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::thread::gettid;

/// All of them but the calling one.
///
/// # Errors
/// The process is not there (`NotFound`), or may not be looked at.
pub(super) fn threads(pid: i32) -> io::Result<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    let mut processes = vec![pid];
    while let Some(process) = processes.pop() {
        let tasks = match fs::read_dir(format!("/proc/{process}/task")) {
            Ok(tasks) => tasks,
            // A child that has ended meanwhile.
            Err(_) if process != pid => continue,
            Err(error) => return Err(error),
        };
        for task in tasks {
            let Some(tid) = number(&task?.file_name().to_string_lossy()) else { continue };
            if !found.insert(tid) {
                continue;
            }
            // Without CONFIG_PROC_CHILDREN there is no such file, and no child.
            let children = fs::read_to_string(format!("/proc/{process}/task/{tid}/children"));
            processes.extend(children.unwrap_or_default().split_whitespace().filter_map(number));
        }
    }
    found.remove(&gettid().as_raw_nonzero().get());
    Ok(found)
}

fn number(text: &str) -> Option<i32> {
    text.parse().ok()
}
