//! A file that names the master in charge.
//!
//! The master holds a lock on its file (`flock(2)`) until it is told to end, so that a second
//! master with the same file notices it. The number in the file is not enough for that, because a
//! dead master's number is given to other processes, and another container counts from 1 again. A
//! successor may replace the file if its predecessor holds the lock.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Pid;

/// The most bytes that are read. A file of another program may have any size.
const LONGEST: u64 = 32;

#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    process: u32,
    /// The file that this process wrote. It is locked until other masters may replace it. It stays
    /// open, so that no other file gets its inode number.
    file: File,
}

impl PidFile {
    /// Writes this process's number to `path`. A program that reads the file at the same time sees
    /// the old or the new number.
    ///
    /// # Errors
    /// The directory or the file may not be written; or `path` is not a regular file, for example
    /// `/dev/null`. The text names the file.
    pub(crate) fn write(path: &Path) -> io::Result<Self> {
        let process = std::process::id();
        Ok(Self { path: path.to_owned(), process, file: put(path, process)? })
    }

    /// From now on another master may write the file.
    pub(crate) fn let_go(&self) {
        // An error is ignored, because some file systems have no locks.
        let _ = flock(&self.file, FlockOperation::NonBlockingUnlock);
    }

    /// Writes the file again if a successor, which is dead by now, has replaced it.
    ///
    /// # Errors
    /// The same as for [`write`](Self::write); or another master has the file now.
    pub(crate) fn restore(&mut self) -> io::Result<()> {
        if !self.is_ours() {
            self.let_go();
            is_free(&self.path, None)?;
            self.file = put(&self.path, self.process)?;
        }
        Ok(())
    }

    /// Is the file still the one that this process wrote, with its number? The number alone is not
    /// enough, because a master in another container may have the same one. Only a regular file is
    /// read, because reading a FIFO could block this process.
    fn is_ours(&self) -> bool {
        let identity = |file: Metadata| (file.dev(), file.ino());
        let there = fs::symlink_metadata(&self.path).map(identity);
        let is_same =
            there.is_ok_and(|there| self.file.metadata().map(identity).ok() == Some(there));
        is_same && number_in(&self.path).is_ok_and(|process| process == Some(self.process))
    }
}

/// Checks that a master may use the file. It calls this before it starts, and before it writes. It
/// may use its predecessor's file.
///
/// # Errors
/// Another master that runs has the file.
pub(crate) fn is_free(path: &Path, predecessor: Option<Pid>) -> io::Result<()> {
    if !is_file(path).is_ok_and(|is| is) {
        return Ok(());
    }
    // A file that cannot be opened or locked shows nothing about a master.
    let Ok(file) = File::open(path) else { return Ok(()) };
    // The lock is shared, so that two masters that check at the same time do not take each other
    // for a running master.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => {
            let who = number_in(path).ok().flatten();
            if who.is_some() && who == predecessor.map(|pid| pid.as_raw_pid().cast_unsigned()) {
                return Ok(());
            }
            let who = who.map_or_else(String::new, |process| format!(", process {process},"));
            Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!(
                    "a running master{who} has the pid file {}: end it first, or give this one \
                     another file",
                    path.display()
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// # Errors
/// There is no such file.
fn is_file(path: &Path) -> io::Result<bool> {
    fs::symlink_metadata(path).map(|there| there.is_file())
}

/// The process that a file names.
fn number_in(path: &Path) -> io::Result<Option<u32>> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text.trim().parse().ok())
}

fn put(path: &Path, process: u32) -> io::Result<File> {
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot write the pid file {}: {error}", path.display()),
        )
    };
    // A rename would replace a device or a link.
    if is_file(path).is_ok_and(|is| !is) {
        return Err(named(io::Error::other("it is not a regular file")));
    }
    let new = path.with_extension(format!("{process}.new"));
    let write = || {
        // A link in its place would not be followed.
        let _ = fs::remove_file(&new);
        let mut file = File::create_new(&new)?;
        file.write_all(format!("{process}\n").as_bytes())?;
        // This cannot block, because no other process has the file. An error is ignored, because
        // some file systems have no locks.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        fs::rename(&new, path)?;
        Ok(file)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&new);
        named(error)
    })
}

impl Drop for PidFile {
    /// Removes the file, unless another master has put its own file or number there, or this is a
    /// forked child.
    fn drop(&mut self) {
        if std::process::id() == self.process && self.is_ours() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_successors_number_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.pid");
        let mut file = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        fs::write(&path, "1\n").unwrap();
        file.restore().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        drop(PidFile::write(&path).unwrap());
        assert!(!path.exists());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_file_of_a_master_with_the_same_number_in_another_container_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.pid");
        let drains = PidFile::write(&path).unwrap();
        drains.let_go();
        let other = put(&path, std::process::id()).unwrap();
        drop(drains);
        assert!(path.exists());
        is_free(&path, None).unwrap_err();
        drop(other);
    }

    #[test]
    fn a_file_that_another_master_has_taken_meanwhile_is_not_restored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.pid");
        let mut file = PidFile::write(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let other = put(&path, 1).unwrap();
        assert_eq!(file.restore().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(other);
        file.restore().unwrap();
        assert_eq!(number_in(&path).unwrap(), Some(std::process::id()));
    }

    #[test]
    fn a_file_is_free_if_no_master_that_runs_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.pid");
        is_free(&path, None).unwrap();
        // The file was left by some process.
        fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        is_free(&path, None).unwrap();
        let mut file = PidFile::write(&path).unwrap();
        let error = is_free(&path, None).unwrap_err().to_string();
        assert!(error.contains(&format!(", process {}, has", std::process::id())), "{error}");
        // The process's own successor may have the file, but no other one.
        is_free(&path, Some(rustix::process::getpid())).unwrap();
        is_free(&path, Pid::from_raw(1)).unwrap_err();
        // The file is written again by a master whose successor is dead.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        is_free(&path, None).unwrap();
        file.restore().unwrap();
        is_free(&path, None).unwrap_err();
        file.let_go();
        is_free(&path, None).unwrap();
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.pid");
        let is_there = || fs::symlink_metadata(&path).map(|there| there.file_type()).ok();
        let make: [&dyn Fn(&Path); 3] = [
            &|path| drop(UnixListener::bind(path).unwrap()),
            &|path| symlink("/dev/null", path).unwrap(),
            &|path| fs::create_dir(path).unwrap(),
        ];
        for make in make {
            // From the start on, and in the place of the file.
            for was_there in [true, false] {
                let mut file = (!was_there).then(|| PidFile::write(&path).unwrap());
                let _ = fs::remove_file(&path);
                make(&path);
                let before = is_there();
                let error = match &mut file {
                    Some(file) => file.restore().unwrap_err(),
                    None => PidFile::write(&path).unwrap_err(),
                };
                assert!(
                    error.to_string().contains("server.pid: it is not a regular file"),
                    "{error}"
                );
                drop(file);
                assert!(before.is_some() && is_there() == before);
                assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
            }
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_new_file_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("server.pid"), directory.path().join("other"));
        fs::write(&other, "precious").unwrap();
        symlink(&other, path.with_extension(format!("{}.new", std::process::id()))).unwrap();
        let file = PidFile::write(&path).unwrap();
        assert!(file.is_ours());
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    }

    #[test]
    fn a_fifo_in_the_place_of_the_file_holds_nobody_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.pid");
        let mut file = PidFile::write(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        file.restore().unwrap_err();
        drop(file);
        assert!(fs::symlink_metadata(&path).is_ok());
    }

    #[test]
    fn a_file_that_cannot_be_had_is_named() {
        let error = PidFile::write(Path::new("/proc/none/server.pid")).unwrap_err();
        assert!(error.to_string().contains("/proc/none/server.pid"), "{error}");
    }
}
