//! Foreign wakers that panic, or call back into the loop, when they are woken or dropped.
//!
//! A future is first polled with such a waker, and then awaited as usual: it has to become ready
//! nevertheless. (A waker whose clone panics would need unsafe code here.)

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_lite::future::poll_once;
use wakeful::LoopHandle;
use wakeful::net::UnixStream;

use super::Duty;
use super::panics::panic_on_purpose;
use crate::world::World;

#[derive(Debug, Clone, Copy)]
enum Manner {
    Panics,
    Posts,
    Spawns,
}

struct Hostile {
    target: LoopHandle,
    woken: Manner,
    dropped: Manner,
}

impl Hostile {
    fn act(&self, manner: Manner) {
        match manner {
            Manner::Panics => panic_on_purpose(false),
            Manner::Posts => drop(self.target.post(|| ())),
            Manner::Spawns => {
                if let Ok(task) = self.target.spawn(wakeful::task::yield_now) {
                    task.detach();
                }
            }
        }
    }
}

impl Wake for Hostile {
    fn wake(self: Arc<Self>) {
        self.act(self.woken);
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.act(self.dropped);
    }
}

fn hostile(target: &LoopHandle, random: &mut Rng) -> Waker {
    let mut manner = || match random.u8(..3) {
        0 => Manner::Panics,
        1 => Manner::Posts,
        _ => Manner::Spawns,
    };
    Waker::from(Arc::new(Hostile { target: target.clone(), woken: manner(), dropped: manner() }))
}

/// Polls once with a hostile waker. Returns true if the future was pending, so the waker may be
/// kept.
fn poll_with<F: Future>(future: Pin<&mut F>, waker: Waker) -> bool {
    let is_pending = future.poll(&mut Context::from_waker(&waker)).is_pending();
    // If this is the last copy of the waker, its panic happens in this function.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(waker)));
    is_pending
}

/// Polls something that waits on a loop, or for one, with a hostile waker first.
pub(crate) fn lend(world: &World, target: &LoopHandle, random: &mut Rng) {
    world.ledger.totals.wakers.fetch_add(1, Relaxed);
    let duty = |what| Duty::new(&world.ledger, &world.is_cut, what);
    let waker = hostile(target, random);
    let replaced = random.bool();
    let task = match random.u8(..3) {
        0 => {
            let duty = duty("a join after a hostile waker's");
            return join_from_here(world, target, waker, duty);
        }
        1 => {
            let duty = duty("a sleep after a hostile waker's");
            target.spawn(move || sleep(waker, replaced, duty)).ok()
        }
        _ => {
            let duty = duty("a read after a hostile waker's");
            target.spawn(move || read(waker, replaced, duty)).ok()
        }
    };
    if let Some(task) = task {
        task.detach();
    }
}

async fn sleep(waker: Waker, replaced: bool, duty: Duty) {
    let mut sleep = pin!(wakeful::time::sleep(Duration::from_micros(100)));
    if poll_with(sleep.as_mut(), waker) && !replaced {
        wakeful::time::sleep(Duration::from_micros(200)).await;
    }
    sleep.await;
    duty.done();
}

async fn read(waker: Waker, replaced: bool, duty: Duty) {
    // There are no descriptors left.
    let Ok((mut ours, mut theirs)) = UnixStream::pair() else { return duty.done() };
    let mut buf = [0; 8];
    let mut reading = pin!(ours.read(&mut buf));
    // An injected reset ends the read before anything was written.
    let is_reset = !poll_with(reading.as_mut(), waker)
        || (replaced && poll_once(reading.as_mut()).await.is_some());
    if is_reset {
        return duty.done();
    }
    // The write may be reset too. Then the drop ends the read.
    let _ = theirs.write(b"x").await;
    wakeful::task::yield_now().await;
    drop(theirs);
    let _ = reading.await;
    duty.done();
}

/// Waits for a task on a thread without a loop.
fn join_from_here(world: &World, target: &LoopHandle, waker: Waker, duty: Duty) {
    let Ok(task) = target.spawn(|| async {
        wakeful::time::sleep(Duration::from_micros(100)).await;
        7
    }) else {
        return;
    };
    let mut task = pin!(task);
    if poll_with(task.as_mut(), waker) {
        let begun = Instant::now();
        let mut context = Context::from_waker(Waker::noop());
        while task.as_mut().poll(&mut context).is_pending() {
            if begun.elapsed() > Duration::from_secs(30) {
                return world.ledger.fault("a task never ended for who joined it".to_owned());
            }
            thread::sleep(Duration::from_micros(100));
        }
    }
    duty.done();
}
