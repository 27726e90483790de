//! The state that the loops of a service share, and the state of each loop.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_lock::OnceCell;
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use wakeful::accept::Counts;
use wakeful::net::ListenAddr;
use wakeful::{JoinHandle, LoopHandle};

use super::batch::Batch;
use super::options::KvOptions;
use super::places::Places;
use super::refusals::Refusals;
use super::resp::Limits;
use super::shard::{Key, Meter, Meters, Shard};
use crate::buffers::Budget;

thread_local! {
    /// Here a batch that was sent to this loop finds its shard.
    static LOCAL: RefCell<Weak<Local>> = const { RefCell::new(Weak::new()) };
}

/// Shared by all loops.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) options: KvOptions,
    pub(super) limits: Limits,
    /// How long a drain keeps an idle connection.
    pub(super) linger: Duration,
    pub(super) refusals: Refusals,
    pub(super) meters: Arc<Meters>,
    pub(super) since: Instant,
    /// Set when all loops have been set up. No connection is served before.
    pub(super) running: OnceCell<Running>,
    /// Nobody outside knows the seed, so nobody can choose keys that collide.
    seed: SeedableRandomState,
    loops: Box<[OnceLock<LoopHandle>]>,
    joined: AtomicUsize,
    connections: AtomicU64,
    /// How many connections are served, and how many are refused, and may still read the reason.
    served: AtomicUsize,
    most_served: Option<usize>,
    lingering: AtomicUsize,
    most_lingering: usize,
}

/// See [`Service::running`].
#[derive(Debug)]
pub(super) struct Running {
    pub(super) counts: Arc<Counts>,
    pub(super) addrs: Vec<ListenAddr>,
}

impl Service {
    pub(super) fn new(loops: usize, options: KvOptions, places: Places, linger: Duration) -> Self {
        let cap = options.max_memory.unwrap_or(usize::MAX);
        let buffers = Budget::new(options.client_memory().unwrap_or(usize::MAX));
        // This is the kernel's randomness, which foldhash does not use.
        let random = RandomState::new().hash_one(());
        Self {
            options,
            limits: options.limits(),
            linger,
            refusals: Refusals::default(),
            meters: Arc::new(Meters::new(cap, buffers, loops)),
            since: Instant::now(),
            running: OnceCell::new(),
            seed: SeedableRandomState::with_seed(random, SharedSeed::global_random()),
            loops: (0..loops).map(|_| OnceLock::new()).collect(),
            joined: AtomicUsize::new(0),
            connections: AtomicU64::new(0),
            served: AtomicUsize::new(0),
            most_served: places.served,
            lingering: AtomicUsize::new(0),
            most_lingering: places.lingering,
        }
    }

    /// How many connections may be served at a time, if there is a limit.
    pub(super) fn most_served(&self) -> Option<usize> {
        self.most_served
    }

    /// `None`: there are as many connections as there may be.
    pub(super) fn admit(&self) -> Option<Place<'_>> {
        Place::among(&self.served, self.most_served.unwrap_or(usize::MAX))
    }

    /// May a refused connection stay until its client has read the reason? `None`: there are as
    /// many of those as there may be.
    pub(super) fn lets_linger(&self) -> Option<Place<'_>> {
        Place::among(&self.lingering, self.most_lingering)
    }

    pub(super) fn loops(&self) -> usize {
        self.loops.len()
    }

    #[inline]
    pub(super) fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        let mut hasher = self.seed.build_hasher();
        hasher.write(bytes);
        Key { hash: hasher.finish(), bytes }
    }

    /// A number that no other connection has.
    pub(super) fn number_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sends a batch to its owner's loop. `None`: the loop has ended. The handle returns nothing or
    /// an error if the loop ends meanwhile.
    pub(super) fn send(&self, owner: usize, mut batch: Batch) -> Option<JoinHandle<Option<Batch>>> {
        let run = move || {
            let local = LOCAL.with_borrow(Weak::upgrade);
            std::future::ready(local.map(|local| {
                batch.run(&mut local.shard.borrow_mut());
                batch
            }))
        };
        self.loops[owner].get()?.spawn(run).ok()
    }
}

/// A connection's part of a number of connections.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn among(all: &'a AtomicUsize, most: usize) -> Option<Self> {
        let more = |count: usize| (count < most).then_some(count + 1);
        all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(all))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The state of one loop.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) service: Arc<Service>,
    /// The loop's number.
    pub(super) number: usize,
    pub(super) shard: RefCell<Shard>,
}

impl Local {
    /// Must be called once on each loop of the service. The shard lives as long as the loop, even
    /// while the loop has no connections.
    pub(super) fn join(service: &Arc<Service>) -> Rc<Self> {
        let number = service.joined.fetch_add(1, Ordering::Relaxed);
        let meter = Meter::new(service.meters.clone(), number);
        let shard = RefCell::new(Shard::new(meter));
        let local = Rc::new(Self { service: service.clone(), number, shard });
        LOCAL.set(Rc::downgrade(&local));
        let kept = local.clone();
        wakeful::spawn(async move {
            std::future::pending::<()>().await;
            drop(kept);
        })
        .detach();
        let set = service.loops[number].set(wakeful::LoopHandle::current());
        assert!(set.is_ok(), "each loop has a number of its own");
        local
    }
}
