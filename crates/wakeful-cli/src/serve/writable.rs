//! Whether the files of the options can be written, for `wakeful config check`. The check may run
//! while a server runs, and as another user. So it must not create a file that the server could not
//! write, and must change none.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The most links that the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Checks that a file can be replaced. As a master does for its pid file, this makes a new file in
/// the same directory.
///
/// # Errors
/// The directory may not be written, or the path is not a regular file.
pub(super) fn can_be_replaced(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    make_and_remove(&path.with_extension(format!("{}.new", std::process::id())))
}

/// Checks that a file can be opened for appending, or made.
///
/// # Errors
/// The file, or the directory where it would be made, may not be written.
pub(super) fn can_be_appended(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        // It is not opened, because its reader would take the close for the end of the log.
        Ok(there) if there.file_type().is_fifo() => {
            Ok(access(path, Access::READ_OK | Access::WRITE_OK)?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => can_be_made(&made_at(path)),
        _ => OpenOptions::new().append(true).open(path).map(drop),
    }
}

/// Where a file is made that does not exist: a link may name another place.
fn made_at(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// The file itself is not made. Otherwise a server that starts at this moment could open it, and
/// write its log into a file that is removed.
fn can_be_made(path: &Path) -> io::Result<()> {
    let ends_with = |name: &std::ffi::OsStr| {
        path.as_os_str().as_encoded_bytes().ends_with(name.as_encoded_bytes())
    };
    if !path.file_name().is_some_and(ends_with) {
        // It is empty, or ends with a slash or a dot.
        return Err(io::Error::new(io::ErrorKind::NotFound, "it is not the name of a file"));
    }
    make_and_remove(&path.with_file_name(format!(".{}.new", std::process::id())))
}

fn make_and_remove(new: &Path) -> io::Result<()> {
    // A link that somebody has put in its place is not followed.
    let _ = fs::remove_file(new);
    File::create_new(new)?;
    fs::remove_file(new)
}
