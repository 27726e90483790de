//! What sockets offer to those who wait for readiness first and then make one attempt.

/// For types whose `socket()` is a `&Registered<_>`: both directions.
macro_rules! ready_methods {
    ($($type:ident),*) => { $(
        crate::net::ready_methods::readable_methods!($type);
        crate::net::ready_methods::writable_methods!($type);

        impl $type {
            /// Waits until something of `interest` is ready, as an event of the kernel has said.
            /// It may be over by the time of the attempt, which then says `WouldBlock`. Several
            /// tasks may wait at once.
            ///
            /// *Cancel-safe*.
            ///
            /// # Errors
            /// The loop has ended.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                Ok(Wait::new(self.socket(), interest).await?.ready)
            }

            /// Makes a system call of your own on this socket, once, if the socket may be ready
            /// for it; otherwise it is not made. `WouldBlock` from `operation` marks the socket as
            /// not ready for every interest that you named. `operation` must use this socket, and
            /// say `WouldBlock` for no other reason: the next wait would not end. (A `recv` of
            /// urgent data says `EINVAL` when there is none.)
            ///
            /// ```
            /// use rustix::net::RecvFlags;
            /// use wakeful::net::TcpStream;
            /// use wakeful::readiness::Interest;
            ///
            /// async fn peeked(stream: &TcpStream, buf: &mut [u8]) -> std::io::Result<usize> {
            ///     let mut peek = || Ok(rustix::net::recv(stream, &mut *buf, RecvFlags::PEEK)?.1);
            ///     stream.async_io(Interest::READABLE, &mut peek).await
            /// }
            /// ```
            ///
            /// # Errors
            /// The operation's; `WouldBlock`: the socket is not ready.
            pub fn try_io<R>(
                &self,
                interest: Interest,
                operation: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R> {
                self.socket().try_io(interest, operation)
            }

            /// Makes a system call of your own on this socket as soon as the socket is ready for
            /// it, as [`try_io`](Self::try_io) says.
            ///
            /// *Cancel-safe*, if `operation` is one system call.
            ///
            /// # Errors
            /// The operation's; the loop has ended.
            pub async fn async_io<R>(
                &self,
                interest: Interest,
                mut operation: impl FnMut() -> io::Result<R>,
            ) -> io::Result<R> {
                loop {
                    consume_budget().await;
                    match self.try_io(interest, &mut operation) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            self.ready(interest).await?;
                        }
                        result => return result,
                    }
                }
            }
        }
    )* };
}

/// The direction of reads.
macro_rules! readable_methods {
    ($($type:ty),*) => { $(
        impl $type {
            /// Waits until a read would return at once: with data, with the end, or with an error.
            /// It may be over by then: the `try_` methods say `WouldBlock`. Several tasks may wait
            /// at once.
            ///
            /// *Cancel-safe*.
            ///
            /// # Errors
            /// The loop has ended.
            pub async fn readable(&self) -> io::Result<()> {
                Wait::new(self.socket(), Interest::READABLE).await.map(drop)
            }

            /// As [`readable`](Self::readable), for a future written by hand. One task at a time,
            /// on a stream also the one that reads: only the one that asked last is woken.
            ///
            /// # Errors
            /// The loop has ended.
            pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                ready!(coop::poll_proceed(cx));
                let ready = ready!(self.socket().poll_seen_alone(Interest::READABLE, cx));
                coop::made_progress();
                Poll::Ready(ready.map(drop))
            }
        }
    )* };
}

/// The direction of writes.
macro_rules! writable_methods {
    ($($type:ty),*) => { $(
        impl $type {
            /// Waits until a write would return at once: the socket takes something, or fails.
            /// Several tasks may wait at once.
            ///
            /// *Cancel-safe*.
            ///
            /// # Errors
            /// The loop has ended.
            pub async fn writable(&self) -> io::Result<()> {
                Wait::new(self.socket(), Interest::WRITABLE).await.map(drop)
            }

            /// As [`writable`](Self::writable), for a future written by hand. One task at a time,
            /// on a stream also the one that writes: only the one that asked last is woken.
            ///
            /// # Errors
            /// The loop has ended.
            pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                ready!(coop::poll_proceed(cx));
                let ready = ready!(self.socket().poll_seen_alone(Interest::WRITABLE, cx));
                coop::made_progress();
                Poll::Ready(ready.map(drop))
            }
        }
    )* };
}

/// One attempt to read from a stream.
macro_rules! try_read_methods {
    ($($type:ty),*) => { $(
        impl $type {
            /// Reads what is there into `buf`, and does not wait. 0: the peer has ended its side
            /// (or `buf` is empty).
            ///
            /// # Errors
            /// `WouldBlock`: nothing is there. The kernel's.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.io().try_read(buf)
            }

            /// As [`try_read`](Self::try_read), into several slices with one system call. The
            /// first 1,024 of them count.
            ///
            /// # Errors
            /// As for [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.io().try_read_vectored(bufs)
            }
        }
    )* };
}

/// One attempt to write to a stream.
macro_rules! try_write_methods {
    ($($type:ty),*) => { $(
        impl $type {
            /// Writes as much of `buf` as the socket's buffer takes, and does not wait.
            ///
            /// # Errors
            /// `WouldBlock`: it takes nothing now. The kernel's (no SIGPIPE).
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                self.io().try_write(buf)
            }

            /// As [`try_write`](Self::try_write), from several slices with one system call. The
            /// first 1,024 of them count.
            ///
            /// # Errors
            /// As for [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                self.io().try_write_vectored(slices)
            }
        }
    )* };
}

pub(super) use {
    readable_methods, ready_methods, try_read_methods, try_write_methods, writable_methods,
};
