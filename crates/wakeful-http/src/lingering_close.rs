//! A close that lets the client read the last bytes: HTTP/1's answer, or HTTP/2's last frame.
//!
//! If a socket is closed with unread bytes, its connection is reset, and the reset may overtake the
//! answer. So further bytes are read and discarded, within limits (like `lingering_close` of
//! nginx).

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{io, mem};

use hyper::rt::{Read, Write};
use wakeful::task::yield_now;
use wakeful::time::{now, sleep, timeout};

use crate::read;

/// The time limit of a lingering close.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time limit if the client may have a long response to read (like nginx's `lingering_time`).
const LONGEST: Duration = Duration::from_secs(30);
/// How often the kernel is asked how much it has not sent.
const ASKED: Duration = Duration::from_millis(50);
/// How many bytes are read and discarded within [`PATIENCE`].
const MOST: usize = 64 << 20;

/// Ends our side, and waits until the client has ended its own.
pub(crate) fn linger<I: Read + Write + Unpin>(io: &mut I) -> impl Future<Output = ()> {
    linger_while_it_takes(io, |_| 0)
}

/// Like [`linger`], if the kernel may hold much for the client. Each time that the client has taken
/// some of it, the time limit begins anew.
pub(crate) fn linger_while_it_takes<I: Read + Write + Unpin>(
    io: &mut I,
    unsent: impl Fn(&I) -> usize,
) -> impl Future<Output = ()> {
    let lingering = async move {
        let mut left = unsent(io);
        loop {
            // Errors are ignored, because there is nobody to tell.
            let ending = async {
                shut_down(io).await?;
                discard(io, MOST, LONGEST, |_| false).await
            };
            if timeout(PATIENCE, ending).await.is_ok() {
                break;
            }
            let before = mem::replace(&mut left, unsent(io));
            if left == 0 || left >= before {
                break;
            }
        }
    };
    at_longest(lingering)
}

/// Like [`linger`], for a client that still sends something, and reads its last response meanwhile
/// or afterwards: the rest of an upload, or window updates. Ends when nothing came for `silence`,
/// and the client took nothing of what the kernel holds.
pub(crate) fn linger_while_it_reads<I: Read + Write + Unpin>(
    io: &mut I,
    silence: Duration,
    unsent: impl Fn(&I) -> usize,
) -> impl Future<Output = ()> {
    let lingering = async move {
        shut_down(io).await?;
        discard_while_it_reads(io, silence, unsent).await
    };
    at_longest(lingering)
}

/// Like [`linger_while_it_reads`], for a client that has perhaps sent all that it wants to. Also
/// ends when the client has all that was written, if nothing came before.
pub(crate) fn linger_until_sent<I: Read + Write + Unpin>(
    io: &mut I,
    silence: Duration,
    unsent: impl Fn(&I) -> usize,
) -> impl Future<Output = ()> {
    let lingering = async move {
        shut_down(io).await?;
        let mut taking = Taking::begins();
        loop {
            match timeout(ASKED, poll_fn(|cx| poll_forget(io, cx))).await {
                Ok(Ok(1..)) => return discard_while_it_reads(io, silence, unsent).await,
                Ok(Ok(0)) => break,
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
            if taking.is_over(unsent(io), silence) {
                break;
            }
        }
        Ok(())
    };
    at_longest(lingering)
}

/// Has the client sent something that was not read? If it is not known to have, this makes no
/// system call.
pub(crate) async fn has_come<I: Read + Unpin>(io: &mut I) -> bool {
    poll_fn(|cx| Poll::Ready(matches!(poll_forget(io, cx), Poll::Ready(Ok(1..))))).await
}

/// Waits until the client has all that was written, or takes nothing more of it. Our side is not
/// ended.
pub(crate) fn wait_until_sent<I: Read + Unpin>(
    io: &mut I,
    unsent: impl Fn(&I) -> usize,
) -> impl Future<Output = ()> {
    let waiting = async move {
        let (mut taking, mut has_ended) = (Taking::begins(), false);
        loop {
            if taking.is_over(unsent(io), PATIENCE) {
                break;
            }
            if has_ended {
                sleep(ASKED).await;
                continue;
            }
            match timeout(ASKED, poll_fn(|cx| poll_forget(io, cx))).await {
                Ok(Ok(0)) => has_ended = true,
                Ok(Err(_)) => break,
                Ok(Ok(1..)) | Err(_) => {}
            }
            yield_now().await;
        }
    };
    at_longest(waiting)
}

/// A client takes what the kernel holds for it.
struct Taking {
    /// How much was left when it last took something, and when that was.
    left: usize,
    since: Instant,
}

impl Taking {
    fn begins() -> Self {
        Self { left: usize::MAX, since: now() }
    }

    /// Has the client taken all, or nothing for `silence`? `left` is what it has not taken by now.
    fn is_over(&mut self, left: usize, silence: Duration) -> bool {
        if left < self.left {
            *self = Self { left, since: now() };
        }
        left == 0 || now() - self.since >= silence
    }
}

/// Boxed, so that connections which close without a wait are no larger.
fn at_longest(lingering: impl Future) -> Pin<Box<impl Future<Output = ()>>> {
    Box::pin(async {
        let _ = timeout(LONGEST, lingering).await;
    })
}

async fn shut_down<I: Write + Unpin>(io: &mut I) -> io::Result<()> {
    poll_fn(|cx| Pin::new(&mut *io).poll_shutdown(cx)).await
}

/// Reads until the client has ended its side, or nothing came for `silence` and the client took
/// nothing meanwhile.
async fn discard_while_it_reads<I: Read + Write + Unpin>(
    io: &mut I,
    silence: Duration,
    unsent: impl Fn(&I) -> usize,
) -> io::Result<()> {
    let mut left = unsent(io);
    let is_reading = |io: &I| {
        let before = mem::replace(&mut left, unsent(io));
        left > 0 && left < before
    };
    discard(io, usize::MAX, silence, is_reading).await
}

/// Reads until `most` bytes have come, the client has ended its side, or nothing came for `silence`
/// and `goes_on` is false.
async fn discard<I: Read + Write + Unpin>(
    io: &mut I,
    most: usize,
    silence: Duration,
    mut goes_on: impl FnMut(&I) -> bool,
) -> io::Result<()> {
    let mut read = 0;
    while read < most {
        match timeout(silence, poll_fn(|cx| poll_forget(io, cx))).await {
            Ok(Ok(count @ 1..)) => read += count,
            Ok(Err(error)) => return Err(error),
            Err(_) if goes_on(io) => {}
            Ok(Ok(0)) | Err(_) => break,
        }
        // Nobody waits for this, and copying one piece takes longer than most requests.
        yield_now().await;
    }
    Ok(())
}

/// Reads and discards what is there, at least a byte. Returns 0 at the end.
fn poll_forget<I: Read + Unpin>(io: &mut I, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    thread_local! {
        /// A large buffer, so that even a flood is read with few calls. Each loop has one, so that
        /// the connections need none. (The scratch of `Local` may be in use by the stream that is
        /// read.)
        static UNREAD: RefCell<Box<[u8]>> = RefCell::new(vec![0; 64 << 10].into());
    }
    UNREAD.with_borrow_mut(|buf| read::poll_read(io, cx, buf))
}
