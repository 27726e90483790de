//! The address space that glibc's allocator takes for threads.
//!
//! A thread that allocates gets an arena of its own, of up to eight for each CPU, and each one
//! reserves 64 MiB of address space, though hardly any of it is used. Under a limit of address
//! space (RLIMIT_AS, `ulimit -v`) a few threads reserve all that there is. Then the stack of the
//! next thread finds no room, or some bytes for which an arena has to grow, and that ends the
//! process. So under a limit there are as many arenas as a quarter of it has room for.

use super::limits;

/// What an arena reserves, on a machine of 64 bits.
const RESERVED: u64 = 64 << 20;

/// Of the limit, so much is for reserves: one of four parts.
const SHARE: u64 = 4;

/// Has the allocator keep to the limit of this process, if there is one, and unless the user has
/// told it a number of arenas. To be called before the threads are started.
pub(crate) fn fit_to_limit() {
    let is_told = |name: &str| std::env::var_os(name).is_some();
    // Refused, by a sandbox: as if there were none.
    let Ok(Some(limit)) = limits::of_address_space() else { return };
    if !is_told("MALLOC_ARENA_MAX") && !is_told("GLIBC_TUNABLES") {
        allow(that_fit(limit));
    }
}

/// One at least, which is the process's own, and no more than there would be without a limit.
fn that_fit(limit: u64) -> libc::c_int {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let unlimited = libc::c_int::try_from(cpus.saturating_mul(8)).unwrap_or(libc::c_int::MAX);
    let most = libc::c_int::try_from(limit / SHARE / RESERVED).unwrap_or(libc::c_int::MAX);
    most.clamp(1, unlimited)
}

/// Arenas that are there stay.
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
