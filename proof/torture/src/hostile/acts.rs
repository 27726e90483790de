//! User code that acts on the runtime wherever it is called: when a task is polled, woken or
//! dropped, in a posted closure, a hook, a task-local value, and on a thread of the pool.
//!
//! An act makes an actor, wakes or drops one that is kept, or panics. Each actor has to be dropped
//! in the end, wherever that is.

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use wakeful::{LoopBound, LoopHandle};

use super::Duty;
use super::panics::{contain, panic_on_purpose};
use crate::ledger::{Ledger, lock};

/// An actor is made with one generation less than its maker.
const GENERATIONS: u8 = 4;
/// So many live at a time.
const MOST_ACTORS: usize = 300;
/// So many things are kept.
const MOST_KEPT: usize = 100;
/// An act may drop or wake others, which act. So many acts are within each other.
const MOST_NESTED: u8 = 6;

thread_local! {
    static NESTED: Cell<u8> = const { Cell::new(0) };
}

wakeful::task_local! {
    static VALUE: Actor;
}

/// What the actors of a round share.
#[derive(Debug)]
pub(crate) struct Stage {
    loops: Vec<LoopHandle>,
    ledger: Arc<Ledger>,
    is_cut: Arc<AtomicBool>,
    is_over: AtomicBool,
    actors: AtomicUsize,
    /// Handles of tasks, hooks, and values that belong to a loop.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    wakers: Mutex<Vec<Waker>>,
}

impl Stage {
    pub(crate) fn new(
        loops: Vec<LoopHandle>,
        ledger: &Arc<Ledger>,
        is_cut: &Arc<AtomicBool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            loops,
            ledger: ledger.clone(),
            is_cut: is_cut.clone(),
            is_over: AtomicBool::new(false),
            actors: AtomicUsize::new(0),
            kept: Mutex::default(),
            wakers: Mutex::default(),
        })
    }

    /// Acts on this thread, which has no loop.
    pub(crate) fn act_from_outside(self: &Arc<Self>) {
        contain(|| self.act(GENERATIONS));
    }

    /// No actor is made or kept any more, and all that are kept are dropped.
    pub(crate) fn end(&self) {
        self.is_over.store(true, SeqCst);
        loop {
            let waker = lock(&self.wakers).pop();
            let kept = lock(&self.kept).pop();
            if waker.is_none() && kept.is_none() {
                break;
            }
            contain(|| waker.into_iter().for_each(Waker::wake));
            contain(|| drop(kept));
        }
    }

    fn act(self: &Arc<Self>, generations: u8) {
        let nested = NESTED.get();
        if nested == MOST_NESTED || self.is_over.load(SeqCst) {
            return;
        }
        NESTED.set(nested + 1);
        let _restores = Nested(nested);
        self.ledger.totals.acts.fetch_add(1, Relaxed);
        let target = &self.loops[fastrand::usize(..self.loops.len())];
        let kind = fastrand::u8(..16);
        match kind {
            0 => self.wake_one(),
            1 => self.drop_one(),
            2 => panic_on_purpose(fastrand::bool()),
            3 => target.wake(),
            4 => thread::sleep(Duration::from_micros(fastrand::u64(..50))),
            _ => {
                let Some(actor) = Actor::new(self, generations) else { return };
                match kind {
                    5 | 6 => drop(target.post(move || actor.act())),
                    7..10 => {
                        if let Ok(task) = target.spawn(move || actor) {
                            self.keep(task);
                        }
                    }
                    _ if LoopHandle::try_current().is_ok() => self.make_here(kind, actor),
                    _ => drop(actor),
                }
            }
        }
    }

    /// On a loop's thread.
    fn make_here(self: &Arc<Self>, kind: u8, actor: Actor) {
        match kind {
            10 => wakeful::spawn(actor).detach(),
            11 => drop(wakeful::task::spawn_blocking(move || actor.act())),
            12 => {
                let pause = Duration::from_micros(fastrand::u64(..300));
                let waits = async move {
                    wakeful::time::sleep(pause).await;
                    // By reference: the compiler drops no result if a drop before it panics.
                    let mut actor = pin!(actor);
                    let _next = actor.as_mut().await;
                };
                wakeful::spawn(waits).detach();
            }
            13 => {
                let Some(value) = Actor::new(self, 1) else { return };
                wakeful::spawn(VALUE.scope(value, actor)).detach();
            }
            14 => {
                let acts = move || {
                    if fastrand::u8(..8) == 0 {
                        actor.act();
                    }
                };
                let hook = match fastrand::bool() {
                    true => wakeful::before_park(acts),
                    false => wakeful::after_turn(acts),
                };
                self.keep(LoopBound::new(hook));
            }
            _ => self.keep(LoopBound::new(actor)),
        }
    }

    fn keep(&self, it: impl Any + Send) {
        let mut kept = lock(&self.kept);
        // The rest is dropped here, without the lock.
        let rest: Option<Box<dyn Any + Send>> =
            if kept.len() < MOST_KEPT && !self.is_over.load(SeqCst) {
                kept.push(Box::new(it));
                None
            } else {
                Some(Box::new(it))
            };
        drop(kept);
        drop(rest);
    }

    fn wake_one(&self) {
        let mut wakers = lock(&self.wakers);
        if wakers.is_empty() {
            return;
        }
        let number = fastrand::usize(..wakers.len());
        let waker = wakers.swap_remove(number);
        drop(wakers);
        waker.wake();
    }

    fn drop_one(&self) {
        let mut kept = lock(&self.kept);
        if kept.is_empty() {
            return;
        }
        let number = fastrand::usize(..kept.len());
        let one = kept.swap_remove(number);
        drop(kept);
        drop(one);
    }
}

/// Puts the count of acts that are within each other back, also behind a panic.
struct Nested(u8);

impl Drop for Nested {
    fn drop(&mut self) {
        NESTED.set(self.0);
    }
}

/// A task, an output, a value, or what a closure owns. It acts when it is polled, and when it is
/// dropped.
struct Actor {
    stage: Arc<Stage>,
    generations: u8,
    polls: u8,
    _duty: Duty,
}

impl Actor {
    /// `None`: this is the last generation, or there are enough of them.
    fn new(stage: &Arc<Stage>, generations: u8) -> Option<Self> {
        let generations = generations.checked_sub(1)?;
        if stage.actors.fetch_add(1, SeqCst) >= MOST_ACTORS {
            stage.actors.fetch_sub(1, SeqCst);
            return None;
        }
        let duty = Duty::new(&stage.ledger, &stage.is_cut, "an actor").may_fail();
        Some(Self { stage: stage.clone(), generations, polls: fastrand::u8(..4), _duty: duty })
    }

    fn act(&self) {
        self.stage.act(self.generations);
    }

    /// Sees that it is polled once more.
    fn wait(&self, waker: &Waker) {
        let waker = match fastrand::u8(..4) {
            // It acts when it is woken, and when it is dropped.
            0 => Waker::from(Arc::new(ActsWhenWoken {
                stage: self.stage.clone(),
                generations: self.generations,
                inner: waker.clone(),
            })),
            _ => waker.clone(),
        };
        let mut wakers = lock(&self.stage.wakers);
        if wakers.len() < MOST_KEPT && !self.stage.is_over.load(SeqCst) {
            wakers.push(waker);
        } else {
            drop(wakers);
            waker.wake();
        }
    }
}

impl Future for Actor {
    /// Another one, which acts when it is dropped.
    type Output = Option<Self>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self>> {
        let polls = self.polls.checked_sub(1);
        if let Some(polls) = polls.filter(|_| !self.stage.is_over.load(SeqCst)) {
            self.polls = polls;
            // Before it acts, which may panic: then nobody polls it again.
            self.wait(cx.waker());
            self.act();
            return Poll::Pending;
        }
        Poll::Ready(Self::new(&self.stage, self.generations))
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.stage.actors.fetch_sub(1, SeqCst);
        self.act();
    }
}

struct ActsWhenWoken {
    stage: Arc<Stage>,
    generations: u8,
    inner: Waker,
}

impl Wake for ActsWhenWoken {
    fn wake(self: Arc<Self>) {
        self.inner.wake_by_ref();
        self.stage.act(self.generations);
    }
}

impl Drop for ActsWhenWoken {
    fn drop(&mut self) {
        self.stage.act(self.generations);
    }
}
