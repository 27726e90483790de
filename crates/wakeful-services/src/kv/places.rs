//! How many connections there may be at a time. The process's limit of descriptors may allow fewer
//! than the user does. A client beyond the limit can be told so only if there is a descriptor for
//! its connection. So some are kept back for these.

use wakeful::accept::Descriptors;

use super::options::KvOptions;
use crate::for_requests::OF_A_LOOP;
use crate::log;

/// The most refused connections whose clients may still read the reason.
const MOST_LINGERING: usize = 64;
/// With few descriptors they take one part in this many.
const SHARE_OF_LINGERING: usize = 8;

/// The numbers of connections that may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    /// `None`: there is no limit.
    pub(super) served: Option<usize>,
    /// Refused ones, whose clients may still read the reason.
    pub(super) lingering: usize,
}

impl Places {
    /// To be called before the loops start. Logs if there are fewer places than the user wants.
    pub(super) fn within_descriptors(options: &KvOptions, loops: usize) -> Self {
        let for_loops = OF_A_LOOP.saturating_mul(loops);
        let free = Descriptors::new().beside_connections(0);
        let free = free.map(|free| free.saturating_sub(for_loops));
        let places = Self::among(free, options.max_connections);
        if let (Some(wanted), Some(connections)) = (options.max_connections, places.served)
            && connections < wanted
        {
            log::log!(
                warn,
                wanted,
                connections,
                "the limit of descriptors allows fewer connections than wanted. Raise \
                 RLIMIT_NOFILE (ulimit -n)"
            );
        }
        places
    }

    /// With this number of free descriptors. `None`: the process has no limit.
    fn among(free: Option<usize>, wanted: Option<usize>) -> Self {
        let Some(free) = free else { return Self { served: wanted, lingering: MOST_LINGERING } };
        let lingering = MOST_LINGERING.min(free / SHARE_OF_LINGERING);
        // The server opens no more connections than that.
        let open = free.saturating_sub(kept_back(free));
        let served = wanted.map(|wanted| wanted.min(open.saturating_sub(lingering).max(1)));
        Self { served, lingering }
    }
}

/// What a server with the default of [`Descriptors`] keeps back.
fn kept_back(free: usize) -> usize {
    (free / 16).clamp(16, 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_descriptor_for_each_place_and_for_some_that_are_refused() {
        let among = |free, wanted| {
            let places = Places::among(free, wanted);
            (places.served, places.lingering)
        };
        assert_eq!(among(None, Some(10_000)), (Some(10_000), 64));
        assert_eq!(among(Some(1 << 20), Some(10_000)), (Some(10_000), 64));
        assert_eq!(among(Some(10_000 + 64 + 64), Some(10_000)), (Some(10_000), 64));
        assert_eq!(among(Some(10_000 + 64 + 63), Some(10_000)), (Some(9_999), 64));
        assert_eq!(among(Some(1000), Some(10_000)), (Some(1000 - 62 - 64), 64));
        assert_eq!(among(Some(40), Some(10_000)), (Some(40 - 16 - 5), 5));
        assert_eq!(among(Some(3), Some(10_000)), (Some(1), 0));
        assert_eq!(among(Some(40), None).0, None);
    }
}
