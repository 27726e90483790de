use std::fs::{self, Metadata, Permissions};
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use super::file_io::FileIo;
use super::on_pool::run;
use super::open_options::OpenOptions;
use super::operation::Operation;

/// An open file, whose operations run on the blocking pool, one at a time and in order.
///
/// ```
/// use std::io::SeekFrom;
/// use wakeful::fs::File;
///
/// # fn main() -> std::io::Result<()> {
/// # let path = std::env::temp_dir().join(format!("wakeful-file-{}", std::process::id()));
/// wakeful::block_on(async {
///     let mut file = File::options().read(true).write(true).create(true).open(&path).await?;
///     file.write_all(b"hello").await?;
///     file.seek(SeekFrom::Start(1)).await?;
///     let mut buf = [0; 3];
///     let read = file.read(&mut buf).await?;
///     assert_eq!(&buf[..read], b"ell");
///     file.sync_all().await?;
/// #   std::fs::remove_file(&path)?;
///     Ok(())
/// })
/// # }
/// ```
///
/// # Writes
/// The methods [`write`](Self::write) and [`write_all`](Self::write_all) return when the kernel has
/// the bytes. Those of the traits (`AsyncWrite` of futures and tokio, and what is built on them)
/// return when the bytes are handed over to the pool, and an error is that of the write *before*.
/// Behind them, call `flush` (or `close`, `shutdown`), which waits and says whether all went well.
///
/// A file that is dropped with a write in flight is written all the same, unless the process ends
/// first; a failure that nobody was told of is in the log. The same is true of a write that is
/// given up.
///
/// # Cancel safety
/// An operation that is given up goes on, and the next one waits for it. What a read has read by
/// then is there for the next read. If a read was given up, the position counts only bytes that a
/// read has returned; `seek` and `write` start there.
///
/// Three operations run beside the others: [`metadata`](Self::metadata),
/// [`set_permissions`](Self::set_permissions) and [`try_clone`]. Given up before a thread has begun
/// them, they are not done.
///
/// # Memory
/// A file that was read keeps the buffer of its last read until the next one: as long as the `buf`
/// of that read, 2 MiB at most. Drop a file that is no longer used.
///
/// # Threads
/// `Send` and `Sync`; it needs no loop. Where several tasks use one file, each task opens the file
/// itself, or uses [`FileExt::read_at`] and [`FileExt::write_at`] in `spawn_blocking`, which take
/// the position as an argument. Clones ([`try_clone`]) share one position: they are good only for
/// appending.
///
/// [`try_clone`]: Self::try_clone
/// [`FileExt::read_at`]: std::os::unix::fs::FileExt::read_at
/// [`FileExt::write_at`]: std::os::unix::fs::FileExt::write_at
#[derive(Debug)]
pub struct File {
    io: FileIo,
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Creates a file, or empties the one that is there, for writing.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// Returns options to open a file otherwise.
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes a file of the standard library.
    #[must_use]
    pub fn from_std(file: fs::File) -> Self {
        Self { io: FileIo::new(file) }
    }

    /// Waits for what is in flight, and gives the file back.
    ///
    /// Bytes that a read which was given up has read come back: the position goes back by them. A
    /// terminal or a FIFO has no position, so there those bytes are lost.
    ///
    /// # Errors
    /// A write has failed; no thread can be started; the kernel's seek (after a read that was given
    /// up); no descriptors left.
    pub async fn into_std(self) -> io::Result<fs::File> {
        self.io.into_file().await
    }

    pub(crate) fn io(&mut self) -> &mut FileIo {
        &mut self.io
    }

    /// Reads some bytes into `buf`, 2 MiB at most. 0: the end (or `buf` is empty).
    ///
    /// *Cancel-safe*.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.io.poll_read(cx, buf)).await
    }

    /// Writes some of `buf`, 2 MiB at most, and returns when the kernel has it.
    ///
    /// *Not cancel-safe*: given up, it may write all the same.
    ///
    /// # Errors
    /// The kernel's, also that of a write before; no thread can be started.
    pub async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = poll_fn(|cx| self.io.poll_write(cx, buf)).await?;
        self.flush().await?;
        Ok(written)
    }

    /// Writes all of `buf`, and returns when the kernel has it.
    ///
    /// *Not cancel-safe*: given up, it has written a part, or writes it yet.
    ///
    /// # Errors
    /// The same as for [`write`](Self::write).
    pub async fn write_all(&mut self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let written = self.write(buf).await?;
            buf = &buf[written..];
        }
        Ok(())
    }

    /// Waits until the kernel has all that was written. It does not wait for the disk:
    /// [`sync_all`](Self::sync_all).
    ///
    /// *Cancel-safe*.
    ///
    /// # Errors
    /// A write has failed; no thread could be started for it.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.io.poll_flush(cx)).await
    }

    /// Moves to another position, and returns it.
    ///
    /// # Errors
    /// Kernel errors; a write has failed; no thread can be started.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.flush().await?;
        poll_fn(|cx| self.io.poll_seek(cx, to)).await
    }

    /// Waits until the disk has the data and the metadata (`fsync`).
    ///
    /// # Errors
    /// Kernel errors; a write has failed; no thread can be started.
    pub async fn sync_all(&mut self) -> io::Result<()> {
        self.io.operate(Operation::SyncAll).await
    }

    /// As [`sync_all`](Self::sync_all), of the metadata only what it takes to read the data
    /// (`fdatasync`).
    ///
    /// # Errors
    /// The same as for [`sync_all`](Self::sync_all).
    pub async fn sync_data(&mut self) -> io::Result<()> {
        self.io.operate(Operation::SyncData).await
    }

    /// Cuts the file off behind `length`, or fills it with zeros up to there. The position stays.
    ///
    /// # Errors
    /// Kernel errors; a write has failed; no thread can be started.
    pub async fn set_len(&mut self, length: u64) -> io::Result<()> {
        self.io.operate(Operation::SetLen(length)).await
    }

    /// Returns the metadata of the file. A write in flight may or may not be in it.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let file = self.io.file().clone();
        run(move || file.metadata()).await
    }

    /// Sets the file's permissions.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let file = self.io.file().clone();
        run(move || file.set_permissions(permissions)).await
    }

    /// Returns another handle of the same open file, with the same position. Each waits for its own
    /// operations only.
    ///
    /// # Errors
    /// No descriptors left; no thread can be started.
    pub async fn try_clone(&self) -> io::Result<Self> {
        let file = self.io.file().clone();
        run(move || file.try_clone()).await.map(Self::from_std)
    }
}

impl OpenOptions {
    /// Opens the file, on the pool.
    ///
    /// *Cancelled*, it may have created the file.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let (options, path) = (self.0.clone(), path.as_ref().to_owned());
        run(move || options.open(path)).await.map(File::from_std)
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> Self {
        Self::from_std(file)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.file().as_fd()
    }
}
