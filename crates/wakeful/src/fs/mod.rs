//! Files, on the [blocking pool](crate::task::spawn_blocking).
//!
//! The kernel reports no readiness for regular files: a read call blocks until the disk has
//! answered. So each operation here calls [`std::fs`] on a thread of the pool, which takes about
//! ten microseconds more than the call itself. For several operations in a row, put one
//! `spawn_blocking(|| …)` around all of them: it costs these ten microseconds only once.
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
//! If an operation is cancelled before a thread has begun it, it is not executed. If a thread has
//! begun it, the operation continues to its end, and its result is dropped. [`File`] documents its
//! own rules.
//!
//! # When the pool is full
//! Operations wait for a thread, without a limit on their number. If the process cannot start any
//! thread, they fail with an error that names the limit.
//!
//! # Threads
//! Nothing here needs a loop: the futures may be awaited on any thread.

mod file;
mod file_io;
mod functions;
mod on_pool;
mod open_options;
mod operation;
mod read_dir;
mod small;

pub use self::file::File;
pub use self::functions::{
    canonicalize, copy, create_dir, create_dir_all, hard_link, metadata, read, read_link,
    read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions, symlink,
    symlink_metadata, try_exists, write,
};
pub use self::open_options::OpenOptions;
pub use self::read_dir::{DirEntry, ReadDir, read_dir};
#[doc(hidden)]
pub use self::small::read_small;

pub(crate) use self::file_io::FileIo;
