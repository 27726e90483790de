//! How many descriptors all requests may use together: for files, or for connections to backends.
//!
//! A server keeps some back for each connection. But an HTTP/2 connection has many requests in
//! flight, and each may need some. So what they open is bounded, and requests beyond that wait.

use std::io;

use wakeful::accept::Descriptors;

use crate::ServeOptions;

/// How many descriptors each loop opens when it starts, and later.
const OF_A_LOOP: usize = 4;

/// Returns a function that says how many descriptors requests may use at a time, besides their
/// connections. `kept` is what the server keeps back, and `for_others` the part of it that is not
/// for requests. `None`: the process has no limit.
///
/// # Errors
/// The same as for [`LoopGroupBuilder::loop_count`](wakeful::LoopGroupBuilder::loop_count).
pub(crate) fn most(
    options: &ServeOptions,
    kept: Descriptors,
    for_others: usize,
) -> io::Result<Option<impl Fn() -> usize + Send + Sync + use<>>> {
    let connections = options.limits.given_max_connections();
    // The loops do not exist yet.
    let for_loops = OF_A_LOOP * options.group().loop_count()?;
    let beside = kept.also_spare(for_loops).beside_connections(connections);
    let Some((limit, beside)) = Descriptors::limit().zip(beside) else { return Ok(None) };
    let left = beside.saturating_sub(for_loops);
    // The user may have left few for all of them.
    let most = left - for_others.min(left / 2);
    // If the limit is raised, and the number of connections is not set, they take half.
    let takers = if connections.is_some() { 1 } else { 2 };
    Ok(Some(move || {
        let now = Descriptors::limit().unwrap_or(usize::MAX);
        most.saturating_add(now.saturating_sub(limit) / takers)
    }))
}
