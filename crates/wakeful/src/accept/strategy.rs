//! Which loop accepts from which socket.

use std::fmt;
use std::io;

use super::opening::Opening;
use super::reuse_port;
use super::shared_listener::SharedListener;
use crate::balance::dispatch_placement::Placement;
use crate::net::DetachedListener;

/// The number of the loop that accepts for all, if one does.
pub(super) const DISPATCHER: usize = 0;

/// How a server's connections reach its loops. It is a setting of
/// [`ConnectionServer`](super::ConnectionServer::strategy).
///
/// | | [`Exclusive`](Self::Exclusive) | [`ReusePort`](Self::ReusePort) | [`Dispatch`](Self::Dispatch) |
/// |---|---|---|---|
/// | a connection wakes | one sleeping loop | its listener's loop | the dispatcher, then the loop that gets it |
/// | served by | the first active loop that accepts it | the loop that its addresses hash to, even if that loop is busy or blocked | the loop that the [`Placement`] chose |
/// | evenness | a loop that took a connection goes to the end of the kernel's list; a loop with far more connections than the mean stops accepting for a while | that of a hash, like [`Placement::Random`] | that of the placement |
/// | extra cost per connection | two `epoll_ctl`, if several loops are active | none | a message, and a wake if the loop sleeps |
/// | a blocked loop delays | its own connections; if no active loop is free for 30 ms, another loop accepts | the connections that hash to it | the connections that it was given; a blocked dispatcher delays every new connection for 30 ms, then another loop accepts |
/// | Unix sockets | yes | no | yes |
///
/// A group that [concentrates](crate::LoopGroupBuilder::concentrate) light load has few active
/// loops. `Exclusive` and `Dispatch` give connections only to these. `ReusePort` gives connections
/// to all loops, and those that can [move](super::Moving) then move to the active ones. If
/// connections should stay where the hash puts them, [spread](crate::LoopGroupBuilder::spread) the
/// load.
///
/// When a server drains, each loop first accepts the connections in its backlog, and then closes
/// its listener. So with every strategy a connection that was established before the drain is
/// served. If the server is at its limit of connections, such a connection is served when an open
/// one closes. In this case the server tells the open connections about the drain at once.
///
/// During the drain no new client gets in: the server drops the SYN of new TCP connections (without
/// CAP_NET_ADMIN nearly all of them, see
/// [`let_nobody_in`](SharedListener::let_nobody_in)), removes the file of a Unix socket, and
/// refuses the clients of an abstract name. It drops no SYNs, and refuses nobody, on a socket that
/// other code may use: if its descriptor was borrowed, if another listener or clone of the
/// [`SharedListener`] exists, or if the process has forked since the socket
/// was bound. On such a socket, a connection may be established after the last accept and before
/// the close. The kernel resets it if no other process accepts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcceptStrategy {
    /// Opens one socket, on which every active loop waits with EPOLLEXCLUSIVE. See
    /// [`SharedListener`].
    #[default]
    Exclusive,
    /// Opens a socket for each loop, all on the same port (`SO_REUSEPORT`). The kernel chooses a
    /// socket by a hash of the addresses.
    ///
    /// Loops share nothing when they accept, so choose this for very many short connections. But
    /// the kernel does not know which loop is busy, and connections in the backlog of a blocked
    /// loop wait. A few clients may all hash to the same loop. Any other process of the same user
    /// that sets `SO_REUSEPORT` can listen on the port, too, and gets a share of the connections. A
    /// second server of this crate cannot, because [`SharedListener::bind`] fails if the port is in
    /// use. With a Unix socket this strategy is an error.
    ///
    /// The first loop uses the listener's own socket, and the other loops get new ones. These take
    /// the same address families (`IPV6_V6ONLY`), and are bound to the same network device. They
    /// listen when all loops have started: what comes before is served by the first loop. If
    /// other processes share the listener's socket, only the first loop accepts from that socket. A
    /// listener of [`SharedListener::from_sockets`] already has a socket for each loop.
    ReusePort,
    /// The first loop accepts all connections, and gives each to a loop by [`Placement`]. It serves
    /// some of them itself.
    ///
    /// Connections are spread as evenly as the placement allows. A loop that has ended, or that
    /// cannot watch another descriptor, is skipped
    /// ([`LoopCounts::passed_on`](super::LoopCounts::passed_on)). Each connection costs a wake of
    /// the chosen loop, and the first loop is a bottleneck. If the first loop is blocked for 30 ms,
    /// another one accepts until it continues. A blocked loop gets no connections. If the first
    /// loop ends, no loop accepts.
    Dispatch(Placement),
}

impl fmt::Display for AcceptStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::ReusePort => f.write_str("reuse-port"),
            Self::Dispatch(placement) => write!(f, "dispatch by {placement}"),
        }
    }
}

impl AcceptStrategy {
    /// The sockets that each of `loops` loops accepts from. If the group `has_siblings`, it takes
    /// turns with other processes at its listeners.
    ///
    /// # Errors
    /// Kernel errors; a Unix socket, if each loop should have its own socket; a listener with a
    /// socket for each loop, if the loops should share one.
    pub(super) fn openings(
        self,
        listeners: &[SharedListener],
        loops: usize,
        has_siblings: bool,
    ) -> io::Result<Vec<Vec<Opening>>> {
        let mut openings: Vec<Vec<Opening>> = (0..loops).map(|_| Vec::new()).collect();
        for listener in listeners {
            if listener.is_for_each_loop() && self != Self::ReusePort {
                let addr = listener.local_addr();
                let text = format!(
                    "{addr}: each loop has a socket of its own, and the strategy is {self}: use \
                     reuse-port"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            match self {
                Self::Exclusive => {
                    openings.iter_mut().for_each(|of| of.push(Opening::Shared(listener.clone())));
                }
                Self::ReusePort => {
                    let own = reuse_port::one_each(listener, loops)?;
                    openings.iter_mut().zip(own).for_each(|(of, own)| of.push(own));
                }
                Self::Dispatch(_) if has_siblings => {
                    openings[DISPATCHER].push(Opening::Shared(listener.clone()));
                }
                Self::Dispatch(_) => {
                    let own = DetachedListener::new(listener.fd.clone(), listener.local_addr());
                    let own = own.lent(listener.is_lent());
                    openings[DISPATCHER].push(Opening::Own(own, listener.holders.clone()));
                }
            }
        }
        Ok(openings)
    }
}
