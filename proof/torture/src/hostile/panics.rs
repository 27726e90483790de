//! Tasks and closures that panic: when they run, when what they own is dropped, and when their
//! panic itself is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use wakeful::{JoinHandle, LoopHandle};

use super::Duty;
use crate::world::World;

/// How many panics there were on purpose.
static ORDERED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn ordered() -> u64 {
    ORDERED.load(Relaxed)
}

/// The payload of a panic on purpose. It has no size and so takes no memory. If the drop of a
/// payload panics, wakeful leaks the payload of that second panic, and valgrind would report it.
struct Payload;

/// The same payload, but its drop panics.
struct PayloadThatPanics;

impl Drop for PayloadThatPanics {
    fn drop(&mut self) {
        panic_on_purpose(false);
    }
}

/// Panics without a message on stderr. If this thread is panicking already, it does nothing,
/// because a second panic would end the process.
pub(crate) fn panic_on_purpose(payload_panics: bool) {
    if !thread::panicking() {
        ORDERED.fetch_add(1, Relaxed);
        if payload_panics {
            resume_unwind(Box::new(PayloadThatPanics));
        }
        resume_unwind(Box::new(Payload));
    }
}

/// Panics when it is dropped. Its neighbours in the same value are dropped nevertheless.
struct Bomb {
    payload_panics: bool,
    _duty: Duty,
}

impl Bomb {
    fn before_its_future(self) -> std::future::Ready<()> {
        panic_on_purpose(self.payload_panics);
        std::future::ready(())
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_on_purpose(self.payload_panics);
    }
}

/// Makes one of the loops run something that panics. It has to be dropped, and nothing else may
/// change.
pub(crate) fn throw(world: &World, target: &LoopHandle, random: &mut Rng) {
    // An output that is dropped on this thread panics here.
    contain(|| throw_uncaught(world, target, random));
}

/// Calls what may panic. So may the drop of the panic that results.
pub(crate) fn contain(f: impl FnOnce()) {
    let thrown = catch_unwind(AssertUnwindSafe(f));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(thrown)));
}

fn throw_uncaught(world: &World, target: &LoopHandle, random: &mut Rng) {
    world.ledger.totals.panics.fetch_add(1, Relaxed);
    let payload_panics = random.u8(..4) == 0;
    let duty = Duty::new(&world.ledger, &world.is_cut, "what panics").may_fail();
    let bomb = Bomb { payload_panics, _duty: duty };
    let pause = Duration::from_micros(random.u64(..300));
    let ends = random.bool();
    let keep = move |task: JoinHandle<()>| if ends { task.abort() } else { task.detach() };
    // A loop that has ended gives the closure back, and it is dropped here.
    match random.u8(..5) {
        // The closure ends normally, but what it owns panics.
        0 => drop(target.post(move || drop(bomb))),
        // It panics before it returns its future.
        1 => drop(target.spawn(move || bomb.before_its_future()).map(keep)),
        // Its future panics when it is dropped, or in its last poll.
        2 | 3 => {
            let task = target.spawn(move || async move {
                let _bomb = bomb;
                wakeful::time::sleep(pause).await;
            });
            drop(task.map(keep));
        }
        // Its output panics where it is dropped: here, or on the loop.
        _ => {
            let task = target.spawn(move || async move { bomb });
            drop(task.map(|task| if ends { task.abort() } else { task.detach() }));
        }
    }
}
