//! The threads of a process and of its descendants, or of a cgroup.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;
use rustix::thread::gettid;

/// The threads to list.
#[derive(Debug)]
pub(super) enum Processes {
    /// A process and its descendants. A process that was listed once stays, even if its parent ends
    /// and it becomes a child of another process. It is known by its number and its start, because
    /// another process may get the number after its end.
    Of { root: i32, known: BTreeMap<i32, u64> },
    /// All processes in a cgroup's folder, and in the folders within it.
    In(PathBuf),
}

impl Processes {
    pub(super) fn of(root: i32) -> Self {
        Self::Of { root, known: BTreeMap::new() }
    }

    /// Has a thread started that was not in the last list?
    pub(super) fn start_within(&self) -> bool {
        matches!(self, Self::Of { .. })
    }

    /// Lists the present threads, except the calling one.
    ///
    /// # Errors
    /// The process or the cgroup does not exist (`NotFound`), or may not be read.
    pub(super) fn threads(&mut self) -> io::Result<BTreeSet<i32>> {
        let mut found = BTreeSet::new();
        match self {
            Self::Of { root, known } => *known = descendants(*root, known, &mut found)?,
            Self::In(folder) => in_folder(folder, &mut found)?,
        }
        found.remove(&gettid().as_raw_nonzero().get());
        Ok(found)
    }
}

/// Adds the threads of `root`, of those that are `known`, and of their descendants to `found`, and
/// returns the processes that they belong to, with their starts.
fn descendants(
    root: i32,
    known: &BTreeMap<i32, u64>,
    found: &mut BTreeSet<i32>,
) -> io::Result<BTreeMap<i32, u64>> {
    let mut listed = BTreeMap::new();
    let mut processes: Vec<_> =
        known.iter().map(|(process, start)| (*process, Some(*start))).collect();
    processes.push((root, None));
    while let Some((process, known_start)) = processes.pop() {
        if listed.contains_key(&process) {
            continue;
        }
        let start = match start_of(process) {
            Ok(start) => start,
            // A child may have ended meanwhile.
            Err(error) if process != root && !is_short(&error) => continue,
            Err(error) => return Err(error),
        };
        if known_start.is_some_and(|known| known != start) {
            continue;
        }
        let tasks = match fs::read_dir(format!("/proc/{process}/task")) {
            Ok(tasks) => tasks,
            // A child may have ended meanwhile.
            Err(error) if process != root && !is_short(&error) => continue,
            Err(error) => return Err(error),
        };
        listed.insert(process, start);
        for task in tasks {
            let Ok(task) = task else { break };
            let Some(tid) = number(&task.file_name().to_string_lossy()) else { continue };
            if !found.insert(tid) {
                continue;
            }
            // Without CONFIG_PROC_CHILDREN the file does not exist, and no child is found.
            let children = fs::read_to_string(format!("/proc/{process}/task/{tid}/children"));
            let children = match children {
                Err(error) if is_short(&error) => return Err(error),
                children => children.unwrap_or_default(),
            };
            let children = children.split_whitespace().filter_map(number);
            processes.extend(children.map(|child| (child, None)));
        }
    }
    Ok(listed)
}

/// When a process started, in clock ticks since the boot of the machine.
pub(super) fn start_of(process: i32) -> io::Result<u64> {
    stat_field(process, 22)
}

/// Parses a field of `/proc/PID/stat` by its number in proc(5), 3 or more.
pub(super) fn stat_field<T: FromStr>(id: i32, number: usize) -> io::Result<T> {
    // The second field is the program's name, in brackets, and may contain any bytes.
    let stat = fs::read(format!("/proc/{id}/stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    let rest = stat.rsplit_once(')').map(|(_, rest)| rest);
    let field = rest.and_then(|rest| rest.split_whitespace().nth(number - 3));
    field.and_then(|text| text.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Does this process or the system lack something, so that a file that is there cannot be read?
pub(super) fn is_short(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

fn in_folder(folder: &Path, found: &mut BTreeSet<i32>) -> io::Result<()> {
    let threads = fs::read_to_string(folder.join("cgroup.threads"))?;
    // Processes of another PID namespace have the number 0.
    found.extend(threads.lines().filter_map(number).filter(|tid| *tid > 0));
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Err(error) = in_folder(&entry.path(), found)
            // Otherwise the folder was removed meanwhile.
            && is_short(&error)
        {
            return Err(error);
        }
    }
    Ok(())
}

fn number(text: &str) -> Option<i32> {
    text.parse().ok()
}
