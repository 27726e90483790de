//! The address space that glibc's allocator takes for threads.
//!
//! A thread that allocates gets an arena of its own, up to eight arenas for each CPU. Each arena
//! reserves 64 MiB of address space, though it uses hardly any of it. Under a limit of address
//! space (RLIMIT_AS, `ulimit -v`) a few threads reserve all of it. Then there is no room for the
//! stack of the next thread, or for a few bytes for which an arena must grow, and that ends the
//! process. So under a limit, arenas get no more than a quarter of it.

use super::limits;

/// What an arena reserves on a 64-bit machine.
const RESERVED: u64 = 64 << 20;

/// One part in this many of the limit is for arenas.
const SHARE: u64 = 4;

/// Makes the allocator respect the address space limit of this process, if there is one, unless the
/// user has set the number of arenas. Must be called before the threads are started.
pub(crate) fn fit_to_limit() {
    let is_told = |name: &str| std::env::var_os(name).is_some();
    // If a sandbox refuses to tell the limit, it counts as none.
    let Ok(Some(limit)) = limits::of_address_space() else { return };
    if !is_told("MALLOC_ARENA_MAX") && !is_told("GLIBC_TUNABLES") {
        allow(that_fit(limit));
    }
}

/// How many arenas fit: at least one, which is the process's own, and no more than there would be
/// without a limit.
fn that_fit(limit: u64) -> libc::c_int {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let unlimited = libc::c_int::try_from(cpus.saturating_mul(8)).unwrap_or(libc::c_int::MAX);
    let most = libc::c_int::try_from(limit / SHARE / RESERVED).unwrap_or(libc::c_int::MAX);
    most.clamp(1, unlimited)
}

/// Limits the number of arenas. Arenas that exist already stay.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
fn allow(arenas: libc::c_int) {
    // SAFETY: two numbers; the allocator takes its own lock. Another allocator of the program's is
    // not asked.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
fn allow(_: libc::c_int) {}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_arena_at_least_and_no_more_than_without_a_limit() {
        assert_eq!(that_fit(0), 1);
        assert_eq!(that_fit(SHARE * RESERVED), 1);
        assert_eq!(that_fit(3 * SHARE * RESERVED), 3);
        let unlimited = that_fit(u64::MAX);
        assert!(unlimited >= 8 && that_fit(1 << 50) == unlimited);
    }
}
