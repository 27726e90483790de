//! A program's connection to the machine's keeper. It never waits, except in the functions that say
//! so.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

use crate::keeper_protocol::{Answer, MOST_ANSWER_BYTES, Request};

/// If this many requests are unanswered, the next request first drops the answers that have come.
/// If there are none, it is not sent. The keeper closes a connection whose buffer is full, after
/// some hundred answers.
const MOST_UNANSWERED: u32 = 64;

/// The reason why there is no connection to a keeper. The message says what would permit it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// There is no socket file.
    #[error(
        "there is no keeper of CPUs at {0}. On the machine itself: systemctl enable --now wakeful-keeper.socket, or `wakeful keeper` as root. In a \
         container: mount the directory of the host's socket"
    )]
    Missing(PathBuf),
    /// No process listens on the socket.
    #[error(
        "the keeper of CPUs at {0} does not run: systemctl restart wakeful-keeper.socket, or `wakeful keeper` as root"
    )]
    NotRunning(PathBuf),
    /// The socket's mode does not allow it.
    #[error(
        "{0} may not be used by this user: its group may (`usermod --append --groups wakeful USER`, then log in again)"
    )]
    Permission(PathBuf),
    /// The keeper's queue of waiting clients is full.
    #[error("the keeper of CPUs at {0} is busy: try again later")]
    Busy(PathBuf),
    /// Anything else.
    #[error("{0}: {1}")]
    Other(PathBuf, #[source] io::Error),
}

/// A connection to the machine's keeper of CPUs, `wakeful keeper`.
///
/// A hold lasts as long as the connection: it ends when the client is dropped, or when the process
/// dies. A forked child has a copy of the connection, which keeps the hold until the child also
/// drops it, executes another program or ends.
///
/// The keeper answers each request in order. Only an answer confirms that CPUs are held. So poll
/// the client's descriptor for readiness, or call [`answer`](Self::answer) from time to time. If 64
/// answers are unread, the client drops them. When the keeper ends, `answer` and the requests
/// return an error, and the client holds nothing: connect again.
///
/// # Threads
/// `Send`, not `Sync`: one connection is one hold, for one loop.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
/// use std::time::Duration;
/// use wakeful_awake::{KeeperClient, keeper_protocol};
///
/// let keeper = KeeperClient::connect(Path::new(keeper_protocol::SOCKET))?;
/// keeper.hold(&[2, 3], Duration::ZERO)?;
/// // … a burst of work that must not wait for these two CPUs …
/// keeper.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KeeperClient {
    socket: OwnedFd,
    /// The number of requests whose answer was not read yet.
    unanswered: Cell<u32>,
}

impl KeeperClient {
    /// Connects, without waiting for the keeper. It holds no CPU yet.
    ///
    /// # Errors
    /// No keeper runs, or this user may not use it.
    pub fn connect(path: &Path) -> Result<Self, KeeperError> {
        let socket = connected(path).map_err(|error| {
            let path = path.to_owned();
            match error {
                Errno::NOENT | Errno::NOTDIR => KeeperError::Missing(path),
                Errno::CONNREFUSED => KeeperError::NotRunning(path),
                Errno::ACCESS | Errno::PERM => KeeperError::Permission(path),
                Errno::AGAIN => KeeperError::Busy(path),
                error => KeeperError::Other(path, error.into()),
            }
        })?;
        Ok(Self { socket, unanswered: Cell::new(0) })
    }

    /// Asks the keeper to hold these CPUs, so that they leave their idle state within `tolerated`,
    /// in whole microseconds. Zero allows no idle state. The hold replaces the previous hold of
    /// this connection. The call does not wait: the [answer](Self::answer) arrives later.
    ///
    /// # Errors
    /// The CPUs or the time are not valid (`InvalidInput`), or the keeper does not keep up
    /// (`WouldBlock`): its queue is full, or 64 requests are unanswered. In these cases the request
    /// was not sent, and nothing has changed. Or the keeper is gone (`BrokenPipe`,
    /// `ConnectionReset`), and nothing is held.
    pub fn hold(&self, cpus: &[usize], tolerated: Duration) -> io::Result<()> {
        self.send(&hold_request(cpus, tolerated)?)
    }

    /// Asks the keeper to end the hold. The call does not wait.
    ///
    /// # Errors
    /// The keeper does not keep up (`WouldBlock`): the hold continues, and dropping the client ends
    /// it. Or the keeper is gone, and nothing is held.
    pub fn release(&self) -> io::Result<()> {
        self.send(&Request::Release)
    }

    /// Reads the next answer, without waiting. Returns `None` if there is none yet.
    ///
    /// # Errors
    /// The keeper is gone (`UnexpectedEof`, `ConnectionReset`), and nothing is held. Or its message
    /// is not a valid answer (`InvalidData`).
    pub fn answer(&self) -> io::Result<Option<Answer>> {
        let mut bytes = [0; MOST_ANSWER_BYTES];
        let received = retry_on_intr(|| {
            recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT | RecvFlags::TRUNC)
        });
        let length = match received {
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((length, sent)) if length < sent => return Err(io::ErrorKind::InvalidData.into()),
            Ok((length, _)) => length,
        };
        let answer = Answer::parse(&bytes[..length])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if !matches!(answer, Answer::Ended(_)) {
            self.unanswered.set(self.unanswered.get().saturating_sub(1));
        }
        Ok(Some(answer))
    }

    /// Like [`hold`](Self::hold), but waits up to `limit` for the answer: [`Answer::Held`] or
    /// [`Answer::Refused`]. Drops answers to earlier requests.
    ///
    /// # Errors
    /// The same as for `hold` and [`answer`](Self::answer); or `TimedOut`, after which the CPUs may
    /// still become held.
    pub fn hold_and_wait(
        &self,
        cpus: &[usize],
        tolerated: Duration,
        limit: Duration,
    ) -> io::Result<Answer> {
        self.ask(&hold_request(cpus, tolerated)?, limit)
    }

    /// Asks the keeper which clients hold which CPUs, and waits up to `limit` for the answer. Drops
    /// answers to earlier requests.
    ///
    /// # Errors
    /// The same as for [`hold_and_wait`](Self::hold_and_wait).
    pub fn status(&self, limit: Duration) -> io::Result<String> {
        match self.ask(&Request::Status, limit)? {
            Answer::Status(text) => Ok(text),
            Answer::Refused(reason) => Err(io::Error::other(reason)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn send(&self, request: &Request) -> io::Result<()> {
        if self.unanswered.get() >= MOST_UNANSWERED {
            self.drop_answers(&mut None)?;
            // There is always room for this request, so that a hold cannot stay because of a full
            // queue.
            let is_release = matches!(request, Request::Release);
            let most = if is_release { 2 * MOST_UNANSWERED } else { MOST_UNANSWERED };
            if self.unanswered.get() >= most {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        let message = request.to_string();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        retry_on_intr(|| send(&self.socket, message.as_bytes(), flags))?;
        self.unanswered.set(self.unanswered.get() + 1);
        Ok(())
    }

    /// Reads the answers up to `last`, the last one.
    fn drop_answers(&self, last: &mut Option<Answer>) -> io::Result<()> {
        while let Some(answer) = self.answer()? {
            *last = Some(answer);
        }
        Ok(())
    }

    /// Waits for the answer to this request.
    fn ask(&self, request: &Request, limit: Duration) -> io::Result<Answer> {
        let start = Instant::now();
        let mut last = None;
        loop {
            let sent = self.drop_answers(&mut last).and_then(|()| self.send(request));
            match (sent, last) {
                (Ok(()), _) => break,
                (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_full = self.unanswered.get() < MOST_UNANSWERED;
                    let flags = if is_full { PollFlags::OUT } else { PollFlags::IN };
                    self.wait(flags, start, limit)?;
                }
                // The keeper did not let this client in, and closed the connection with this
                // answer.
                (Err(_), Some(Answer::Refused(reason))) => return Ok(Answer::Refused(reason)),
                (Err(error), _) => return Err(error),
            }
            last = None;
        }
        loop {
            match self.answer()? {
                None => self.wait(PollFlags::IN, start, limit)?,
                Some(Answer::Ended(_)) => {}
                Some(answer) if self.unanswered.get() == 0 => return Ok(answer),
                Some(_) => {}
            }
        }
    }

    fn wait(&self, flags: PollFlags, start: Instant, limit: Duration) -> io::Result<()> {
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.socket, flags)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn hold_request(cpus: &[usize], tolerated: Duration) -> io::Result<Request> {
    let request = Request::hold(cpus, tolerated);
    request.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Becomes readable when an answer has arrived, or the keeper is gone.
impl AsFd for KeeperClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn connected(path: &Path) -> Result<OwnedFd, Errno> {
    let addr = SocketAddrUnix::new(path)?;
    // A blocking connect would wait for a keeper whose queue is full.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    retry_on_intr(|| connect(&socket, &addr))?;
    Ok(socket)
}
