//! The functions of [`std::fs`].

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::path::{Path, PathBuf};

use super::on_pool::run;

/// Reads all of a file. See [`std::fs::read`].
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref().to_owned();
    run(move || fs::read(path)).await
}

/// Reads all of a UTF-8 file. See [`std::fs::read_to_string`].
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref().to_owned();
    run(move || fs::read_to_string(path)).await
}

/// Returns the metadata of a file. It follows symbolic links. See [`std::fs::metadata`].
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref().to_owned();
    run(move || fs::metadata(path)).await
}

/// Returns the metadata of a file, or of a link itself. See [`std::fs::symlink_metadata`].
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref().to_owned();
    run(move || fs::symlink_metadata(path)).await
}

/// Returns whether the file exists. See [`std::fs::exists`].
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    let path = path.as_ref().to_owned();
    run(move || fs::exists(path)).await
}

/// Returns the absolute path without links. See [`std::fs::canonicalize`].
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    run(move || fs::canonicalize(path)).await
}

/// Returns the target of a symbolic link. See [`std::fs::read_link`].
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    run(move || fs::read_link(path)).await
}

/// Removes a file. See [`std::fs::remove_file`].
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    run(move || fs::remove_file(path)).await
}

/// Creates a directory. See [`std::fs::create_dir`].
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    run(move || fs::create_dir(path)).await
}

/// Creates a directory, and its missing parents. See [`std::fs::create_dir_all`].
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    run(move || fs::create_dir_all(path)).await
}

/// Removes an empty directory. See [`std::fs::remove_dir`].
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    run(move || fs::remove_dir(path)).await
}

/// Removes a directory with all its contents. See [`std::fs::remove_dir_all`].
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it removes the whole directory, even if
/// cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    run(move || fs::remove_dir_all(path)).await
}

/// Renames a file, and replaces a file that has the new name. See [`std::fs::rename`].
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
    run(move || fs::rename(from, to)).await
}

/// Copies a file with its permissions, and returns its length. See [`std::fs::copy`].
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
    run(move || fs::copy(from, to)).await
}

/// Creates a hard link: another name of a file. See [`std::fs::hard_link`].
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn hard_link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
    run(move || fs::hard_link(from, to)).await
}

/// Creates a symbolic link at `to` that points to `from`. See [`std::os::unix::fs::symlink`].
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn symlink(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
    run(move || std::os::unix::fs::symlink(from, to)).await
}

/// Sets a file's permissions. See [`std::fs::set_permissions`].
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    run(move || fs::set_permissions(path, permissions)).await
}

/// Writes `contents` to a file. The file is created if it is missing, and its old contents are
/// replaced. See [`std::fs::write`].
///
/// `contents` moves to another thread: a `Vec<u8>`, a `String` or a `&'static str` is not copied.
///
/// # Cancel safety
/// Not cancel-safe: once a thread has begun the operation, it is executed even if cancelled.
///
/// # Errors
/// Kernel errors; no thread can be started.
pub async fn write(
    path: impl AsRef<Path>,
    contents: impl AsRef<[u8]> + Send + 'static,
) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    run(move || fs::write(path, contents)).await
}
