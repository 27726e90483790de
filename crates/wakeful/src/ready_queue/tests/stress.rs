//! The queue under random load, with the production bell: bursts from 1 to 32 producers, a loop
//! that sleeps in epoll for ever or for a moment, wakes without work, and ends at random moments.
//!
//! Each round checks that every accepted push arrives exactly once, in its producer's order, that
//! the bell is rung once for each push that met a sleep, and that every node is dropped.
//! `WAKEFUL_STRESS_SEED` and `WAKEFUL_STRESS_PUSHES` repeat or lengthen a run; the seed is printed.
//! The large run: `cargo test --release -p wakeful-rt --lib -- --ignored --nocapture stress`.

use super::*;
use crate::driver::Driver;
use crate::driver::bell::EventFdBell;
use crate::driver::epoll::Timeout;
use crate::sys::fork_check::Process;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// A wait that lasts this long while something is queued lost its wake.
const FOR_EVER: Duration = Duration::from_secs(30);
const MOST_PRODUCERS: u64 = 32;

/// xorshift64*: enough to mix the schedule, and the same everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64, stream: u64) -> Self {
        Self((seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

struct CountedBell {
    bell: EventFdBell,
    rings: AtomicUsize,
}

impl Bell for CountedBell {
    fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        self.bell.ring();
    }
}

type StressQueue = ReadyQueue<CountedBell>;

#[repr(C)]
struct Item {
    node: Node,
    producer: u32,
    number: u32,
    batch: NonNull<Batch>,
}

/// Nodes are allocated in batches, because one allocation each would take most of the time.
struct Batch {
    /// How many items are not dropped yet.
    left: AtomicU32,
    items: Box<[Item]>,
    dropped: Arc<AtomicUsize>,
}

static ITEM: Kind = Kind {
    priority: Priority::Normal,
    run: release_one,
    discard: release_one,
    leave: release_one,
    order: |_| Order::AsQueued,
};

unsafe fn release_one(node: NonNull<Node>) {
    // SAFETY: only `Batch::make` makes nodes of this kind, and this one is ours.
    unsafe { Batch::release(node.cast::<Item>().as_ref().batch, 1) };
}

impl Batch {
    fn make(producer: u32, first: u32, count: u32, dropped: &Arc<AtomicUsize>) -> NonNull<Self> {
        let batch = Box::new(Self {
            left: AtomicU32::new(count),
            items: Box::default(),
            dropped: dropped.clone(),
        });
        let batch = NonNull::from(Box::leak(batch));
        let items = (first..first + count)
            .map(|number| Item { node: Node::new(&ITEM), producer, number, batch })
            .collect();
        // SAFETY: nobody else knows the batch yet.
        unsafe { (*batch.as_ptr()).items = items };
        batch
    }

    /// The items' address, without a reference that would claim them all.
    fn items(batch: NonNull<Self>) -> *mut Item {
        // SAFETY: the batch is alive while it has items that were not released.
        unsafe { (*batch.as_ptr()).items.as_mut_ptr() }
    }

    /// # Safety
    /// `count` items of the batch are the caller's, and nobody uses them afterwards.
    unsafe fn release(batch: NonNull<Self>, count: u32) {
        // SAFETY: the caller's items keep the batch until this.
        let before = unsafe { &(*batch.as_ptr()).left }.fetch_sub(count, Ordering::AcqRel);
        if before == count {
            // SAFETY: those were the last.
            drop(unsafe { Box::from_raw(batch.as_ptr()) });
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.dropped.fetch_add(self.items.len(), Ordering::Relaxed);
    }
}

/// Pushes in bursts until all of its nodes are pushed, or one is refused. Returns how many nodes
/// were made, and how many accepted.
fn produce(
    queue: &StressQueue,
    producer: u32,
    plan: &Round,
    dropped: &Arc<AtomicUsize>,
) -> (u32, u32) {
    let mut random = Random::new(plan.seed, u64::from(producer) + 1);
    let mut made = 0;
    while made < plan.each {
        let count = u32::try_from(1 + random.below(64)).unwrap().min(plan.each - made);
        let batch = Batch::make(producer, made, count, dropped);
        let items = Batch::items(batch);
        for index in 0..count {
            // SAFETY: within the batch; the items from `index` on are ours.
            let node = unsafe { NonNull::new_unchecked(items.add(index as usize)) }.cast();
            // SAFETY: in no queue, and alive until it is released.
            if unsafe { queue.push(node) }.is_err() {
                // SAFETY: this item and those behind it are in no queue.
                unsafe { Batch::release(batch, count - index) };
                return (made + count, made + index);
            }
        }
        made += count;
        match random.below(256) {
            0 => thread::sleep(Duration::from_nanos(random.below(20_000))),
            1..=4 => thread::yield_now(),
            5 if plan.wakes => queue.wake(),
            _ => {}
        }
    }
    (made, made)
}

/// One queue's life.
struct Round {
    seed: u64,
    producers: u32,
    each: u32,
    /// Some producers also wake the loop without work, so that not every ring belongs to a push.
    wakes: bool,
    /// The loop ends as soon as this many nodes have arrived.
    end_after: usize,
}

impl Round {
    fn new(seed: u64, pushes: u64) -> Self {
        let mut random = Random::new(seed, 0);
        let producers = 1 + random.below(MOST_PRODUCERS);
        let each = pushes.min(1_500_000).div_ceil(producers);
        let all = producers * each;
        let end_after = if random.below(3) == 0 { random.below(all + 1) } else { all };
        Self {
            seed,
            producers: u32::try_from(producers).unwrap(),
            each: u32::try_from(each).unwrap(),
            wakes: random.below(3) == 0,
            end_after: usize::try_from(end_after).unwrap(),
        }
    }

    /// Returns how many pushes were accepted.
    fn run(&self) -> u64 {
        let (driver, bell) =
            Driver::new(Process::current().expect("a page"), 4).expect("descriptors");
        let bell = CountedBell { bell, rings: AtomicUsize::new(0) };
        let queue = Arc::new(ReadyQueue::new(bell));
        let dropped = Arc::new(AtomicUsize::new(0));
        let (arrived, pushed_asleep, results) = thread::scope(|scope| {
            let producers: Vec<_> = (0..self.producers)
                .map(|number| {
                    let (queue, dropped) = (queue.clone(), dropped.clone());
                    scope.spawn(move || produce(&queue, number, self, &dropped))
                })
                .collect();
            let (arrived, pushed_asleep) = self.consume(&queue, &driver);
            let results: Vec<_> = producers.into_iter().map(|p| p.join().unwrap()).collect();
            (arrived, pushed_asleep, results)
        });
        let made: u32 = results.iter().map(|(made, _)| made).sum();
        for (number, ((_, accepted), arrived)) in results.iter().zip(&arrived).enumerate() {
            assert_eq!(accepted, arrived, "producer {number}: accepted, and arrived");
        }
        assert_eq!(dropped.load(Ordering::Relaxed), made as usize, "every node is dropped");
        let rings = queue.bell.rings.load(Ordering::Relaxed);
        if !self.wakes {
            assert!(rings <= pushed_asleep, "a ring is that of a push that met a sleep");
        }
        arrived.iter().map(|arrived| u64::from(*arrived)).sum()
    }

    /// Runs the loop. Returns how many nodes arrived from each producer, and how many of all had
    /// met a sleep.
    fn consume(&self, queue: &StressQueue, driver: &Driver) -> (Vec<u32>, usize) {
        let mut random = Random::new(self.seed, u64::MAX);
        let mut next = vec![0; self.producers as usize];
        let (mut arrived, mut pushed_asleep, mut asleep) = (0, 0, false);
        let mut accept = |drained: Drained, asleep: bool| {
            let mut count = 0;
            for node in drained {
                // SAFETY: nodes of this queue are items, and a drained one is ours.
                let item = unsafe { node.cast::<Item>().as_ref() };
                let expected = &mut next[item.producer as usize];
                assert_eq!(item.number, *expected, "FIFO of producer {}", item.producer);
                *expected += 1;
                // SAFETY: as above, and its last use.
                unsafe { (item.node.kind().run)(node) };
                count += 1;
            }
            arrived += count;
            pushed_asleep += if asleep { count } else { 0 };
            (count, arrived)
        };
        loop {
            let (came, arrived) = accept(queue.drain(), std::mem::take(&mut asleep));
            if arrived >= self.end_after {
                break;
            }
            if came == 0 && queue.try_sleep() {
                asleep = true;
                let limit = match random.below(4) {
                    0 => Duration::from_nanos(1 + random.below(30_000)),
                    _ => FOR_EVER,
                };
                let start = Instant::now();
                while driver.wait(Timeout::After(limit)).expect("epoll") == 0 {
                    if start.elapsed() >= limit {
                        assert!(limit < FOR_EVER || !queue.is_pending(), "a wake was lost");
                        break;
                    }
                }
                driver.dispatch();
            }
        }
        // Sometimes the loop ends while it is marked asleep, like a loop that has just been
        // permitted to park.
        let asleep = random.below(2) == 0 && queue.try_sleep();
        accept(queue.close(), asleep);
        (next, pushed_asleep)
    }
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

fn stress(pushes: u64) {
    let seed = setting("WAKEFUL_STRESS_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("after 1970").as_nanos() as u64
    });
    let pushes = setting("WAKEFUL_STRESS_PUSHES").unwrap_or(pushes);
    println!("WAKEFUL_STRESS_SEED={seed} WAKEFUL_STRESS_PUSHES={pushes}");
    let (mut seeds, mut accepted, mut rounds) = (Random::new(seed, 0), 0, 0);
    while accepted < pushes {
        // Each round has a fifth of the pushes, so that short runs have several rounds, too.
        accepted += Round::new(seeds.below(u64::MAX), pushes.div_ceil(5)).run();
        rounds += 1;
    }
    println!("{accepted} pushes accepted in {rounds} rounds");
}

#[test]
fn stress_every_push_arrives_once_in_order_and_is_dropped() {
    stress(100_000);
}

#[test]
#[ignore = "10^8 pushes: most of a minute, in release"]
fn stress_in_full() {
    stress(100_000_000);
}
