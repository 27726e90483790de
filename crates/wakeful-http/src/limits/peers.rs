//! How many connections each peer has, and how many requests it sends.
//!
//! This is a table of the peers of all loops. It is used when a connection comes. From then on the
//! connection holds its peer's account, and a request costs at most one compare-and-swap there. An
//! account is kept as long as a connection is open, or the bucket is not full again. The table is
//! bounded: if there is no room, accounts without connections are removed, and a peer that still
//! finds no room is not counted. (In that case every counted peer has an open connection, so the
//! limit on all connections applies.)

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use wakeful::process::ProcessMark;

use super::PeerRate;

/// The number of shards. Each has a lock.
const SHARDS: usize = 16;
/// The most accounts of a shard. Each takes about 100 bytes, so all take 6 MiB.
const GREATEST_SHARD: usize = 4096;

const SECOND: u64 = 1_000_000_000;

/// See [`Account`].
const SERVED: u64 = 1;
const REFUSED: u64 = 1 << 32;

/// The accounts of all peers.
#[derive(Debug)]
pub(crate) struct Peers {
    shards: [Mutex<HashMap<PeerKey, Arc<Account>>>; SHARDS],
    max_connections: Option<u32>,
    rate: Option<Rate>,
    epoch: Instant,
}

/// An IPv4 address in the lower half, or the upper half of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PeerKey {
    V4(u32),
    V6(u64),
}

impl PeerKey {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        match addr.ip().to_canonical() {
            IpAddr::V4(addr) => Self::V4(addr.to_bits()),
            IpAddr::V6(addr) => Self::V6(u64::try_from(addr.to_bits() >> 64).unwrap_or(0)),
        }
    }

    fn shard(self) -> usize {
        let bits = match self {
            Self::V4(bits) => u64::from(bits),
            Self::V6(bits) => bits,
        };
        // This puts neighbouring addresses into different shards. A client that directs all its
        // addresses into one shard finds it full, and is not counted there.
        usize::try_from(bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60).unwrap_or(0) % SHARDS
    }
}

/// The account of one peer.
#[derive(Debug, Default)]
struct Account {
    /// How many connections are open: those that are served, and those that were refused, which
    /// count [`REFUSED`] each.
    connections: AtomicU64,
    /// When the peer's bucket will be full again, in nanoseconds since the epoch.
    full_at: AtomicU64,
}

impl Account {
    /// Is no connection open, and is the bucket full? Otherwise the account must be kept. Without a
    /// connection nobody takes from the bucket.
    fn is_unused(&self, now: u64) -> bool {
        self.connections.load(Ordering::Acquire) == 0 && self.full_at.load(Ordering::Relaxed) <= now
    }
}

/// The generic cell rate algorithm: each request moves the moment at which the bucket is full by a
/// step, and there is room as long as that moment is not too far in the future.
#[derive(Debug, Clone, Copy)]
struct Rate {
    step: u64,
    depth: u64,
}

/// A connection's place in its peer's account, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    peer: PeerKey,
    account: Arc<Account>,
    /// [`SERVED`] or [`REFUSED`].
    kind: u64,
    peers: Arc<Peers>,
    /// The process that took the place. In a forked child it is not given back, because the lock
    /// may be locked for ever.
    home: ProcessMark,
}

/// The peer already has as many connections as it may have.
#[derive(Debug)]
pub(crate) struct TooMany {
    /// While it is kept, the refused connection may stay open, so that its client can read the
    /// answer. `None`: as many connections of the peer as it may have are open in this way.
    pub(crate) lingers: Option<Place>,
}

impl Peers {
    /// `None` when there is nothing to count.
    pub(crate) fn new(max_connections: Option<u32>, rate: Option<PeerRate>) -> Option<Arc<Self>> {
        if max_connections.is_none() && rate.is_none() {
            return None;
        }
        let rate = rate.map(|rate| {
            let step = SECOND / u64::from(rate.requests_per_second);
            Rate { step, depth: step.saturating_mul(rate.burst.into()) }
        });
        Some(Arc::new(Self {
            shards: Default::default(),
            max_connections,
            rate,
            epoch: Instant::now(),
        }))
    }

    /// Counts one more connection of a peer. `None`: there is no room to count it.
    pub(crate) fn enter(self: &Arc<Self>, peer: PeerKey) -> Result<Option<Place>, TooMany> {
        let mut shard = self.shard(peer);
        if shard.len() >= GREATEST_SHARD && !shard.contains_key(&peer) {
            shard.retain(|_, account| account.connections.load(Ordering::Relaxed) > 0);
            if shard.len() >= GREATEST_SHARD {
                return Ok(None);
            }
        }
        let account = shard.entry(peer).or_default();
        // The number changes only under this lock, except that closing connections reduce it.
        let before = account.connections.load(Ordering::Relaxed);
        let most = self.max_connections.map_or(REFUSED, u64::from);
        let kind = match (before % REFUSED < most, before / REFUSED < most) {
            (true, _) => SERVED,
            (false, true) => REFUSED,
            (false, false) => return Err(TooMany { lingers: None }),
        };
        account.connections.fetch_add(kind, Ordering::Relaxed);
        let (account, home) = (account.clone(), ProcessMark::new());
        drop(shard);
        let place = Place { peer, account, kind, peers: self.clone(), home };
        if kind == REFUSED { Err(TooMany { lingers: Some(place) }) } else { Ok(Some(place)) }
    }

    /// Removes the account if it is unused. The peer may have come back since the caller looked,
    /// and may have gone again.
    fn forget(&self, peer: PeerKey) {
        let mut shard = self.shard(peer);
        if shard.get(&peer).is_some_and(|account| account.is_unused(self.now())) {
            shard.remove(&peer);
        }
    }

    fn shard(&self, peer: PeerKey) -> MutexGuard<'_, HashMap<PeerKey, Arc<Account>>> {
        self.shards[peer.shard()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Place {
    /// May the peer send one more request? If not, returns after how many nanoseconds it may.
    pub(crate) fn request(&self) -> Result<(), u64> {
        let Some(rate) = self.peers.rate else { return Ok(()) };
        let now = self.peers.now();
        let step = |full_at: u64| {
            let next = full_at.max(now).saturating_add(rate.step);
            (next - now <= rate.depth).then_some(next)
        };
        let full_at = &self.account.full_at;
        match full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step) {
            Ok(_) => Ok(()),
            Err(full_at) => Err(full_at.saturating_add(rate.step).saturating_sub(now + rate.depth)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self { peer, account, kind, peers, home } = self;
        if home.is_forked() {
            return;
        }
        let is_last = account.connections.fetch_sub(*kind, Ordering::AcqRel) == *kind;
        if is_last && account.is_unused(peers.now()) {
            peers.forget(*peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> PeerKey {
        PeerKey::new(SocketAddr::new(text.parse().unwrap(), 1))
    }

    fn known(peers: &Peers) -> usize {
        peers.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }

    #[test]
    fn a_peer_is_an_ipv4_address_or_a_network_of_ipv6() {
        assert_eq!(peer("10.0.0.1"), peer("::ffff:10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_ne!(peer("0.0.0.1"), peer("0:0:0:1::"));
    }

    #[test]
    fn places_come_back_and_peers_without_one_are_forgotten() {
        let peers = Peers::new(Some(2), None).unwrap();
        let first = peers.enter(peer("10.0.0.1")).unwrap().unwrap();
        let _second = peers.enter(peer("10.0.0.1")).unwrap().unwrap();
        assert!(peers.enter(peer("10.0.0.1")).is_err());
        let other = peers.enter(peer("10.0.0.2")).unwrap().unwrap();
        drop(first);
        peers.enter(peer("10.0.0.1")).unwrap().unwrap();
        assert_eq!(known(&peers), 2);
        drop(other);
        assert_eq!(known(&peers), 1);
    }

    #[test]
    fn as_many_refused_connections_linger_as_may_be_open_and_they_take_no_place() {
        let peers = Peers::new(Some(2), None).unwrap();
        let enter = || peers.enter(peer("10.0.0.1"));
        let served = [(); 2].map(|()| enter().unwrap());
        let mut lingering = [(); 2].map(|()| enter().unwrap_err().lingers.unwrap()).into_iter();
        assert!(enter().unwrap_err().lingers.is_none());
        drop(lingering.next());
        let another = enter().unwrap_err().lingers.unwrap();
        assert!(enter().unwrap_err().lingers.is_none());
        drop(served);
        let again = [(); 2].map(|()| enter().unwrap());
        assert!(enter().unwrap_err().lingers.is_none());
        drop((another, again));
        assert_eq!(known(&peers), 1);
        drop(lingering);
        assert_eq!(known(&peers), 0);
    }

    #[test]
    fn a_drop_in_a_forked_child_waits_for_no_lock() {
        let peers = Peers::new(Some(1), None).unwrap();
        let mut place = peers.enter(peer("10.0.0.1")).unwrap().unwrap();
        place.home = ProcessMark::of_parent();
        // The lock is held as by another thread of the parent at the fork.
        let locked = peers.shard(peer("10.0.0.1"));
        crate::foreign_code::drops_without_waiting(place);
        drop(locked);
    }

    #[test]
    fn a_burst_is_granted_and_then_the_rate() {
        let rate = PeerRate::new(1).burst(3);
        let peers = Peers::new(None, Some(rate)).unwrap();
        let place = peers.enter(peer("10.0.0.1")).unwrap().unwrap();
        for _ in 0..3 {
            place.request().unwrap();
        }
        let wait = place.request().unwrap_err();
        assert!((1..=SECOND).contains(&wait), "{wait}");
        // A new connection does not help.
        drop(place);
        let place = peers.enter(peer("10.0.0.1")).unwrap().unwrap();
        place.request().unwrap_err();
        // Nor does it help that an earlier connection ends on another thread meanwhile, which found
        // the bucket full.
        drop(place);
        peers.forget(peer("10.0.0.1"));
        let place = peers.enter(peer("10.0.0.1")).unwrap().unwrap();
        place.request().unwrap_err();
    }

    #[test]
    fn the_table_is_bounded_and_forgets_only_who_is_not_connected() {
        let peers = Peers::new(Some(1), Some(PeerRate::new(1))).unwrap();
        let held = peers.enter(peer("10.0.0.1")).unwrap().unwrap();
        for number in 0..200_000 {
            let place = peers.enter(PeerKey::V4(0xb000_0000 + number)).unwrap();
            if let Some(place) = place {
                place.request().unwrap();
            }
        }
        assert!(known(&peers) <= SHARDS * GREATEST_SHARD);
        assert!(peers.enter(peer("10.0.0.1")).is_err());
        drop(held);
    }
}
