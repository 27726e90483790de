//! Files, on the [blocking pool](crate::task::spawn_blocking).
//!
//! The kernel has no readiness of a regular file: a read waits for the disk in the call. So each
//! operation here is a call of [`std::fs`] on a thread of the pool, which takes some ten
//! microseconds more than the call itself. Where a program does several in a row,
//! `spawn_blocking(|| …)` around all of them costs one such way. (The crate `blocking` has files of
//! this kind as well, with threads of its own beside the pool's.)
//!
//! ```
//! use wakeful::fs;
//!
//! # fn main() -> std::io::Result<()> {
//! wakeful::block_on(async {
//!     let dir = std::env::temp_dir().join(format!("wakeful-files-{}", std::process::id()));
//!     fs::create_dir_all(&dir).await?;
//!     fs::write(dir.join("new"), "text").await?;
//!     fs::rename(dir.join("new"), dir.join("file")).await?;
//!     assert_eq!(fs::read_to_string(dir.join("file")).await?, "text");
//!
//!     let mut entries = fs::read_dir(&dir).await?;
//!     while let Some(entry) = entries.next_entry().await? {
//!         assert_eq!(entry.file_name(), "file");
//!     }
//!     fs::remove_dir_all(&dir).await
//! })
//! # }
//! ```
//!
//! # Cancel safety
//! An operation that is given up before a thread has begun it is not done at all. One that has
//! begun goes on to its end, and its result is dropped. [`File`] says more on its own.
//!
//! # When the pool is full
//! Operations wait for a thread, however many they are. Only where the process can start no thread
//! at all, they are errors that name the limit.
//!
//! # Threads
//! None of it needs a loop: the futures may be awaited on any thread.

mod file;
mod file_io;
mod functions;
mod on_pool;
mod open_options;
mod operation;
mod read_dir;

pub use self::file::File;
pub use self::functions::{
    canonicalize, copy, create_dir, create_dir_all, hard_link, metadata, read, read_link,
    read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions, symlink,
    symlink_metadata, try_exists, write,
};
pub use self::open_options::OpenOptions;
pub use self::read_dir::{DirEntry, ReadDir, read_dir};

pub(crate) use self::file_io::FileIo;
