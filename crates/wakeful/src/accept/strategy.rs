//! Which loop accepts from which socket.

use std::fmt;
use std::io;

use super::opening::Opening;
use super::reuse_port;
use super::shared_listener::SharedListener;
use crate::balance::dispatch_placement::Placement;
use crate::net::DetachedListener;

/// The loop that accepts for all, where one does.
pub(super) const DISPATCHER: usize = 0;

/// How a server's connections reach its loops: a setting of
/// [`ConnectionServer`](super::ConnectionServer).
///
/// | | [`Exclusive`](Self::Exclusive) | [`ReusePort`](Self::ReusePort) | [`Dispatch`](Self::Dispatch) |
/// |---|---|---|---|
/// | a connection wakes | one loop that sleeps | its listener's loop | the dispatcher, then the loop that it goes to |
/// | it is served by | the active loop that was first | first the loop that its addresses hash to, also if that is busy or blocked | the loop that the [`Placement`] chose |
/// | evenness | a loop that took one goes to the end of the kernel's list; one that has far more than the mean steps back | that of a hash: as [`Placement::Random`] | the placement's |
/// | beside the accept it costs | two `epoll_ctl`, if several loops are active | nothing | a message, and a wake of a loop that sleeps |
/// | one loop that is blocked holds up | what it has; where no active loop is free for 30 ms, another one stands in | what hashes to it | what was handed to it; as the dispatcher, every new connection for 30 ms, and then another one stands in |
/// | Unix sockets | yes | no | yes |
///
/// A group that [concentrates](crate::LoopGroupBuilder::concentrate) light load has few active
/// loops, and `Exclusive` and `Dispatch` give connections to these alone; `ReusePort` to all, and
/// those that can [move](super::Moving) then go on to the active ones. For a hash that stays,
/// [spread](crate::LoopGroupBuilder::spread) them.
///
/// When a server drains, each loop first accepts what the kernel holds for it, and closes its
/// listener then: a connection that was established before is served by every strategy. At the
/// limit of connections it is served when an open one closes. Those are told of the drain at once
/// then.
///
/// During the drain nobody new comes in: the server drops what would begin a TCP connection, and
/// removes a Unix socket's file. It leaves a TCP socket open to the end that somebody else may hold
/// too: user code had its descriptor or a listener of its own on it, another clone of the
/// [`SharedListener`] exists, or the process has forked since it was bound. There the kernel resets
/// a connection that is established between the last look and the close, if nobody else accepts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcceptStrategy {
    /// One socket, on which every active loop waits with EPOLLEXCLUSIVE: see [`SharedListener`].
    #[default]
    Exclusive,
    /// A socket for each loop, all on the same port (`SO_REUSEPORT`): the kernel chooses by a hash
    /// of the addresses.
    ///
    /// Accepting shares nothing between the loops: the choice for very many short connections. But
    /// the kernel does not know which loop is busy, and the backlog of one that is blocked waits
    /// with it. Few clients may all hash to the same loop. Any other process of the same user that
    /// sets the flag can listen on the port too, and gets its part; a second server of this crate
    /// cannot, because [`SharedListener::bind`] takes a port that is in use for a mistake. A Unix
    /// socket has no such thing: an error.
    ReusePort,
    /// The first loop accepts and hands each connection to a loop by [`Placement`]; it serves some
    /// itself.
    ///
    /// As even as the placement. A loop that has ended, or cannot watch another descriptor, is
    /// passed over ([`LoopCounts::passed_on`](super::LoopCounts::passed_on)). The price is a wake
    /// of the other loop for each connection, and that the first loop is a bottleneck. If it is
    /// blocked for 30 ms, another one accepts until it is back, and a loop that is blocked is
    /// handed nothing; if it ends, nobody accepts.
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
    /// What each of so many loops accepts from.
    ///
    /// # Errors
    /// The kernel's; a Unix socket where each loop is to have its own.
    pub(super) fn openings(
        self,
        listeners: &[SharedListener],
        loops: usize,
    ) -> io::Result<Vec<Vec<Opening>>> {
        let mut openings: Vec<Vec<Opening>> = (0..loops).map(|_| Vec::new()).collect();
        for listener in listeners {
            match self {
                Self::Exclusive => {
                    openings.iter_mut().for_each(|of| of.push(Opening::Shared(listener.clone())));
                }
                Self::ReusePort => {
                    let own = reuse_port::one_each(listener, loops)?;
                    openings.iter_mut().zip(own).for_each(|(of, own)| of.push(own));
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
