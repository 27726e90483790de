//! Holds the process at its limit of descriptors, or of threads, for a part of a round.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

static IS_SHORT: AtomicBool = AtomicBool::new(false);
static TIMES_SHORT: AtomicU64 = AtomicU64::new(0);

/// When descriptors were short, to the extent that it was noticed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since(u64);

impl Since {
    pub(crate) fn now() -> Self {
        // A shortage that is still going on counts too.
        Self(TIMES_SHORT.load(SeqCst) - u64::from(IS_SHORT.load(SeqCst)))
    }

    /// Returns whether descriptors were short at any time since then.
    pub(crate) fn were_short(self) -> bool {
        TIMES_SHORT.load(SeqCst) != self.0
    }
}

/// Returns whether descriptors are short or were short before.
pub(crate) fn were_ever_short() -> bool {
    TIMES_SHORT.load(SeqCst) > 0
}

/// While it lives, only a few new descriptors can be opened.
pub(crate) struct FewDescriptors(Rlimit);

impl FewDescriptors {
    /// Allows this many more than are open now.
    pub(crate) fn more_than_open(few: u64) -> Option<Self> {
        let open = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        let before = getrlimit(Resource::Nofile);
        TIMES_SHORT.fetch_add(1, SeqCst);
        IS_SHORT.store(true, SeqCst);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(open + few), ..before });
        Some(Self(before))
    }
}

impl Drop for FewDescriptors {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.0);
        IS_SHORT.store(false, SeqCst);
    }
}

/// A cgroup for this process alone, in which the number of threads can be limited.
#[derive(Debug)]
pub(crate) struct Pids {
    parent: PathBuf,
    own: PathBuf,
}

impl Pids {
    /// Returns `None` if there is no `pids.max` that this process may write.
    pub(crate) fn new() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let group = |line: &str| -> Option<PathBuf> {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            match controllers {
                "" => Some(Path::new("/sys/fs/cgroup").join(path)),
                "pids" => Some(Path::new("/sys/fs/cgroup/pids").join(path)),
                _ => None,
            }
        };
        groups.lines().filter_map(group).find_map(Self::within)
    }

    fn within(parent: PathBuf) -> Option<Self> {
        let own = parent.join(format!("wakeful-torture-{}", std::process::id()));
        fs::create_dir(&own).ok()?;
        let pids = Self { parent, own };
        let is_usable = pids.own.join("pids.max").exists() && pids.enter(&pids.own).is_ok();
        is_usable.then_some(pids)
    }

    fn enter(&self, group: &Path) -> io::Result<()> {
        fs::write(group.join("cgroup.procs"), std::process::id().to_string())
    }

    /// Lets no further thread start until [`lift`](Self::lift).
    pub(crate) fn limit(&self) -> io::Result<()> {
        let now = fs::read_to_string(self.own.join("pids.current"))?;
        fs::write(self.own.join("pids.max"), now.trim())
    }

    pub(crate) fn lift(&self) {
        // The same file was written before.
        let _ = fs::write(self.own.join("pids.max"), "max");
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        self.lift();
        let _ = self.enter(&self.parent);
        let _ = fs::remove_dir(&self.own);
    }
}
