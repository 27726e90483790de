//! A file that names the master in charge.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// In bytes. Somebody else's file may be of any size.
const LONGEST: u64 = 32;

#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    process: u32,
}

impl PidFile {
    /// Writes this process's number to `path`. Whoever reads it meanwhile sees the one from before
    /// or the new one.
    ///
    /// # Errors
    /// The directory or the file refuses it; something else than a file is there, as `/dev/null`.
    /// The text names the file.
    pub(crate) fn write(path: &Path) -> io::Result<Self> {
        let process = std::process::id();
        put(path, process)?;
        Ok(Self { path: path.to_owned(), process })
    }

    /// Writes it again if another number is there: of a successor that is dead.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub(crate) fn restore(&self) -> io::Result<()> {
        if self.is_ours() {
            return Ok(());
        }
        put(&self.path, self.process)
    }

    /// Only a file is read: a FIFO that somebody has put there would hold this process up.
    fn is_ours(&self) -> bool {
        let is_file = is_file(&self.path).is_ok_and(|is| is);
        is_file && number_in(&self.path).is_ok_and(|process| process == Some(self.process))
    }
}

/// # Errors
/// There is nothing.
fn is_file(path: &Path) -> io::Result<bool> {
    fs::symlink_metadata(path).map(|there| there.is_file())
}

/// The process that a file names.
fn number_in(path: &Path) -> io::Result<Option<u32>> {
    let mut text = String::new();
    fs::File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text.trim().parse().ok())
}

fn put(path: &Path, process: u32) -> io::Result<()> {
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot write the pid file {}: {error}", path.display()),
        )
    };
    // A rename would replace a device or a link.
    if is_file(path).is_ok_and(|is| !is) {
        return Err(named(io::Error::other("there is something else than a file")));
    }
    let new = path.with_extension(format!("{process}.new"));
    let written = fs::write(&new, format!("{process}\n")).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&new);
        named(error)
    })
}

impl Drop for PidFile {
    /// Unless a successor has put its own number there, or this is a fork.
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
        let file = PidFile::write(&path).unwrap();
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
                let file = (!was_there).then(|| PidFile::write(&path).unwrap());
                let _ = fs::remove_file(&path);
                make(&path);
                let before = is_there();
                let error = match &file {
                    Some(file) => file.restore().unwrap_err(),
                    None => PidFile::write(&path).unwrap_err(),
                };
                assert!(
                    error.to_string().contains("server.pid: there is something else"),
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
    fn a_fifo_in_the_place_of_the_file_holds_nobody_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.pid");
        let file = PidFile::write(&path).unwrap();
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
