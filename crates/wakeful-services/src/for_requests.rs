//! How many descriptors all requests may use together: for files, or for connections to backends.
//!
//! A server keeps some back for each connection. But an HTTP/2 connection has many requests in
//! flight, and each may need some. So what they open is bounded, and requests beyond that wait.

use std::io;

use wakeful::accept::Descriptors;

use crate::ServeOptions;

/// How many descriptors each loop opens when it starts, and later.
pub(crate) const OF_A_LOOP: usize = 4;

/// If the user allows more connections than there are descriptors for, all else may use one part in
/// this many of those that are free, as in [`Descriptors::beside_connections`].
const TOO_FEW: usize = 8;

/// The descriptors beside the connections that are not for requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Others {
    /// For idle connections to backends. If descriptors are few, requests come first.
    pub(crate) idle: usize,
    pub(crate) rest: usize,
}

/// Returns a function that says how many descriptors requests may use at a time, besides their
/// connections. `kept` is what the server keeps back, and `others` the part of it that is not for
/// requests. `None`: the process has no limit.
///
/// # Errors
/// The same as for [`LoopGroupBuilder::loop_count`](wakeful::LoopGroupBuilder::loop_count).
pub(crate) fn most(
    options: &ServeOptions,
    kept: Descriptors,
    others: Others,
) -> io::Result<Option<impl Fn() -> usize + Send + Sync + use<>>> {
    let connections = options.limits.given_max_connections();
    // The loops do not exist yet.
    let for_loops = OF_A_LOOP * options.group().loop_count()?;
    let kept = kept.also_spare(for_loops);
    let free = |connections| {
        let beside = kept.beside_connections(connections)?;
        Some(beside.saturating_sub(for_loops))
    };
    let most = match connections {
        Some(connections) => free(Some(0)).map(|free| beside_given(connections, free, others)),
        None => free(None).map(|left| beside_others(left, others)),
    };
    let Some((limit, most)) = Descriptors::limit().zip(most) else { return Ok(None) };
    // If the limit is raised, and the number of connections is not set, they take half.
    let takers = if connections.is_some() { 1 } else { 2 };
    Ok(Some(move || {
        let now = Descriptors::limit().unwrap_or(usize::MAX);
        most.saturating_add(now.saturating_sub(limit) / takers)
    }))
}

/// How many of the descriptors that are `left` beside the connections are for requests.
fn beside_others(left: usize, others: Others) -> usize {
    // The user may have left few for all of them.
    left - others.idle.saturating_add(others.rest).min(left / 2)
}

/// How many descriptors are for requests. The user allows this number of `connections`, and the
/// loops leave `free` descriptors. Each connection may have a request, and comes before idle
/// connections.
fn beside_given(connections: usize, free: usize, others: Others) -> usize {
    let left = free.saturating_sub(connections).max(free / TOO_FEW);
    let for_each = connections.min(beside_others(left, Others { idle: 0, ..others }));
    beside_others(left, others).max(for_each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_that_the_user_allows_comes_before_idle_ones_to_backends() {
        let others = Others { idle: 512, rest: 8 };
        assert_eq!(beside_given(2000, 4044, others), 2000);
        assert_eq!(beside_given(2000, 4544, others), 2024);
        // There are not quite enough.
        assert_eq!(beside_given(2000, 3900, others), 1892);
        assert_eq!(beside_others(2044, others), 1524, "the connections are not given");
    }

    #[test]
    fn where_the_user_allows_too_many_connections_requests_have_a_part() {
        let others = Others { idle: 128, rest: 32 };
        // 1024 descriptors, of which 32 loops have 128.
        for connections in [896, 1024, usize::MAX] {
            assert_eq!(beside_given(connections, 872, others), 77);
        }
        assert_eq!(beside_given(1000, 40, others), 3);
        assert_eq!(beside_given(1000, 0, others), 0);
    }
}
