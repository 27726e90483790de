//! The entries of a directory.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::on_pool::{OnPool, run};

/// How many entries one operation on the pool reads.
const BATCH: usize = 64;

/// Opens a directory to read its entries, like [`std::fs::read_dir`]. The [module](super) has an
/// example.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref().to_owned();
    run(move || {
        let mut all = fs::read_dir(path)?;
        let Batch { entries, is_last } = batch(&mut all);
        let rest = (!is_last).then(|| Arc::new(Mutex::new(all)));
        Ok(ReadDir { entries, rest, reading: None })
    })
    .await
}

/// The next entries, and whether there are no others.
#[derive(Debug)]
struct Batch {
    entries: VecDeque<io::Result<fs::DirEntry>>,
    is_last: bool,
}

fn batch(rest: &mut fs::ReadDir) -> Batch {
    let entries: VecDeque<_> = rest.take(BATCH).collect();
    let is_last = entries.len() < BATCH;
    Batch { entries, is_last }
}

/// The entries of a directory, in no order, without `.` and `..`.
///
/// ```
/// use wakeful::fs;
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let mut directories = Vec::new();
///     let mut entries = fs::read_dir("/").await?;
///     while let Some(entry) = entries.next_entry().await? {
///         if entry.file_type().await?.is_dir() {
///             directories.push(entry.path());
///         }
///     }
///     assert!(!directories.is_empty());
///     Ok(())
/// })
/// # }
/// ```
///
/// # Threads
/// `Send` and `Sync`. It needs no loop.
#[derive(Debug)]
pub struct ReadDir {
    entries: VecDeque<io::Result<fs::DirEntry>>,
    /// The iterator over the entries that no batch has brought yet. One operation at a time locks
    /// it. It is kept here, so that it is not lost with an operation that is refused.
    rest: Option<Arc<Mutex<fs::ReadDir>>>,
    reading: Option<OnPool<Batch>>,
}

impl ReadDir {
    /// Returns the next entry, or `None` at the end.
    ///
    /// # Cancel safety
    /// Cancel-safe: if cancelled, the read continues, and the next call returns its entries.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        if self.entries.is_empty()
            && self.reading.is_none()
            && let Some(rest) = self.rest.clone()
        {
            self.reading = Some(run(move || {
                // In a forked child, the parent's operation may hold the lock for ever.
                let rest = rest.try_lock();
                let mut rest = rest.map_err(|_| io::Error::other("it is being read elsewhere"))?;
                Ok(batch(&mut rest))
            }));
        }
        if let Some(reading) = &mut self.reading {
            let read = reading.await;
            self.reading = None;
            let Batch { entries, is_last } = read?;
            self.entries = entries;
            if is_last {
                self.rest = None;
            }
        }
        match self.entries.pop_front() {
            Some(entry) => Ok(Some(DirEntry(Arc::new(entry?)))),
            None => Ok(None),
        }
    }
}

/// An entry of a directory.
///
/// # Threads
/// `Send` and `Sync`. It needs no loop.
#[derive(Debug)]
pub struct DirEntry(Arc<fs::DirEntry>);

impl DirEntry {
    /// Returns the path: the directory's path with the name appended.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Returns the entry's name in the directory.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }

    /// Returns the inode number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.0.ino()
    }

    /// Returns the metadata of the file. It does not follow symbolic links.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let entry = self.0.clone();
        run(move || entry.metadata()).await
    }

    /// Returns the kind of file. Most file systems report it together with the name.
    ///
    /// # Errors
    /// The same as for [`metadata`](Self::metadata).
    pub async fn file_type(&self) -> io::Result<FileType> {
        let entry = self.0.clone();
        run(move || entry.file_type()).await
    }
}
