//! Reads the CPU quota of this process: cgroup v2's `cpu.max`, or v1's `cpu.cfs_quota_us`.
//!
//! Finding the files allocates memory. Reading them does not, because the wait that checks a quota
//! may be in a signal handler that has interrupted `malloc` (`wakeful-spin`).

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, retry_on_intr};

/// A cgroup, with the files that contain its limit and its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    dir: PathBuf,
    version: Version,
    limit: CString,
    /// The period, if it has a file of its own (v1).
    period: Option<CString>,
    stat: CString,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Group {
    /// This process's cgroup and all above it that are visible here.
    ///
    /// # Errors
    /// This process or the system lacks descriptors or memory.
    pub(super) fn of_this_process() -> io::Result<Vec<Self>> {
        let read = |path| match fs::read_to_string(path) {
            Err(error) if Errno::from_io_error(&error).is_some_and(is_shortage) => Err(error),
            text => Ok(text.unwrap_or_default()),
        };
        Ok(visible(find(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)))
    }

    #[cfg(any(test, feature = "internals"))]
    pub(super) fn of_version_two(dir: PathBuf) -> Self {
        // `new` returns `None` only for a path with a zero byte, which does not exist.
        Self::new(dir, Version::Two).unwrap_or_else(|| unreachable!())
    }

    /// `None`: the path contains a zero byte.
    fn new(dir: PathBuf, version: Version) -> Option<Self> {
        let file = |name| CString::new(dir.join(name).as_os_str().as_bytes()).ok();
        let (limit, period) = match version {
            Version::One => ("cpu.cfs_quota_us", Some(file("cpu.cfs_period_us")?)),
            Version::Two => ("cpu.max", None),
        };
        let (limit, stat) = (file(limit)?, file("cpu.stat")?);
        Some(Self { dir, version, limit, period, stat })
    }

    #[cfg(test)]
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// How many CPUs' worth of time the group may use. `None`: it has no limit.
    ///
    /// # Errors
    /// The same as for [`with_text`].
    pub(super) fn cpus(&self) -> Result<Option<f64>, Errno> {
        let Some(period) = &self.period else {
            return Ok(with_text(&self.limit, parse_limit)?.flatten());
        };
        let quota = with_text(&self.limit, number)?.flatten();
        let period = with_text(period, number)?.flatten();
        Ok(quota.zip(period).and_then(|(quota, period)| share(quota, period)))
    }

    /// In how many periods the group had to wait for the next one.
    ///
    /// # Errors
    /// The same as for [`with_text`].
    pub(super) fn throttled(&self) -> Result<u64, Errno> {
        let throttled = with_text(&self.stat, |stat| field(stat, "nr_throttled"))?;
        Ok(throttled.flatten().unwrap_or(0))
    }
}

/// Calls `ask` with the first KiB of a file, without an allocation. `None`: there is no such file.
///
/// # Errors
/// This process or the system lacks descriptors or memory. That says nothing about the file.
fn with_text<T>(path: &CStr, ask: impl FnOnce(&str) -> T) -> Result<Option<T>, Errno> {
    let mut bytes = [0; 1024];
    match read_into(path, &mut bytes) {
        Ok(length) => Ok(std::str::from_utf8(&bytes[..length]).ok().map(ask)),
        Err(error) if is_shortage(error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Does it say nothing about the file that could not be read?
fn is_shortage(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

fn read_into(path: &CStr, bytes: &mut [u8]) -> Result<usize, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = retry_on_intr(|| open(path, flags, Mode::empty()))?;
    let mut length = 0;
    while length < bytes.len() {
        match retry_on_intr(|| read(&file, &mut bytes[length..]))? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

/// Parses "20000 100000": the microseconds that may be used in each period, and the microseconds of
/// a period.
fn parse_limit(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    share(number(quota)?, number(period)?)
}

fn share(quota: f64, period: f64) -> Option<f64> {
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn field(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// The groups that `/proc/self/mountinfo` and `/proc/self/cgroup` name: the process's own group
/// first, its root last.
fn find(mounts: &str, groups: &str) -> Vec<Group> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        // "36 35 98:0 /root /mount/point options - type source super-options"
        let Some((mount, kind)) = line.split_once(" - ") else { continue };
        let mount: Vec<&str> = mount.split(' ').collect();
        let kind: Vec<&str> = kind.split(' ').collect();
        let (Some(root), Some(point), Some(kind_of), Some(options)) =
            (mount.get(3), mount.get(4), kind.first(), kind.get(2))
        else {
            continue;
        };
        let is_cpu = |list: &str| list.split(',').any(|name| name == "cpu");
        let version = match *kind_of {
            "cgroup2" => Version::Two,
            "cgroup" if is_cpu(options) => Version::One,
            _ => continue,
        };
        let path = groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let right = match version {
                Version::One => is_cpu(controllers),
                Version::Two => controllers.is_empty(),
            };
            right.then_some(path)
        });
        let Some(path) = path else { continue };
        // In a container the mount shows only a part of the tree, while the path may be relative to
        // the whole tree.
        let within = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        let within = within.strip_prefix("/").unwrap_or(within);
        // Collecting the components removes a slash at the end.
        let own: PathBuf = Path::new(point).join(within).components().collect();
        for dir in own.ancestors() {
            found.extend(Group::new(dir.to_owned(), version));
            if dir == Path::new(point) {
                break;
            }
        }
    }
    found
}

/// Keeps the groups whose directories exist. The file of the limit may not exist yet: version 2 has
/// it only while the parent group enables the CPU controller, which may begin with the first limit.
fn visible(mut groups: Vec<Group>) -> Vec<Group> {
    groups.retain(|group| group.dir.is_dir());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs(found: &[Group]) -> Vec<(&str, Version)> {
        found.iter().map(|group| (group.dir.to_str().unwrap(), group.version)).collect()
    }

    #[test]
    fn a_group_of_version_two_and_those_above_it() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            dirs(&find(mounts, "0::/system.slice/wakeful.service\n")),
            [
                ("/sys/fs/cgroup/system.slice/wakeful.service", Version::Two),
                ("/sys/fs/cgroup/system.slice", Version::Two),
                ("/sys/fs/cgroup", Version::Two),
            ]
        );
    }

    #[test]
    fn a_group_of_version_one_is_that_of_the_cpu_controller() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                      33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let groups = "3:cpuset:/other\n2:cpu,cpuacct:/app\n0::/\n";
        assert_eq!(
            dirs(&find(mounts, groups)),
            [
                ("/sys/fs/cgroup/cpu,cpuacct/app", Version::One),
                ("/sys/fs/cgroup/cpu,cpuacct", Version::One)
            ]
        );
    }

    #[test]
    fn in_a_container_the_mount_shows_a_part_of_the_tree() {
        let mounts = "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        assert_eq!(
            dirs(&find(mounts, "2:cpu:/docker/abc\n")),
            [("/sys/fs/cgroup/cpu", Version::One)]
        );
        // In a namespace the path is relative to the namespace's root.
        assert_eq!(dirs(&find(mounts, "2:cpu:/\n")), [("/sys/fs/cgroup/cpu", Version::One)]);
    }

    #[test]
    fn a_group_that_has_no_limit_yet_has_it_later() {
        let dir = std::env::temp_dir().join(format!("wakeful-later-{}", std::process::id()));
        fs::create_dir_all(dir.join("there")).unwrap();
        let group = |name| Group::of_version_two(dir.join(name));
        let found = visible(vec![group("there"), group("elsewhere")]);
        assert_eq!(found, [group("there")]);
        assert_eq!(found[0].cpus(), Ok(None));
        fs::write(dir.join("there/cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(found[0].cpus(), Ok(Some(0.5)));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn garbage_is_no_group() {
        assert!(find("a b c - \n\n x", "0::/").is_empty());
        assert!(find("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "").is_empty());
    }

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let limit = |text| parse_limit(text).map(|cpus| (cpus * 1000.0).round());
        assert_eq!(limit("20000 100000\n"), Some(200.0));
        assert_eq!(limit("max 100000\n"), None);
        assert_eq!(limit("-1 100000"), None);
        assert_eq!(limit(""), None);
        assert_eq!(field("nr_periods 7\nnr_throttled 3\n", "nr_throttled"), Some(3));
    }
}
