//! The options of a TCP socket, before it connects and after.

use std::io;
use std::time::Duration;

use socket2::TcpKeepalive;

use super::tcp::TcpStream;
use super::tcp_socket::TcpSocket;

/// For types that have a method `options`, which lends the socket to socket2.
macro_rules! tcp_options {
    ($($type:ident),*) => { $(
        impl $type {
            /// Sets `TCP_NODELAY`: true sends small writes at once, false (the kernel's default)
            /// lets the kernel gather them (Nagle's algorithm). Set it in servers that send each
            /// response with one write.
            ///
            /// # Errors
            /// Kernel errors, as for all options.
            pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
                self.options().set_tcp_nodelay(nodelay)
            }

            /// Returns what [`set_nodelay`](Self::set_nodelay) sets.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn nodelay(&self) -> io::Result<bool> {
                self.options().tcp_nodelay()
            }

            /// Sets `TCP_QUICKACK`: true acknowledges received bytes at once, false lets the
            /// acknowledgement travel with the next bytes. The kernel may change it back at any
            /// time (tcp(7)), so repeat it after reads.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
                self.options().set_tcp_quickack(quickack)
            }

            /// Returns whether the kernel currently acknowledges at once.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn quickack(&self) -> io::Result<bool> {
                self.options().tcp_quickack()
            }

            /// Sets `SO_LINGER`. With `None`, the default, the kernel sends written bytes after the
            /// close, and closing does not wait. With `Some`, closing discards the bytes that are
            /// still unsent after that time (in whole seconds, rounded down). Less than one second
            /// counts as zero: closing discards unsent bytes and resets the connection at once. If
            /// the time is not zero, closing blocks the loop's thread for up to that time.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
                self.options().set_linger(linger)
            }

            /// Returns what [`set_linger`](Self::set_linger) sets.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn linger(&self) -> io::Result<Option<Duration>> {
                self.options().linger()
            }

            /// Makes the kernel probe a silent peer after `idle`, then every `interval`, and give
            /// up after `retries` probes. This detects half-open connections. By default the kernel
            /// does not probe.
            ///
            /// `idle` (`TCP_KEEPIDLE`) and `interval` (`TCP_KEEPINTVL`) are rounded down to whole
            /// seconds: 1 to 32,767. `retries` (`TCP_KEEPCNT`) is 1 to 127.
            ///
            /// # Errors
            /// The kernel refuses a number that is out of range.
            pub fn set_keepalive(
                &self,
                idle: Duration,
                interval: Duration,
                retries: u32,
            ) -> io::Result<()> {
                self.options().set_tcp_keepalive(&keepalive(idle, interval, retries))
            }

            /// Makes the kernel stop probing.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn unset_keepalive(&self) -> io::Result<()> {
                self.options().set_keepalive(false)
            }

            /// Returns whether the kernel probes a silent peer.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn keepalive(&self) -> io::Result<bool> {
                self.options().keepalive()
            }

            /// Sets `SO_SNDBUF`, in bytes. The kernel doubles it and applies its limits
            /// (`net.core.wmem_max`).
            ///
            /// # Errors
            /// Kernel errors.
            pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
                self.options().set_send_buffer_size(bytes)
            }

            /// Returns the actual size after [`set_send_buffer_size`](Self::set_send_buffer_size),
            /// in bytes.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn send_buffer_size(&self) -> io::Result<usize> {
                self.options().send_buffer_size()
            }

            /// Sets `SO_RCVBUF`, in bytes. The kernel doubles it and applies its limits
            /// (`net.core.rmem_max`). For a window of more than 64 KiB, set it before the socket
            /// connects or listens: see [`TcpSocket`](crate::net::TcpSocket).
            ///
            /// # Errors
            /// Kernel errors.
            pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
                self.options().set_recv_buffer_size(bytes)
            }

            /// Returns the actual size after [`set_recv_buffer_size`](Self::set_recv_buffer_size),
            /// in bytes.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn recv_buffer_size(&self) -> io::Result<usize> {
                self.options().recv_buffer_size()
            }

            /// Sets `IP_TOS`: the traffic class of packets that are sent over IPv4. The upper six
            /// bits of this byte are the DSCP. The lower two bits (ECN) are TCP's own.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
                self.options().set_tos_v4(tos)
            }

            /// Returns what [`set_tos_v4`](Self::set_tos_v4) sets.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn tos_v4(&self) -> io::Result<u32> {
                self.options().tos_v4()
            }

            /// Sets `IPV6_TCLASS`: like [`set_tos_v4`](Self::set_tos_v4), for IPv6.
            ///
            /// # Errors
            /// Kernel errors; it is an IPv4 socket.
            pub fn set_tclass_v6(&self, class: u32) -> io::Result<()> {
                self.options().set_tclass_v6(class)
            }

            /// Returns what [`set_tclass_v6`](Self::set_tclass_v6) sets.
            ///
            /// # Errors
            /// Kernel errors; it is an IPv4 socket.
            pub fn tclass_v6(&self) -> io::Result<u32> {
                self.options().tclass_v6()
            }

            /// Returns the network interface that the socket is bound to (`SO_BINDTODEVICE`), if it
            /// is.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn device(&self) -> io::Result<Option<Vec<u8>>> {
                self.options().device()
            }

            /// Takes the pending error of the socket (`SO_ERROR`), if there is one: a connection
            /// that failed, or that has ended. The next read or write does not return this error
            /// again.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.options().take_error()
            }
        }
    )* };
}
tcp_options!(TcpStream, TcpSocket);

/// See [`TcpStream::set_keepalive`].
pub(crate) fn keepalive(idle: Duration, interval: Duration, retries: u32) -> TcpKeepalive {
    TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(retries)
}
