//! What TCP and Unix listeners have in common: their registration with a loop.

/// For types that have a field `socket: Registered<Arc<OwnedFd>>`.
macro_rules! listener_methods {
    ($type:ident) => {
        impl $type {
            pub(super) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
                Ok(Self { socket: crate::net::register(Arc::new(fd))? })
            }

            /// Takes the descriptor off its loop. If others have the socket, too, the result is a
            /// duplicate.
            fn into_fd(self) -> io::Result<OwnedFd> {
                let shared = match Arc::try_unwrap(self.socket.into_inner()) {
                    Ok(fd) => return Ok(fd),
                    Err(shared) => shared,
                };
                shared.try_clone().map_err(crate::sys::limits::explain_error)
            }

            /// Makes one of several loops' listeners for the same socket.
            pub(crate) fn attach(
                fd: Arc<OwnedFd>,
                memberships: &Arc<crate::driver::listener_members::ListenerMembers>,
                joining: crate::driver::membership::Joining,
            ) -> io::Result<Self> {
                Ok(Self { socket: crate::net::register_shared(fd, memberships, joining)? })
            }

            /// This loop's membership among the loops that wait, if the socket is shared.
            pub(crate) fn membership(&self) -> Option<&Arc<crate::driver::membership::Membership>> {
                self.socket.membership()
            }

            /// See [`Listener::is_lent`](super::Listener::is_lent).
            pub(super) fn is_lent(&self) -> bool {
                self.socket.is_lent()
            }

            pub(super) fn from_socket(socket: Registered<Arc<OwnedFd>>) -> Self {
                Self { socket }
            }

            pub(super) fn into_socket(self) -> Registered<Arc<OwnedFd>> {
                self.socket
            }

            pub(crate) fn socket(&self) -> &Registered<Arc<OwnedFd>> {
                &self.socket
            }

            /// Sets the priority: connections to a high-priority listener are handled in the next
            /// turn, before all other events. Connections that it accepts from now on also have
            /// high priority. See [`TcpStream::set_priority`](crate::net::TcpStream::set_priority).
            ///
            /// # Errors
            /// The same as for [`TcpStream::set_priority`](crate::net::TcpStream::set_priority);
            /// and for a listener that several loops share.
            pub fn set_priority(&self, priority: Priority) -> io::Result<()> {
                self.socket.set_priority(priority)
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.socket.io().as_fd()
            }
        }
    };
}
pub(super) use listener_methods;
