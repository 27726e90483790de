//! How a descriptor is watched.

use rustix::event::epoll::EventFlags;

/// How a descriptor is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Edge-triggered, all directions: a descriptor that this loop alone uses.
    Edge,
    /// Like `Edge`, for a descriptor that other code may own. A forked child keeps it open.
    Watched,
    /// A listener that several loops watch. It is level-triggered, so that no loop keeps an event
    /// that it has not handled, and EPOLLEXCLUSIVE (Linux 4.5), so that a connection wakes one of
    /// the loops.
    Exclusive,
}

impl Mode {
    pub(super) fn flags(self) -> EventFlags {
        match self {
            // For PRI see `Source::urgent`.
            Self::Edge | Self::Watched => {
                EventFlags::IN
                    | EventFlags::OUT
                    | EventFlags::RDHUP
                    | EventFlags::PRI
                    | EventFlags::ET
            }
            // The kernel refuses RDHUP and PRI beside EXCLUSIVE (epoll_ctl(2)).
            Self::Exclusive => EventFlags::IN | EventFlags::EXCLUSIVE,
        }
    }
}
