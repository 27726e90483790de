//! How a proxy divides the process's limit of open descriptors.
//!
//! Each connection of a client may need a connection to a backend, for which a descriptor is kept
//! back. An idle connection to a backend belongs to one loop, and a client on another loop cannot
//! use it. So idle connections are limited, too, and descriptors are kept back for them in
//! addition. The rest of what is kept back bounds the connections that are in use (`for_requests`),
//! because an HTTP/2 client may have many requests in flight.

use wakeful::accept::Descriptors;

/// Idle connections to backends may use one part in this many of the limit.
const IDLE_SHARE: usize = 8;

/// How many idle connections the loops keep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Idle {
    /// The process's limit of descriptors, if it matters.
    pub(super) limit: Option<usize>,
    pub(super) loops: usize,
    /// How many the user wants to each backend on each loop.
    pub(super) wanted: usize,
}

impl Idle {
    /// How many idle connections each loop keeps to each backend, with this number of backends.
    pub(super) fn of_each(self, backends: usize) -> usize {
        let pools = self.pools(backends).max(1);
        self.limit.map_or(self.wanted, |limit| self.wanted.min(limit / IDLE_SHARE / pools))
    }

    /// How many descriptors the proxy keeps back for idle connections and for its clients.
    pub(super) fn kept(self, backends: usize) -> Descriptors {
        let idle = self.of_each(backends).saturating_mul(self.pools(backends));
        Descriptors::new().per_connection(1).also_spare(idle)
    }

    /// Like [`kept`](Self::kept), if more backends may come later.
    pub(super) fn kept_for_more(self, backends: usize) -> Descriptors {
        match self.limit {
            Some(limit) => Descriptors::new().per_connection(1).also_spare(limit / IDLE_SHARE),
            None => self.kept(backends),
        }
    }

    /// How many of the descriptors that are kept back are for idle connections. A user who limits
    /// the connections of clients may have allowed more idle ones than there are descriptors.
    pub(super) fn most(self, backends: usize, more_may_come: bool) -> usize {
        let share = self.limit.or_else(Descriptors::limit).map(|limit| limit / IDLE_SHARE);
        let idle = self.of_each(backends).saturating_mul(self.pools(backends));
        match share {
            Some(share) if more_may_come => share,
            share => idle.min(share.unwrap_or(usize::MAX)),
        }
    }

    fn pools(self, backends: usize) -> usize {
        self.loops.saturating_mul(backends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn for_each_client() -> Descriptors {
        Descriptors::new().per_connection(1)
    }

    #[test]
    fn idle_connections_are_bounded_where_descriptors_are_few() {
        let idle = |limit| Idle { limit, loops: 1, wanted: 256 };
        let few = idle(Some(64));
        assert_eq!((few.of_each(2), few.kept(2)), (4, for_each_client().spare(24)));
        assert_eq!((few.of_each(100), few.kept(100)), (0, for_each_client().spare(16)));
        assert_eq!((few.of_each(0), few.kept(0)), (8, for_each_client().spare(16)));
        assert_eq!(idle(Some(1 << 20)).of_each(2), 256);
        assert_eq!(few.kept_for_more(0), for_each_client().spare(24));
        let any = idle(None);
        assert_eq!(any.kept_for_more(2), any.kept(2));
        assert_eq!((any.of_each(2), any.kept(2)), (256, for_each_client().spare(16 + 2 * 256)));
        let all = |idle: Idle| (idle.most(2, false), idle.most(2, true));
        assert_eq!(all(few), (8, 8));
        assert_eq!(all(idle(Some(1 << 20))), (512, 1 << 17));
        let loops = Idle { limit: Some(64), loops: 2, wanted: 256 };
        assert_eq!((loops.of_each(1), loops.kept(1)), (4, for_each_client().spare(24)));
    }
}
