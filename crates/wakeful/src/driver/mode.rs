//! How a descriptor is watched.

use rustix::event::epoll::EventFlags;

/// How a descriptor is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Edge-triggered, all directions: a descriptor that this loop alone uses.
    Edge,
    /// As `Edge`, but perhaps somebody else's: a forked child keeps it.
    Watched,
    /// A listener that several loops watch: level-triggered, so that no loop sits on an undrained
    /// event, and EPOLLEXCLUSIVE (Linux 4.5), so that a connection wakes one of them.
    Exclusive,
}

impl Mode {
    pub(super) fn flags(self) -> EventFlags {
        match self {
            // PRI: see `Source::urgent`.
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
