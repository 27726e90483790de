//! A control group with a CPU quota for a server that is started in it. It is removed when dropped.
//! Version 1 or 2 is used, whichever has the `cpu` controller.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use wakeful_load::internals::servers::ServerSpec;

/// The period in microseconds, which is the kernel's default.
const PERIOD: u32 = 100_000;

/// The kernel releases processes a moment after they have ended.
const REMOVE_ATTEMPTS: u32 = 100;

#[derive(Debug)]
pub(super) struct Quota {
    dir: PathBuf,
}

impl Quota {
    /// Makes a group whose processes together get this share of a CPU in each 100 ms.
    pub(super) fn new(share: f64) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (root, is_second) = find()?;
        if is_second {
            put(&root, "cgroup.subtree_control", "+cpu")?;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = root.join(format!("wakeful-lab-{}-{number}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| named("cannot make", &dir, &error))?;
        let quota = Self { dir };
        let microseconds = (share * f64::from(PERIOD)).round();
        if is_second {
            put(&quota.dir, "cpu.max", &format!("{microseconds} {PERIOD}"))?;
        } else {
            put(&quota.dir, "cpu.cfs_period_us", &PERIOD.to_string())?;
            put(&quota.dir, "cpu.cfs_quota_us", &microseconds.to_string())?;
        }
        Ok(quota)
    }

    /// Returns the same server, started so that it enters the group before it executes its program.
    pub(super) fn around(&self, server: &ServerSpec) -> ServerSpec {
        let ServerSpec::Command { name, argv } = server else { return server.clone() };
        let enter = r#"echo $$ >"$0" && exec "$@""#;
        let procs = self.dir.join("cgroup.procs").to_string_lossy().into_owned();
        let shell = ["sh".to_owned(), "-c".to_owned(), enter.to_owned(), procs];
        let argv = shell.into_iter().chain(argv.iter().cloned()).collect();
        ServerSpec::Command { name: name.clone(), argv }
    }

    /// Returns the number of periods in which a thread of the group had to wait for the next
    /// period, and the number of all periods.
    pub(super) fn throttled(&self) -> io::Result<(u64, u64)> {
        let stat = fs::read_to_string(self.dir.join("cpu.stat"))?;
        let field =
            |name| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        let both = field("nr_throttled ").zip(field("nr_periods "));
        both.ok_or_else(|| io::Error::other("cpu.stat has no nr_throttled"))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for _ in 0..REMOVE_ATTEMPTS {
            // A directory that cannot be removed is empty, and its name contains that of this
            // program.
            match fs::remove_dir(&self.dir) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}

fn put(dir: &Path, file: &str, text: &str) -> io::Result<()> {
    let path = dir.join(file);
    fs::write(&path, text).map_err(|error| named(&format!("cannot write {text} to"), &path, &error))
}

fn named(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

/// Returns where the controller is mounted, and whether it is version 2.
fn find() -> io::Result<(PathBuf, bool)> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, dir, kind, options, ..] = fields[..] else { continue };
        let dir = PathBuf::from(dir);
        match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => {
                return Ok((dir, false));
            }
            "cgroup2" => {
                let controllers = fs::read_to_string(dir.join("cgroup.controllers"));
                if controllers.is_ok_and(|all| all.split_whitespace().any(|one| one == "cpu")) {
                    return Ok((dir, true));
                }
            }
            _ => {}
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "no control group here has the cpu controller"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_server_is_in_the_group_from_the_beginning_and_the_group_goes_with_the_quota() {
        let quota = match Quota::new(0.2) {
            Ok(quota) => quota,
            Err(error) => return eprintln!("skipped, it takes root and a cpu controller: {error}"),
        };
        let argv = ["cat", "/proc/self/cgroup"].map(str::to_owned).to_vec();
        let inside = quota.around(&ServerSpec::Command { name: "cat".to_owned(), argv });
        let ServerSpec::Command { name, argv } = inside else { panic!("it is still a command") };
        assert_eq!(name, "cat");
        let output = Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
        let groups = String::from_utf8(output.stdout).unwrap();
        let dir = quota.dir.clone();
        let own = dir.file_name().unwrap().to_str().unwrap();
        assert!(groups.contains(own), "{own} in {groups}");
        assert_eq!(quota.throttled().unwrap().0, 0);
        drop(quota);
        assert!(!dir.exists());
    }
}
