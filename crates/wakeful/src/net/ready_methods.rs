//! Methods of sockets for code that first waits for readiness and then makes one attempt.

/// Methods for both directions, for types whose `socket()` is a `&Registered<_>`.
macro_rules! ready_methods {
    ($($type:ident),*) => { $(
        crate::net::ready_methods::readable_methods!($type);
        crate::net::ready_methods::writable_methods!($type);

        impl $type {
            /// Waits until a kernel event has reported at least one kind of readiness in
            /// `interest`, and returns what is ready. The readiness may have passed when you try
            /// the operation: the operation then returns `WouldBlock`. Several tasks may wait at
            /// once.
            ///
            /// # Cancel safety
            /// Cancel-safe.
            ///
            /// # Errors
            /// The loop has ended.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                Ok(Wait::new(self.socket(), interest).await?.ready)
            }

            /// Makes a custom system call on this socket, once, if the socket may be ready for it.
            /// Otherwise it does not call `operation`. If `operation` returns `WouldBlock`, the
            /// socket is marked as not ready for every interest that you named. `operation` must
            /// use this socket, and must return `WouldBlock` for no other reason: otherwise the
            /// next wait would not end. (A `recv` of urgent data returns `EINVAL` if there is none.
            /// In this case `operation` should return `WouldBlock` instead.)
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
            /// Errors of `operation`. `WouldBlock`: the socket is not ready. In this case
            /// `operation` may not have been called.
            pub fn try_io<R>(
                &self,
                interest: Interest,
                operation: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R> {
                self.socket().try_io(interest, operation)
            }

            /// Makes a custom system call on this socket as soon as the socket is ready for it. The
            /// rules of [`try_io`](Self::try_io) apply.
            ///
            /// # Cancel safety
            /// Cancel-safe, if `operation` is one system call.
            ///
            /// # Errors
            /// Errors of `operation`; the loop has ended.
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

/// Methods for the read direction.
macro_rules! readable_methods {
    ($($type:ty),*) => { $(
        impl $type {
            /// Waits until a read would return at once: with data, with the end, or with an error.
            /// The readiness may have passed when you try to read: the `try_` methods then return
            /// `WouldBlock`. Several tasks may wait at once.
            ///
            /// # Cancel safety
            /// Cancel-safe.
            ///
            /// # Errors
            /// The loop has ended.
            pub async fn readable(&self) -> io::Result<()> {
                Wait::new(self.socket(), Interest::READABLE).await.map(drop)
            }

            /// Polls like [`readable`](Self::readable), for hand-written futures. Only one task at
            /// a time may poll: only the last caller is woken. On a stream, the read methods take
            /// the same place, so a task that reads must be the one that polls.
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

/// Methods for the write direction.
macro_rules! writable_methods {
    ($($type:ty),*) => { $(
        impl $type {
            /// Waits until a write would return at once: the socket has room, or the write fails.
            /// Several tasks may wait at once.
            ///
            /// # Cancel safety
            /// Cancel-safe.
            ///
            /// # Errors
            /// The loop has ended.
            pub async fn writable(&self) -> io::Result<()> {
                Wait::new(self.socket(), Interest::WRITABLE).await.map(drop)
            }

            /// Polls like [`writable`](Self::writable), for hand-written futures. Only one task at
            /// a time may poll: only the last caller is woken. On a stream, the write methods take
            /// the same place, so a task that writes must be the one that polls.
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
            /// Reads available bytes into `buf`, without waiting, and returns their number. Returns
            /// 0 if the peer has ended its side (or if `buf` is empty).
            ///
            /// # Errors
            /// `WouldBlock`: no bytes are available. Kernel errors.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.io().try_read(buf)
            }

            /// Like [`try_read`](Self::try_read), into several slices with one system call. Only
            /// the first 1,024 slices are used.
            ///
            /// # Errors
            /// The same as for [`try_read`](Self::try_read).
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
            /// Writes as much of `buf` as the socket's buffer takes, without waiting, and returns
            /// the number of bytes.
            ///
            /// # Errors
            /// `WouldBlock`: the socket has no room now. Kernel errors (no SIGPIPE).
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                self.io().try_write(buf)
            }

            /// Like [`try_write`](Self::try_write), from several slices with one system call. Only
            /// the first 1,024 slices are used.
            ///
            /// # Errors
            /// The same as for [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                self.io().try_write_vectored(slices)
            }
        }
    )* };
}

pub(super) use {
    readable_methods, ready_methods, try_read_methods, try_write_methods, writable_methods,
};
