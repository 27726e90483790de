//! Small files whose names come from a setting: configuration, certificates.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How long a pipe may stay silent before the read fails.
const SILENCE: Duration = Duration::from_secs(10);

/// Reads a file. If it has more than `most` bytes (a device may have no end), returns one byte more
/// than that.
///
/// A pipe, such as that of a shell's `<(command)`, is read in the same way. This blocks the thread
/// while it waits for a writer.
///
/// # Errors
/// The errors of the kernel. Also [`TimedOut`](std::io::ErrorKind::TimedOut), if nothing is written
/// into a pipe for ten seconds.
#[doc(hidden)]
pub fn read_small(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_patiently(path, most, SILENCE)
}

fn read_patiently(path: &Path, most: u64, silence: Duration) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if fs::metadata(path)?.file_type().is_fifo() {
        // Without this flag, opening a pipe would wait for a writer.
        let flags = libc::O_NONBLOCK;
        let pipe = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Pipe { pipe, silence }.take(most + 1).read_to_end(&mut text)?;
    } else {
        File::open(path)?.take(most + 1).read_to_end(&mut text)?;
    }
    Ok(text)
}

/// The reading end of a pipe, opened with `O_NONBLOCK`.
struct Pipe {
    pipe: File,
    silence: Duration,
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // As long as no writer has come, a read would return the end of the file.
        let limit = Timespec::try_from(self.silence).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&limit))? {
            0 => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("nothing has been written into this pipe for {:?}", self.silence),
            )),
            _ => match self.pipe.read(bytes) {
                // Another reader was faster.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.read(bytes),
                read => read,
            },
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::io::Write;
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_end_and_not_waited_for_without_one() {
        let directory = std::env::temp_dir().join(format!("wakeful-small-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = read_patiently(&path, 9, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        for (text, expected) in [("", ""), ("text", "text"), ("more than nine", "more than ")] {
            let writer = thread::spawn({
                let path = path.clone();
                move || {
                    let mut pipe = fs::OpenOptions::new().write(true).open(path).unwrap();
                    // The reader may be gone when it has what it wants.
                    let _ = pipe.write_all(text.as_bytes());
                }
            });
            assert_eq!(read_small(&path, 9).unwrap(), expected.as_bytes());
            writer.join().unwrap();
        }
        let file = directory.join("file");
        fs::write(&file, "more than nine").unwrap();
        assert_eq!(read_small(&file, 9).unwrap(), b"more than ");
        fs::remove_dir_all(directory).unwrap();
    }
}
