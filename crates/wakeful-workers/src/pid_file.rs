//! A file that names the master in charge.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
    /// The directory or the file refuses it; the text names the file.
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

    fn is_ours(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == self.process.to_string())
    }
}

fn put(path: &Path, process: u32) -> io::Result<()> {
    let new = path.with_extension(format!("{process}.new"));
    let written = fs::write(&new, format!("{process}\n")).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&new);
        io::Error::new(
            error.kind(),
            format!("cannot write the pid file {}: {error}", path.display()),
        )
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
    fn a_file_that_cannot_be_had_is_named() {
        let error = PidFile::write(Path::new("/proc/none/server.pid")).unwrap_err();
        assert!(error.to_string().contains("/proc/none/server.pid"), "{error}");
    }
}
