//! Functions that the services on plain connections share.

use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::patience::reset_at_close;
use crate::{ServeOptions, log};
use futures_io::AsyncRead;
use rustix::io::ioctl_fionread;
use wakeful::accept::{Draining, DrainingStarted};
use wakeful::log::OncePerSecond;
use wakeful::net::{PeerAddr, Stream};
use wakeful::time::{Deadline, now, sleep, timeout, turn_time};

/// Logs how a connection ended. A peer that broke the protocol is worth a warning, at most one a
/// second.
pub(crate) fn log(peer: &PeerAddr, outcome: io::Result<()>) {
    match outcome {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            static LIMIT: OncePerSecond = OncePerSecond::new();
            if let Some(count) = LIMIT.pass() {
                log::log!(warn, %peer, %error, count, "a request is not valid: closing the connection");
            }
        }
        Err(error) => {
            log::log!(debug, %peer, %error, "the connection ended with an error");
        }
    }
}

/// After how long a silent peer is probed by default. Redis's default for `tcp-keepalive` is the
/// same.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(300);
/// The longest time that Linux accepts (`TCP_KEEPIDLE`).
pub(crate) const LONGEST_KEEPALIVE: Duration = Duration::from_secs(32_767);
/// How many probes are sent, a third of that time apart, as in Redis. So a peer that has vanished
/// is noticed after twice that time.
const PROBES: u32 = 3;

/// Sets the options that a connection needs before it is served: small answers are sent at once,
/// and a peer that has vanished is noticed (unless `keepalive` is `None`).
pub(crate) fn set_options(stream: &Stream, keepalive: Option<Duration>) -> io::Result<()> {
    let Stream::Tcp(stream) = stream else { return Ok(()) };
    stream.set_nodelay(true)?;
    match keepalive {
        Some(idle) => {
            // The kernel takes whole seconds, at least one.
            let idle = idle.clamp(Duration::from_secs(1), LONGEST_KEEPALIVE);
            let every = (idle / PROBES).max(Duration::from_secs(1));
            stream.set_keepalive(idle, every, PROBES)
        }
        None => stream.unset_keepalive(),
    }
}

/// How long a drain keeps a connection on which nothing is asked, as [`wakeful_http::DrainPlan`]
/// does.
const LINGER: Duration = Duration::from_millis(200);

/// The linger time of a drain: see [`EndInDrain`]. Idle connections must not be aborted, so it is
/// well within the grace period.
pub(crate) fn linger(options: &ServeOptions) -> Duration {
    LINGER.min(options.grace / 4)
}

/// When a connection ends in a drain. An idle one ends when nothing has come for `linger`: a future
/// that is polled between two requests, if there is nothing to read. A busy one ends after an
/// answer, when the drain has lasted for `linger` and all is read that the kernel had by then. So
/// everything is answered that had come as the drain began, or was on its way, and a client that
/// never pauses is closed. One that waits for its answers sees the end behind an answer, and not
/// when its next request is on its way.
pub(crate) struct EndInDrain<'a> {
    draining: &'a Draining,
    begins: DrainingStarted,
    linger: Duration,
    /// Boxed, so that it takes no room in each connection's task while it serves.
    seen: Option<Box<SeenDrain>>,
}

/// A drain, since the connection has seen it.
struct SeenDrain {
    began: Instant,
    idle: Deadline,
    /// How much is unread of what the kernel had when the linger was over. `None`: it is not over.
    unread: Option<usize>,
}

impl<'a> EndInDrain<'a> {
    pub(crate) fn new(draining: &'a Draining, linger: Duration) -> Self {
        Self { draining, begins: draining.started(), linger, seen: None }
    }

    /// Notes that `count` bytes were read from `from`. Does the connection end after the requests
    /// that are read?
    #[inline]
    pub(crate) fn has_read(&mut self, count: usize, from: &impl AsFd) -> bool {
        self.draining.is_started() && self.is_last(count, from.as_fd())
    }

    #[cold]
    fn is_last(&mut self, count: usize, from: BorrowedFd<'_>) -> bool {
        let (now, linger) = (turn_time(), self.linger);
        let seen = self.seen();
        seen.idle.reset(now + linger);
        if let Some(unread) = &mut seen.unread {
            *unread = unread.saturating_sub(count);
        } else if now.saturating_duration_since(seen.began) >= linger {
            let unread = ioctl_fionread(from).unwrap_or(0);
            seen.unread = Some(usize::try_from(unread).unwrap_or(usize::MAX));
        }
        seen.unread == Some(0)
    }

    fn seen(&mut self) -> &mut SeenDrain {
        self.seen.get_or_insert_with(|| {
            let idle = Deadline::after(self.linger);
            Box::new(SeenDrain { began: turn_time(), idle, unread: None })
        })
    }
}

impl Future for EndInDrain<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        ready!(Pin::new(&mut self.begins).poll(cx));
        Pin::new(&mut self.seen().idle).poll(cx)
    }
}

/// The time limit for a client that reads its last answers slowly (like nginx's `lingering_time`).
pub(crate) const LONGEST: Duration = Duration::from_secs(30);

/// The same outside a drain, where a client that does not read must not stay for longer than
/// elsewhere.
pub(crate) fn last_time(stall_timeout: Option<Duration>) -> Duration {
    stall_timeout.map_or(LONGEST, |timeout| timeout.min(LONGEST))
}

/// How often the kernel is asked how much it has not sent.
const ASKED: Duration = Duration::from_millis(50);

/// Ends our side of a connection, and waits until the client has the answers that the kernel holds.
/// What the client still sends is read and discarded, because a close with unread bytes would reset
/// the connection, and the kernel would discard the answers. It waits for at most `most`. Then the
/// kernel delivers the rest, unless the client has taken nothing for half of that time.
pub(crate) async fn end_when_sent(mut stream: Stream, most: Duration) -> io::Result<()> {
    stream.shutdown_side(Shutdown::Write)?;
    let (mut least, mut taken) = (usize::MAX, now());
    let forget = async {
        let mut has_ended = false;
        loop {
            let left = stream.unsent()?;
            if left == 0 {
                break;
            }
            if left < least {
                (least, taken) = (left, now());
            }
            if has_ended {
                if is_gone(&stream) {
                    break;
                }
                sleep(ASKED).await;
            } else if let Ok(read) = timeout(ASKED, discard(&mut stream)).await {
                has_ended = read? == 0;
            }
        }
        Ok(())
    };
    timeout(most, forget).await.unwrap_or_else(|_| {
        if now() - taken >= most / 2 {
            reset_at_close(&stream);
        }
        Ok(())
    })
}

/// Reads once, and discards what was read. Returns how much it was. It allocates nothing, because
/// the connection may end for want of memory.
pub(crate) fn discard(from: &mut Stream) -> impl Future<Output = io::Result<usize>> {
    poll_fn(|cx| Pin::new(&mut *from).poll_read(cx, &mut [0; 16 * 1024]))
}

/// Has the client reset the connection? After the end of its side no read says so, and the kernel
/// counts what it has not sent for ever.
fn is_gone(stream: &Stream) -> bool {
    match stream {
        Stream::Tcp(stream) => stream.peer_addr().is_err(),
        // Here the kernel counts only what is for a peer.
        Stream::Unix(_) => false,
    }
}

/// Reads once into `space`. 0: the peer has ended, or `told` was ready and nothing else was.
pub(crate) async fn read_unless_told(
    from: &mut (impl AsyncRead + Unpin),
    space: &mut [u8],
    mut told: Option<Pin<&mut impl Future<Output = ()>>>,
) -> io::Result<usize> {
    poll_fn(|cx| {
        if let Poll::Ready(count) = Pin::new(&mut *from).poll_read(cx, space) {
            return Poll::Ready(count);
        }
        match told.as_mut() {
            Some(told) => told.as_mut().poll(cx).map(|()| Ok(0)),
            None => Poll::Pending,
        }
    })
    .await
}
