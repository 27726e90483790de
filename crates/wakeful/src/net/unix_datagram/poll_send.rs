//! Sends for hand-written futures. The pause before the next attempt, which `send_to` keeps in its
//! future, is kept with the socket here.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use super::{UnixDatagram, is_writable};
use crate::driver::interest::Interest;
use crate::net::unix::kernel_addr;
use crate::sys::limits::explain;
use crate::task::coop;

impl UnixDatagram {
    /// Polls like [`send_to`](Self::send_to), for hand-written futures. Only one task at a time may
    /// poll: only the last caller is woken. Any number of tasks may await
    /// [`send_to`](Self::send_to) meanwhile.
    ///
    /// While the other socket's queue is full, the task is woken to try again, at first after 50 µs
    /// and later after up to 10 ms. If the task abandons the send, it may be woken once more for
    /// it.
    ///
    /// # Errors
    /// Kernel errors: `NotFound` if there is no such file, `ConnectionRefused` if no socket is
    /// bound there, `EMSGSIZE` for a datagram that is longer than the socket's buffer
    /// (`SO_SNDBUF`); the path is too long for an address (`ENAMETOOLONG`); the loop has ended.
    ///
    /// # Cancel safety
    /// A poll that was pending has sent nothing.
    ///
    /// # Examples
    /// ```
    /// use std::future::poll_fn;
    ///
    /// use wakeful::net::UnixDatagram;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// wakeful::block_on(async {
    ///     let (sender, receiver) = (UnixDatagram::unbound()?, UnixDatagram::autobind()?);
    ///     let to = receiver.local_addr()?;
    ///     let length = poll_fn(|cx| sender.poll_send_to_addr(cx, b"ping", &to)).await?;
    ///     assert_eq!(length, 4);
    ///     let mut buf = [0; 16];
    ///     let (length, _) = poll_fn(|cx| receiver.poll_recv_from(cx, &mut buf)).await?;
    ///     assert_eq!(&buf[..length], b"ping");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        path: impl AsRef<Path>,
    ) -> Poll<io::Result<usize>> {
        match SocketAddrUnix::new(path.as_ref()) {
            Ok(addr) => self.poll_send_addressed(cx, buf, &addr),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// Like [`poll_send_to`](Self::poll_send_to), to a path or to an abstract name.
    ///
    /// # Errors
    /// `InvalidInput`: the address is unnamed. Otherwise, the same as for
    /// [`poll_send_to`](Self::poll_send_to).
    ///
    /// # Cancel safety
    /// A poll that was pending has sent nothing.
    pub fn poll_send_to_addr(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        addr: &SocketAddr,
    ) -> Poll<io::Result<usize>> {
        match kernel_addr(addr) {
            Ok(addr) => self.poll_send_addressed(cx, buf, &addr),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_send_addressed(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        to: &SocketAddrUnix,
    ) -> Poll<io::Result<usize>> {
        // The pause is polled and dropped outside of the cell, because wakers may be user code.
        let mut pausing = self.pausing.take();
        loop {
            ready!(coop::poll_proceed(cx));
            match self.try_send_addressed(buf, &[], to) {
                Err(Errno::AGAIN) => {}
                result => {
                    coop::made_progress();
                    return Poll::Ready(result.map_err(explain));
                }
            }
            // This socket's own buffer is full, or the queue of a third socket to which it is
            // connected. An event may come before the pause is over.
            if !is_writable(self) {
                match self.socket().poll_seen_alone(Interest::WRITABLE, cx) {
                    Poll::Ready(Ok(_)) => continue,
                    Poll::Ready(Err(ended)) => return Poll::Ready(Err(ended)),
                    Poll::Pending => {}
                }
            }
            let pause = pausing.get_or_insert_with(Box::default);
            if pause.poll(cx).is_pending() {
                drop(self.pausing.replace(pausing));
                return Poll::Pending;
            }
        }
    }
}
