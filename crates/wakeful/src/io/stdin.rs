//! Standard input.
//!
//! Whether a read blocks is a property of the open file, which the shell, a parent or other
//! children share with this process. A program that sets `O_NONBLOCK` on it breaks their reads. So
//! a terminal or a pipe is opened once more, by its name in `/proc`, which makes an open file of
//! our own. A socket cannot be opened in this way, but need not be, because `recv` takes the flag
//! for one call.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, OFlags};

use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::fs::FileIo;
use crate::readiness::driver;
use crate::sys::open_anew::{is_terminal, open_anew};
use crate::sys::uninit::{self, ReadBuffer, ReadCall};
use crate::task::coop;

/// Opens standard input for this thread's loop. This changes none of its flags.
///
/// ```
/// # async fn example() -> std::io::Result<()> {
/// let mut stdin = wakeful::io::stdin()?;
/// let mut buf = [0; 1024];
/// match stdin.read(&mut buf).await? {
///     0 => println!("the end"),
///     read => println!("{} bytes", read),
/// }
/// # Ok(())
/// # }
/// ```
///
/// To read lines, wrap it in a `futures_lite::io::BufReader`, and call `read_line`.
///
/// # How it waits
/// * For a terminal, a pipe, a FIFO or a socket, the loop waits without a thread.
/// * For a regular file or a device such as `/dev/null`, each read runs on the [blocking
///   pool](crate::task::spawn_blocking), and returns soon. Other holders of the same open file
///   share the position, as in any program.
/// * Reads also run on the pool for a terminal or a pipe that cannot be opened a second time: there
///   is no `/proc`, or the terminal or pipe belongs to another user (after `su`). The same holds
///   for anything that the loop cannot watch, because the user's limit of watches is reached. Such
///   a read that waits for input occupies a thread of the pool, and keeps a paused test clock from
///   jumping, until there is input. If another process made the pipe non-blocking, a read may
///   return `WouldBlock`.
///
/// Reads do not return bytes that [`std::io::stdin`] has buffered. Use only one of the two.
///
/// # Errors
/// No loop runs on this thread; standard input is closed; no descriptors are left.
pub fn stdin() -> io::Result<Stdin> {
    from_fd(std::io::stdin())
}

fn from_fd(fd: impl AsFd) -> io::Result<Stdin> {
    let driver = driver()?;
    let fd = fd.as_fd();
    let stat = rustix::fs::fstat(fd)?;
    let open = || open_anew(fd, OFlags::RDONLY).ok().map(|own| (own, ReadCall::Any));
    let watched = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Socket => Some((fd.try_clone_to_owned()?, ReadCall::DontWait)),
        FileType::Fifo => open(),
        FileType::CharacterDevice if is_terminal(fd, &stat) => open(),
        _ => None,
    };
    if let Some((own, call)) = watched
        && let Ok(fd) = Registered::watched(&driver, own)
    {
        return Ok(Stdin { source: Source::Watched { fd, call } });
    }
    let file = fd.try_clone_to_owned()?.into();
    Ok(Stdin { source: Source::OnPool(FileIo::new(file)) })
}

/// Standard input. See [`stdin`].
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct Stdin {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Watched { fd: Registered<OwnedFd>, call: ReadCall },
    OnPool(FileIo),
}

impl Stdin {
    pub(crate) fn io(&mut self) -> &mut Self {
        self
    }

    /// Reads available bytes, at least one, into `buf`, and returns their number. Returns 0 at the
    /// end (or if `buf` is empty).
    ///
    /// # Cancel safety
    /// Cancel-safe, as long as this `Stdin` is not dropped: on the pool a cancelled read continues,
    /// and the next read gets its bytes.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buf)).await
    }

    pub(crate) fn poll_read<B: ReadBuffer + ?Sized>(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut B,
    ) -> Poll<io::Result<usize>> {
        let (fd, call) = match &mut self.source {
            Source::Watched { fd, call } => (fd, *call),
            Source::OnPool(file) => return file.poll_read(cx, buf),
        };
        ready!(coop::poll_proceed(cx));
        if buf.room() == 0 {
            coop::made_progress();
            return Poll::Ready(Ok(0));
        }
        // Only EAGAIN shows that there is no more input. A terminal returns one line at a time, and
        // no event reports the end of a FIFO that was opened after its last writer had left.
        let read =
            ready!(fd.poll_io(Direction::Read, cx, |fd| { uninit::read(fd.as_fd(), call, buf) }));
        coop::made_progress();
        Poll::Ready(Ok(read?.count))
    }
}
