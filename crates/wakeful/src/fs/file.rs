use std::fs::{self, Metadata, Permissions};
use std::future::poll_fn;
use std::io::{self, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use super::file_io::FileIo;
use super::on_pool::run;
use super::open_options::OpenOptions;
use super::operation::Operation;

/// An open file, whose operations run on the blocking pool, in order and one at a time (except
/// `metadata`, `set_permissions` and `try_clone`).
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
/// the bytes. The methods of the traits (`AsyncWrite` of futures and tokio, and their extensions)
/// return when the pool has the bytes. An error that they return belongs to the *previous* write.
/// After such writes, call `flush` (or `close`, `shutdown`), which waits and returns any error.
///
/// If a file is dropped with a write in flight, or such a write is cancelled, the bytes are still
/// written, unless the process ends first. An error that no call returned is logged.
///
/// # Cancel safety
/// An operation begins when the earlier ones have ended. A cancelled operation that has begun
/// continues, and the next one waits for it. The next read returns the bytes of a cancelled read.
/// The position counts only bytes that a read has returned: `seek` and `write` start there.
///
/// Three operations do not wait for others: [`metadata`](Self::metadata),
/// [`set_permissions`](Self::set_permissions) and [`try_clone`]. If they are cancelled before a
/// thread has begun them, they are not executed.
///
/// # Memory
/// A file keeps the buffer of its last read until the next read. The buffer is as long as the `buf`
/// of that read, at most 2 MiB. So drop files that you no longer use.
///
/// # Threads
/// `Send` and `Sync`. It needs no loop. If several tasks use one file, open the file in each task,
/// or use [`FileExt::read_at`] and [`FileExt::write_at`] in `spawn_blocking`: they take the
/// position as an argument. Clones ([`try_clone`]) share one position, so use them only for
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

    /// Opens a file for writing: creates it, or truncates an existing one.
    ///
    /// # Cancel safety
    /// Not cancel-safe: if cancelled, it may still create or truncate the file.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// Returns options to open a file in other ways.
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Makes a `File` from a file of the standard library.
    #[must_use]
    pub fn from_std(file: fs::File) -> Self {
        Self { io: FileIo::new(file) }
    }

    /// Waits for operations in flight, and returns the standard library's file.
    ///
    /// If a cancelled read has read bytes, the position moves back by them. A terminal or a FIFO
    /// has no position, so those bytes are lost.
    ///
    /// # Cancel safety
    /// If cancelled, the file is dropped. A write in flight is still executed.
    ///
    /// # Errors
    /// A write has failed; no thread can be started; the position cannot be moved back after a
    /// cancelled read; no descriptors are left.
    pub async fn into_std(self) -> io::Result<fs::File> {
        self.io.into_file().await
    }

    pub(crate) fn io(&mut self) -> &mut FileIo {
        &mut self.io
    }

    /// Reads some bytes into `buf`, at most 2 MiB, and returns their number. Returns 0 at the end
    /// of the file (or if `buf` is empty).
    ///
    /// # Cancel safety
    /// Cancel-safe. If a cancelled read has found the end of the file, the next read returns it,
    /// even if the file has grown since.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.io.poll_read(cx, buf)).await
    }

    /// Writes some of `buf`, at most 2 MiB, and returns the number of bytes when the kernel has
    /// them.
    ///
    /// # Cancel safety
    /// Not cancel-safe: a cancelled write continues. But one that still waited for an earlier
    /// operation writes nothing.
    ///
    /// # Errors
    /// Kernel errors, including those of an earlier write; no thread can be started.
    pub async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = poll_fn(|cx| self.io.poll_write(cx, buf)).await?;
        self.flush().await?;
        Ok(written)
    }

    /// Writes all of `buf`, and returns when the kernel has the bytes.
    ///
    /// # Cancel safety
    /// Not cancel-safe: if cancelled, it may have written a part, or may still write one.
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

    /// Waits until the kernel has all written bytes. To wait for the disk, use
    /// [`sync_all`](Self::sync_all).
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// A write has failed; no thread could be started for it.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.io.poll_flush(cx)).await
    }

    /// Moves to another position in the file, and returns the new position in bytes from the start.
    ///
    /// # Cancel safety
    /// If cancelled, the operation may still be executed. The next operation waits for it.
    ///
    /// # Errors
    /// Kernel errors; a write has failed; no thread can be started.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.flush().await?;
        poll_fn(|cx| self.io.poll_seek(cx, to)).await
    }

    /// Waits until the disk has the data and the metadata (`fsync`).
    ///
    /// # Cancel safety
    /// If cancelled, the operation may still be executed. The next operation waits for it.
    ///
    /// # Errors
    /// Kernel errors; a write has failed; no thread can be started.
    pub async fn sync_all(&mut self) -> io::Result<()> {
        self.io.operate(Operation::SyncAll).await
    }

    /// Like [`sync_all`](Self::sync_all), but writes only the metadata that is needed to read the
    /// data (`fdatasync`).
    ///
    /// # Cancel safety
    /// If cancelled, the operation may still be executed. The next operation waits for it.
    ///
    /// # Errors
    /// The same as for [`sync_all`](Self::sync_all).
    pub async fn sync_data(&mut self) -> io::Result<()> {
        self.io.operate(Operation::SyncData).await
    }

    /// Truncates the file to `length` bytes, or extends it with zeros. The position does not
    /// change.
    ///
    /// # Cancel safety
    /// If cancelled, the operation may still be executed. The next operation waits for it.
    ///
    /// # Errors
    /// Kernel errors; a write has failed; no thread can be started.
    pub async fn set_len(&mut self, length: u64) -> io::Result<()> {
        self.io.operate(Operation::SetLen(length)).await
    }

    /// Returns the metadata of the file. It may or may not reflect a write in flight.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let file = self.io.file().clone();
        run(move || file.metadata()).await
    }

    /// Sets the file's permissions.
    ///
    /// # Cancel safety
    /// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
    ///
    /// # Errors
    /// Kernel errors; no thread can be started.
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let file = self.io.file().clone();
        run(move || file.set_permissions(permissions)).await
    }

    /// Returns another handle of the same open file. Both handles share one position. Each handle
    /// waits only for its own operations.
    ///
    /// # Errors
    /// No descriptors are left; no thread can be started.
    pub async fn try_clone(&self) -> io::Result<Self> {
        let file = self.io.file().clone();
        run(move || file.try_clone()).await.map(Self::from_std)
    }
}

impl OpenOptions {
    /// Opens the file, on the pool.
    ///
    /// # Cancel safety
    /// Not cancel-safe: once a thread has begun the operation, it creates or truncates the file as
    /// these options say, even if cancelled. The opened file is then closed.
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
