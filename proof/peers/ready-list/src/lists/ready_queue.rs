//! wakeful's ready queue, with the runtime's own push, drain and sleep. Nodes are owned in three
//! ways: [`Pooled`], as tasks are; [`Boxed`], as a queue of values would own them; and [`Counts`],
//! one node for each producer, queued when its count leaves zero.

use anyhow::Result;
use crossbeam_utils::Backoff;
use wakeful::internals::{BoxedProducer, EventConsumer, EventQueue, Point, PooledProducer, Source};

use crate::bell::Bell;
use crate::list;

pub struct Pooled;
pub struct Boxed;
pub struct Counts;

pub struct Consumer {
    queue: EventConsumer<Bell>,
    bell: Bell,
}

fn queue() -> Result<(EventQueue<Bell>, Consumer)> {
    let bell = Bell::new()?;
    let (queue, consumer) = EventQueue::new(bell.clone());
    Ok((queue, Consumer { queue: consumer, bell }))
}

impl list::ReadyList for Pooled {
    type Producer = PooledProducer<Bell>;
    type Consumer = Consumer;

    fn build(producers: usize, pool: usize) -> Result<(Vec<Self::Producer>, Consumer)> {
        let (queue, consumer) = queue()?;
        Ok(((0..producers).map(|_| queue.pooled(pool)).collect(), consumer))
    }
}

impl list::ReadyList for Boxed {
    type Producer = BoxedProducer<Bell>;
    type Consumer = Consumer;

    fn build(producers: usize, _pool: usize) -> Result<(Vec<Self::Producer>, Consumer)> {
        let (queue, consumer) = queue()?;
        Ok(((0..producers).map(|_| queue.boxed()).collect(), consumer))
    }
}

impl list::ReadyList for Counts {
    type Producer = Source<Bell>;
    type Consumer = Consumer;

    fn build(producers: usize, _pool: usize) -> Result<(Vec<Self::Producer>, Consumer)> {
        let (queue, consumer) = queue()?;
        Ok(((0..producers).map(|_| queue.source()).collect(), consumer))
    }
}

fn name(point: Point) -> &'static str {
    match point {
        Point::Start => "before the push",
        Point::Linked => "linked, not swapped",
        Point::Pushed => "before the ring",
    }
}

impl list::Producer for PooledProducer<Bell> {
    #[inline]
    fn push_at(&mut self, value: u64, mut at: impl FnMut(&'static str)) {
        let backoff = Backoff::new();
        while !PooledProducer::push_at(self, value, |point| at(name(point))) {
            backoff.snooze();
        }
    }
}

impl list::Producer for BoxedProducer<Bell> {
    #[inline]
    fn push_at(&mut self, value: u64, mut at: impl FnMut(&'static str)) {
        BoxedProducer::push_at(self, value, |point| at(name(point)));
    }
}

impl list::Producer for Source<Bell> {
    const COALESCES: bool = true;

    #[inline]
    fn push_at(&mut self, value: u64, mut at: impl FnMut(&'static str)) {
        self.add_at(value, |point| at(name(point)));
    }
}

impl list::Consumer for Consumer {
    #[inline]
    fn take(&mut self, sink: impl FnMut(u64)) -> usize {
        self.queue.drain(sink)
    }

    #[inline]
    fn arm(&mut self) -> bool {
        self.queue.try_sleep()
    }

    fn bell(&self) -> Option<&Bell> {
        Some(&self.bell)
    }
}
