//! A control group with a CPU quota for some of this process's threads. It is removed when it is
//! dropped. It uses version 1 or 2, whichever has the `cpu` controller.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::thread::Pid;

/// The period, in microseconds: the kernel's default.
const PERIOD: u32 = 100_000;

pub struct Quota {
    dir: PathBuf,
    /// The group to which the threads return, and with version 2 the process.
    home: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Quota {
    /// Makes a group whose threads together get this many microseconds of each 100 ms.
    pub fn new(microseconds: u32) -> Result<Self> {
        let (root, version) = find()?;
        let home = root.join(own_group(version)?.trim_start_matches('/'));
        let name = format!("wakeful-ready-list-{}", std::process::id());
        let dir = match version {
            Version::One => home.join(&name),
            // Threads may be in a threaded group only below the group that has their process.
            Version::Two => root.join(&name).join("producers"),
        };
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let quota = Self { dir, home, version };
        quota.set_up(microseconds)?;
        Ok(quota)
    }

    fn set_up(&self, microseconds: u32) -> Result<()> {
        match self.version {
            Version::One => {
                put(&self.dir, "cpu.cfs_period_us", &PERIOD.to_string())?;
                put(&self.dir, "cpu.cfs_quota_us", &microseconds.to_string())
            }
            Version::Two => {
                let domain = self.dir.parent().context("it is below another")?;
                if let Some(root) = domain.parent() {
                    put(root, "cgroup.subtree_control", "+cpu")?;
                }
                put(&self.dir, "cgroup.type", "threaded")?;
                put(domain, "cgroup.procs", &std::process::id().to_string())?;
                put(domain, "cgroup.subtree_control", "+cpu")?;
                put(&self.dir, "cpu.max", &format!("{microseconds} {PERIOD}"))
            }
        }
    }

    fn threads(&self) -> &'static str {
        match self.version {
            Version::One => "tasks",
            Version::Two => "cgroup.threads",
        }
    }

    /// Puts a thread under the quota.
    pub fn add(&self, thread: Pid) -> Result<()> {
        put(&self.dir, self.threads(), &thread.as_raw_nonzero().to_string())
    }

    /// Takes a thread out.
    pub fn remove(&self, thread: Pid) -> Result<()> {
        let domain = match self.version {
            Version::One => &self.home,
            Version::Two => self.dir.parent().context("it is below another")?,
        };
        put(domain, self.threads(), &thread.as_raw_nonzero().to_string())
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // If the group cannot be removed, it stays, empty and named after this program.
        if let Ok(left) = fs::read_to_string(self.dir.join(self.threads())) {
            for thread in left.lines() {
                let _ = put(&self.home, self.threads(), thread);
            }
        }
        if self.version == Version::Two {
            let _ = put(&self.home, "cgroup.procs", &std::process::id().to_string());
        }
        let _ = fs::remove_dir(&self.dir);
        if let (Version::Two, Some(domain)) = (self.version, self.dir.parent()) {
            let _ = fs::remove_dir(domain);
        }
    }
}

fn put(dir: &Path, file: &str, text: &str) -> Result<()> {
    let path = dir.join(file);
    fs::write(&path, text).with_context(|| format!("cannot write {text} to {}", path.display()))
}

/// Returns where the `cpu` controller is mounted.
fn find() -> Result<(PathBuf, Version)> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, dir, kind, options, ..] = fields[..] else { continue };
        let dir = PathBuf::from(dir);
        match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => {
                return Ok((dir, Version::One));
            }
            "cgroup2" => {
                let controllers = fs::read_to_string(dir.join("cgroup.controllers"));
                if controllers.is_ok_and(|all| all.split_whitespace().any(|one| one == "cpu")) {
                    return Ok((dir, Version::Two));
                }
            }
            _ => {}
        }
    }
    bail!("no control group here has the cpu controller")
}

/// Returns this process's own group, below the controller's mount.
fn own_group(version: Version) -> io::Result<String> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_it = match version {
            Version::One => controllers.split(',').any(|controller| controller == "cpu"),
            Version::Two => controllers.is_empty(),
        };
        is_it.then(|| path.to_owned())
    });
    Ok(own.unwrap_or_default())
}
