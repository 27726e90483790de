//! Files in memory. Several processes share one, or a process leaves a text there for the program
//! that it executes.
//!
//! That program gets the number of the descriptor. The environment is not the place for such a
//! text: the user's other processes can read it, and a variable has at most 128 KiB.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{OwnedFd, RawFd};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use wakeful::limits::{explain_call_error, of_file_sizes};

/// Creates a file in memory, close-on-exec, that several processes will use.
///
/// # Errors
/// No memory; no descriptors left.
pub(crate) fn create(name: &str) -> io::Result<OwnedFd> {
    // Some systems require the flag (`vm.memfd_noexec`). Kernels before Linux 6.3 refuse it.
    match rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC),
        made => made,
    }
    .map_err(|error| explain_call_error("memfd_create")(error.into()))
}

/// Checks that this process may write `what` to a file, even one in memory, up to this size.
/// Writing beyond the limit would raise SIGXFSZ, which ends the process.
///
/// # Errors
/// The limit is lower.
pub(crate) fn may_be_as_large(what: &str, size: u64) -> io::Result<()> {
    // If the limit cannot be read, there is most likely none.
    if of_file_sizes().ok().flatten().is_some_and(|limit| size > limit) {
        let text = format!("{what} is beyond the limit of file sizes (RLIMIT_FSIZE, ulimit -f)");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(())
}

/// Makes a file with these bytes. `what` is their name in an error.
///
/// # Errors
/// No memory; no descriptors left; the limit of file sizes.
pub(crate) fn with(name: &str, what: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(create(name)?);
    may_be_as_large(what, bytes.len() as u64)?;
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Is this the number of a descriptor of such a file, with this name? `false` also if there is no
/// `/proc`.
pub(crate) fn is(number: RawFd, name: &str) -> bool {
    let link = fs::read_link(format!("/proc/self/fd/{number}"));
    link.is_ok_and(|link| link.as_os_str() == &*format!("/memfd:{name} (deleted)"))
}

/// Reads the whole of such a file, which another process has written.
///
/// # Errors
/// No memory.
pub(crate) fn read(file: OwnedFd) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::from(file), Vec::new());
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
