//! A stream that waits for its peer only for a limited time.
//!
//! A transfer that succeeds at once reads no clock. If a transfer must wait, a timer is set to a
//! quarter of the limit, and each quarter in which too little moved is counted. So the limit takes
//! effect up to a quarter late. After a stop of the process it takes effect only after everything
//! that arrived was read: see `Deadline`. The socket is always tried first here.
//!
//! Within a request, "too little" is less than [`LEAST_RATE`]: otherwise one byte a minute would
//! keep a large request's buffer for ever. Between requests any byte is enough.
//!
//! The kernel lets a writer go on only when much of its buffer is free, which may take a peer that
//! reads steadily longer than the limit. So what the peer has taken out of that buffer counts, too.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use wakeful::net::Stream;
use wakeful::time::Deadline;

const QUARTERS: u32 = 4;

/// The least bytes a second within a request, as of [`wakeful_http::Limits::min_rate`].
const LEAST_RATE: u128 = 240;

/// See the module.
#[derive(Debug)]
pub(crate) struct PatientStream {
    stream: Stream,
    /// The limit within a request, and of each write.
    stall: Option<Duration>,
    timer: Timer,
}

impl PatientStream {
    /// `stall` is how long the peer may send too little of a request, or take too little of what is
    /// written.
    pub(crate) fn new(stream: Stream, stall: Option<Duration>) -> Self {
        Self { stream, stall, timer: Timer::default() }
    }

    pub(crate) fn get_ref(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn into_inner(self) -> Stream {
        self.stream
    }

    /// Reads once, between two requests. 0: the peer has ended, or `told` was ready and nothing
    /// else was.
    ///
    /// # Errors
    /// The kernel's. `TimedOut`: nothing came for `limit`.
    // This and the functions below are no `async fn`, so that they become a part of the poll of a
    // request's task.
    #[inline(always)]
    pub(crate) fn read_unless_told<'a, F: Future<Output = ()>>(
        &'a mut self,
        space: &'a mut [u8],
        mut told: Pin<&'a mut F>,
        limit: Option<Duration>,
    ) -> impl Future<Output = io::Result<usize>> + use<'a, F> {
        std::future::poll_fn(
            #[inline(always)]
            move |cx| {
                if let Poll::Ready(count) = Pin::new(&mut self.stream).poll_read(cx, space) {
                    self.timer.slow = 0;
                    return Poll::Ready(count);
                }
                if told.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(0));
                }
                self.timer.poll_limit(limit, None, cx)
            },
        )
    }

    /// Reads once, within a request. 0: the peer has ended.
    ///
    /// # Errors
    /// The kernel's. `TimedOut`: too little came for as long as the peer may send nothing.
    pub(crate) fn read_on<'a>(
        &'a mut self,
        space: &'a mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + use<'a> {
        std::future::poll_fn(move |cx| {
            if let Poll::Ready(count) = Pin::new(&mut self.stream).poll_read(cx, space) {
                self.timer.moved += count.as_ref().unwrap_or(&0);
                return Poll::Ready(count);
            }
            self.timer.poll_limit(self.stall, None, cx)
        })
    }

    /// Writes all of `bytes`, the answers to all complete requests.
    ///
    /// # Errors
    /// The kernel's. `TimedOut`: the peer took too little for as long as it may.
    #[inline(always)]
    pub(crate) fn write_all<'a>(
        &'a mut self,
        mut bytes: &'a [u8],
    ) -> impl Future<Output = io::Result<()>> + use<'a> {
        std::future::poll_fn(
            #[inline(always)]
            move |cx| {
                while !bytes.is_empty() {
                    match Pin::new(&mut self.stream).poll_write(cx, bytes) {
                        Poll::Ready(Ok(0)) => {
                            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                        }
                        Poll::Ready(count) => {
                            let count = count?;
                            bytes = &bytes[count..];
                            if bytes.is_empty() {
                                self.timer.slow = 0;
                                break;
                            }
                            self.timer.moved += count;
                        }
                        Poll::Pending => {
                            return self.timer.poll_limit(self.stall, Some(&self.stream), cx);
                        }
                    }
                }
                Poll::Ready(Ok(()))
            },
        )
    }
}

#[derive(Debug, Default)]
struct Timer {
    /// Set when a transfer has to wait for the first time, and then kept. Most connections never
    /// wait.
    sleep: Option<Box<(Duration, Deadline)>>,
    /// How many quarters have ended since enough has moved.
    slow: u32,
    /// How many bytes have moved in this quarter, without the last ones of a request or an answer.
    moved: usize,
    /// How many written bytes the peer had not taken at the end of the last quarter of a write.
    unsent: usize,
}

impl Timer {
    #[inline(always)]
    fn poll_limit<T>(
        &mut self,
        limit: Option<Duration>,
        writes_to: Option<&Stream>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let Some(limit) = limit else { return Poll::Pending };
        ready!(self.poll(limit, writes_to, cx));
        Poll::Ready(Err(timed_out(writes_to)))
    }

    /// Ready when too little has moved for `limit`.
    #[inline(never)]
    fn poll(
        &mut self,
        limit: Duration,
        writes_to: Option<&Stream>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let quarter = limit / QUARTERS;
        let (set_for, timer) = &mut **self.sleep.get_or_insert_with(|| {
            (self.slow, self.moved) = (0, 0);
            Box::new((quarter, Deadline::after(quarter)))
        });
        if *set_for != quarter {
            (*set_for, *timer) = (quarter, Deadline::after(quarter));
            (self.slow, self.moved) = (0, 0);
        }
        let least = (LEAST_RATE * quarter.as_millis()).div_ceil(1000).max(1);
        loop {
            ready!(Pin::new(&mut *timer).poll(cx));
            *timer = Deadline::after(quarter);
            let taken = writes_to.map_or(0, |stream| {
                let left = stream.unsent().unwrap_or(self.unsent);
                std::mem::replace(&mut self.unsent, left).saturating_sub(left)
            });
            let is_enough = std::mem::take(&mut self.moved).max(taken) as u128 >= least;
            self.slow = if is_enough { 0 } else { self.slow + 1 };
            if self.slow > QUARTERS {
                self.slow = 0;
                return Poll::Ready(());
            }
        }
    }
}

/// The peer takes, or sends, too little.
#[cold]
fn timed_out(writes_to: Option<&Stream>) -> io::Error {
    if let Some(stream) = writes_to {
        reset_at_close(stream);
    }
    io::ErrorKind::TimedOut.into()
}

/// Has the close reset the connection. Otherwise the kernel would keep what it has not sent for
/// minutes, if the client takes nothing.
pub(crate) fn reset_at_close(stream: &Stream) {
    if let Stream::Tcp(stream) = stream {
        // With a linger of zero, the close is a reset. If this fails, it is an ordinary close.
        let _ = stream.set_linger(Some(Duration::ZERO));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use futures_lite::AsyncReadExt;
    use futures_lite::future::poll_once;
    use wakeful::net::UnixStream;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(8);

    #[test]
    fn what_arrived_while_the_thread_stood_still_is_read_though_the_limit_has_passed() {
        wakeful::block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut ours = PatientStream::new(ours.into(), None);
            let mut buf = [0; 8];
            let nobody = std::pin::pin!(std::future::pending());
            let mut read = std::pin::pin!(ours.read_unless_told(&mut buf, nobody, Some(LIMIT)));
            assert!(poll_once(&mut read).await.is_none());
            let mut theirs = Stream::from(theirs);
            theirs.write_all(b"in time").await.unwrap();
            // This is the situation after SIGSTOP: timers are due, and the loop has not asked the
            // kernel since.
            for _ in 0..3 * QUARTERS {
                thread::sleep(LIMIT / QUARTERS);
                assert!(poll_once(&mut read).await.is_none());
            }
            assert_eq!(read.await.unwrap(), 7);
        });
    }

    #[test]
    fn nothing_for_as_long_as_the_limit_is_a_time_out() {
        wakeful::block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut ours = PatientStream::new(ours.into(), Some(LIMIT));
            let nobody = std::pin::pin!(std::future::pending());
            let read = ours.read_unless_told(&mut [0; 8], nobody, Some(LIMIT)).await;
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
            let read = ours.read_on(&mut [0; 8]).await;
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
            let written = ours.write_all(&vec![0; 16 << 20]).await;
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
            drop(theirs);
        });
    }

    /// The socket has room again only when most of what it holds was read. That takes this peer
    /// longer than the limit.
    #[test]
    fn a_peer_that_reads_steadily_is_no_time_out_though_the_socket_takes_nothing_for_long() {
        const PIECE: usize = 4 << 10;
        const ALL: usize = 1 << 20;
        let limit = Duration::from_millis(400);
        wakeful::block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let reads = wakeful::spawn(async move {
                let (mut theirs, mut read) = (Stream::from(theirs), vec![0; ALL]);
                let (slowly, fast) = read.split_at_mut(60 * PIECE);
                for piece in slowly.chunks_mut(PIECE) {
                    wakeful::time::sleep(limit / 13).await;
                    theirs.read_exact(piece).await.unwrap();
                }
                theirs.read_exact(fast).await.unwrap();
            });
            let mut ours = PatientStream::new(ours.into(), Some(limit));
            ours.write_all(&vec![0; ALL]).await.unwrap();
            reads.await.unwrap();
        });
    }
}
