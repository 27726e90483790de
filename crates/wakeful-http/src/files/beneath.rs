//! Opens files beneath a directory, and nothing else. The kernel guarantees this, even while
//! directories are renamed and links changed.
//!
//! `openat2` with RESOLVE_BENEATH (Linux 5.6) refuses every step out of the root: `..`, absolute
//! links, links that lead out; links that stay within are followed. If the call is missing, or a
//! seccomp profile returns EPERM, each name is opened separately with O_NOFOLLOW. Then no link is
//! followed at all.
//!
//! Files are opened with O_NONBLOCK, so that a FIFO without a writer does not block a thread.
//! `answer` checks the type of the file before it reads.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::{Errno, retry_on_intr};

const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::DIRECTORY);
/// Magic links (`/proc/…/fd/`) may lead anywhere. There are none beneath a usual root, but `/proc`
/// may be mounted there.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// How often to try again after EAGAIN: a directory on the way was renamed, and the kernel could
/// not tell whether the way led out (openat2(2)).
const RACES: usize = 16;

/// The directory that is served.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Openat2,
    EachName,
    /// Links are followed wherever they lead. This is for a name that the program gives, and not a
    /// client.
    Trusted,
}

impl Root {
    /// # Errors
    /// The path is no directory, or may not be opened.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let directory = retry_on_intr(|| openat(CWD, &path, DIRECTORY, Mode::empty()))?;
        let way = match openat2(directory, ".", DIRECTORY, Mode::empty(), BENEATH) {
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => Way::EachName,
            _ => Way::Openat2,
        };
        Ok(Self { path, way })
    }

    /// The directory of one file, which is opened by its name.
    ///
    /// # Errors
    /// The directory does not exist, or may not be opened.
    pub(super) fn of_file(directory: &Path) -> io::Result<Self> {
        let path = std::path::absolute(directory)?;
        retry_on_intr(|| openat(CWD, &path, DIRECTORY, Mode::empty()))?;
        Ok(Self { path, way: Way::Trusted })
    }

    #[cfg(test)]
    pub(super) fn with_way(path: &Path, way: Way) -> io::Result<Self> {
        Ok(Self { way, ..Self::new(path)? })
    }

    /// How many descriptors a request opens at most, for a moment: the directory, the file, and its
    /// compressed variant. If each name is opened separately, the variant's directory is open, too.
    pub(super) fn opens_at_most(&self) -> usize {
        match self.way {
            Way::Openat2 | Way::Trusted => 3,
            Way::EachName => 4,
        }
    }

    /// Opens the directory as it is now, because a deployment may have put another one in its
    /// place.
    pub(super) fn open(&self) -> Result<Opened, Errno> {
        let directory = retry_on_intr(|| openat(CWD, &self.path, DIRECTORY, Mode::empty()))?;
        Ok(Opened { directory, way: self.way })
    }
}

/// The root, opened for one request.
#[derive(Debug)]
pub(super) struct Opened {
    directory: OwnedFd,
    way: Way,
}

impl Opened {
    /// Opens a chain of names that [`resolve`](super::path::resolve) returned. The result may be a
    /// directory, or anything else.
    pub(super) fn file(&self, name: &[u8]) -> Result<File, Errno> {
        self.open(name, FILE).map(File::from)
    }

    /// Is this the name of a directory? It need not be readable.
    pub(super) fn has_directory(&self, name: &[u8]) -> bool {
        self.open(name, DIRECTORY).is_ok()
    }

    fn open(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let name = if name.is_empty() { b"." } else { name };
        match self.way {
            Way::Openat2 => self.beneath(name, flags),
            Way::EachName => self.each_name(name, flags),
            Way::Trusted => retry_on_intr(|| openat(&self.directory, name, flags, Mode::empty())),
        }
    }

    fn beneath(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut races = 0;
        loop {
            match openat2(&self.directory, name, flags, Mode::empty(), BENEATH) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if races < RACES => races += 1,
                result => return result,
            }
        }
    }

    fn each_name(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut parent: Option<OwnedFd> = None;
        let mut names = name.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            let within = parent.as_ref().unwrap_or(&self.directory).as_fd();
            let flags = if names.peek().is_some() { DIRECTORY } else { flags } | OFlags::NOFOLLOW;
            parent = Some(retry_on_intr(|| openat(within, name, flags, Mode::empty()))?);
        }
        parent.ok_or(Errno::NOENT)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A root with a secret next to it, and every kind of path that might lead there.
    fn tree() -> tempfile::TempDir {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "file").unwrap();
        symlink("../secret", root.join("up")).unwrap();
        symlink("..", root.join("parent")).unwrap();
        symlink(outside.path().join("secret"), root.join("absolute")).unwrap();
        symlink(root.join("a"), root.join("absolute-within")).unwrap();
        symlink("/proc/self/root", root.join("magic")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("a/../a/b/file", root.join("within")).unwrap();
        symlink("a", root.join("alias")).unwrap();
        outside
    }

    fn read(way: Way, tree: &tempfile::TempDir, name: &str) -> Result<String, Errno> {
        let root = Root::with_way(&tree.path().join("root"), way).unwrap();
        let mut text = String::new();
        root.open()?.file(name.as_bytes())?.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    #[test]
    fn no_link_leads_out_whichever_way_files_are_opened() {
        let tree = tree();
        for way in [Way::Openat2, Way::EachName] {
            assert_eq!(read(way, &tree, "a/b/file").as_deref(), Ok("file"));
            for name in [
                "up",
                "parent/secret",
                "absolute",
                "magic/etc/passwd",
                "loop",
                "absolute-within/b/file",
            ] {
                let error = read(way, &tree, name).expect_err(name);
                assert!(
                    matches!(error, Errno::XDEV | Errno::LOOP | Errno::NOTDIR),
                    "{name}: {error}"
                );
            }
        }
    }

    #[test]
    fn links_within_are_followed_by_openat2_only() {
        let tree = tree();
        assert_eq!(read(Way::Openat2, &tree, "within").as_deref(), Ok("file"));
        assert_eq!(read(Way::Openat2, &tree, "alias/b/file").as_deref(), Ok("file"));
        assert_eq!(read(Way::EachName, &tree, "within"), Err(Errno::LOOP));
        assert_eq!(read(Way::EachName, &tree, "alias/b/file"), Err(Errno::NOTDIR));
    }

    #[test]
    fn even_a_name_that_should_not_come_does_not_lead_out() {
        let tree = tree();
        assert_eq!(read(Way::Openat2, &tree, "../secret"), Err(Errno::XDEV));
        assert_eq!(read(Way::Openat2, &tree, "a/../../secret"), Err(Errno::XDEV));
        assert_eq!(read(Way::Openat2, &tree, "/etc/passwd"), Err(Errno::XDEV));
    }

    /// A directory and a link that leads out change places all the time.
    #[test]
    fn no_exchange_on_the_way_leads_out() {
        let tree = tree();
        let root = tree.path().join("root");
        // Beside the root there is a `b/file` as well.
        fs::create_dir(tree.path().join("b")).unwrap();
        fs::write(tree.path().join("b/file"), "secret").unwrap();
        let (real, link) = (root.join("a"), root.join("parent"));
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // This ends when `done` is dropped, even after a failure.
                while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    let exchange = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(CWD, &real, CWD, &link, exchange).unwrap();
                }
            });
            let _done = done;
            for _ in 0..5000 {
                for way in [Way::Openat2, Way::EachName] {
                    match read(way, &tree, "a/b/file") {
                        Ok(text) => assert_eq!(text, "file"),
                        Err(Errno::XDEV | Errno::LOOP | Errno::NOTDIR | Errno::AGAIN) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
    }

    #[test]
    fn a_root_that_is_no_directory_is_refused() {
        let tree = tree();
        assert!(Root::new(&tree.path().join("secret")).is_err());
        assert!(Root::new(&tree.path().join("missing")).is_err());
    }
}
