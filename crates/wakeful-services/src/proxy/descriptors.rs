//! What a proxy does with the process's limit of open descriptors.
//!
//! Each connection of a client may need one to a backend, which is kept back. A connection to a
//! backend that is idle belongs to one loop, and a client on another loop has no use for it. So the
//! idle ones are bounded too, and kept back in addition.

use wakeful::accept::Descriptors;

/// The share of the limit that idle connections to backends may have.
const IDLE_SHARE: usize = 8;

/// How many idle connections each loop keeps to each backend, and what the proxy keeps back for
/// them and for its clients. `pools` is how many such pools there are; `wanted` is the setting.
pub(super) fn divide(limit: Option<usize>, pools: usize, wanted: usize) -> (usize, Descriptors) {
    let most = limit.map_or(wanted, |limit| limit / IDLE_SHARE / pools.max(1));
    let idle = wanted.min(most);
    let kept = Descriptors::new().per_connection(1).also_spare(idle.saturating_mul(pools));
    (idle, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn for_each_client() -> Descriptors {
        Descriptors::new().per_connection(1)
    }

    #[test]
    fn idle_connections_are_bounded_where_descriptors_are_few() {
        let (idle, kept) = divide(Some(64), 2, 256);
        assert_eq!((idle, kept), (4, for_each_client().spare(24)));
        let (idle, kept) = divide(Some(64), 100, 256);
        assert_eq!((idle, kept), (0, for_each_client().spare(16)));
        let (idle, _) = divide(Some(1 << 20), 2, 256);
        assert_eq!(idle, 256);
        let (idle, kept) = divide(None, 2, 256);
        assert_eq!((idle, kept), (256, for_each_client().spare(16 + 2 * 256)));
    }
}
