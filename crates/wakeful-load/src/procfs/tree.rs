//! A process and its descendants, for servers that start other processes. It reads the kernel's
//! lists of children, or, if there are none, the parents of all processes.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::{gone, numbers_in, read_if_there, stat_of};

/// Returns a process and all its descendants. The process itself is the first.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if there is no such process.
pub fn process_tree(pid: u32) -> io::Result<Vec<u32>> {
    if read_if_there(format!("/proc/{pid}/stat"))?.is_none() {
        return Err(gone(pid));
    }
    if has_lists() {
        tree_by(pid, children_by_thread)
    } else {
        let parents = all_parents()?;
        tree_by(pid, |parent| Ok(children_by_parent(&parents, parent)))
    }
}

/// Returns the children of a process, without their children. If there is no such process, it has
/// none.
#[must_use]
pub fn children_of(pid: u32) -> Vec<u32> {
    let children = if has_lists() {
        children_by_thread(pid)
    } else {
        all_parents().map(|parents| children_by_parent(&parents, pid))
    };
    let mut children = children.unwrap_or_default();
    children.sort_unstable();
    children
}

/// Returns the numbers of a process's threads, or none if there is no such process. A living thread
/// may be missing if another one ended while the list was read: the kernel cuts the list off there.
#[must_use]
pub fn threads_of(pid: u32) -> Vec<u32> {
    numbers_in(format!("/proc/{pid}/task"))
}

/// Whether the kernel has lists of children, as with CONFIG_PROC_CHILDREN.
fn has_lists() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

fn tree_by(pid: u32, children: impl Fn(u32) -> io::Result<Vec<u32>>) -> io::Result<Vec<u32>> {
    let mut tree = vec![pid];
    let mut seen = BTreeSet::from([pid]);
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        tree.extend(children(parent)?.into_iter().filter(|child| seen.insert(*child)));
        next += 1;
    }
    Ok(tree)
}

fn children_by_thread(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for tid in numbers_in(format!("/proc/{pid}/task")) {
        let text = read_if_there(format!("/proc/{pid}/task/{tid}/children"))?.unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(children)
}

/// Each process and its parent.
fn all_parents() -> io::Result<Vec<(u32, u32)>> {
    let mut parents = Vec::new();
    for pid in numbers_in("/proc") {
        if let Some(stat) = stat_of(pid)? {
            parents.push((pid, stat.ppid.cast_unsigned()));
        }
    }
    Ok(parents)
}

fn children_by_parent(parents: &[(u32, u32)], parent: u32) -> Vec<u32> {
    parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::super::ProcessCpu;
    use super::*;

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    #[test]
    fn a_tree_has_children_and_their_children() {
        let script = "sleep 60 & echo $!; sh -c 'sleep 60 & echo $!; wait' & echo $!; wait";
        let mut child = Command::new("sh");
        let child = child.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut child = Killed(child);
        let stdout = child.0.stdout.take().unwrap();
        let mut expected: Vec<u32> = BufReader::new(stdout)
            .lines()
            .take(3)
            .map(|line| line.unwrap().parse().unwrap())
            .collect();
        let descendants = expected.clone();
        expected.push(child.0.id());
        expected.sort_unstable();

        let mut tree = process_tree(child.0.id()).unwrap();
        assert_eq!(tree[0], child.0.id());
        tree.sort_unstable();
        assert_eq!(tree, expected);
        assert_eq!(ProcessCpu::read_tree(child.0.id()).unwrap().pids(), expected);

        // Searching by parents finds the same processes.
        let parents = all_parents().unwrap();
        let mut scanned =
            tree_by(child.0.id(), |pid| Ok(children_by_parent(&parents, pid))).unwrap();
        scanned.sort_unstable();
        assert_eq!(scanned, expected);

        for pid in descendants {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
        }
    }
}
