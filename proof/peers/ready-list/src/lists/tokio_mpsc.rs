//! Tokio's unbounded channel. It has its own sleep state, a waker. Our waker rings the bell, so
//! that the consumer sleeps like all others, and not in a runtime. The channel is read in batches
//! (`poll_recv_many`), as its documentation recommends.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use anyhow::Result;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::bell::Bell;
use crate::list;

const BATCH: usize = 1024;

pub struct TokioMpsc;

pub struct Producer(UnboundedSender<u64>);

pub struct Consumer {
    receiver: UnboundedReceiver<u64>,
    bell: Bell,
    waker: Waker,
    batch: Vec<u64>,
}

impl list::ReadyList for TokioMpsc {
    type Producer = Producer;
    type Consumer = Consumer;

    fn build(producers: usize, _pool: usize) -> Result<(Vec<Producer>, Consumer)> {
        let (sender, receiver) = unbounded_channel();
        let bell = Bell::new()?;
        let waker = Waker::from(Arc::new(bell.clone()));
        let ends = (0..producers).map(|_| Producer(sender.clone())).collect();
        Ok((ends, Consumer { receiver, bell, waker, batch: Vec::with_capacity(BATCH) }))
    }
}

impl list::Producer for Producer {
    #[inline]
    fn push_at(&mut self, value: u64, mut at: impl FnMut(&'static str)) {
        at("before the push");
        // The receiver lives as long as the run.
        let _ = self.0.send(value);
    }
}

impl Consumer {
    /// Takes a batch, or leaves the waker.
    #[inline]
    fn poll(&mut self) -> bool {
        let mut context = Context::from_waker(&self.waker);
        let polled = self.receiver.poll_recv_many(&mut context, &mut self.batch, BATCH);
        matches!(polled, Poll::Ready(count) if count > 0)
    }
}

impl list::Consumer for Consumer {
    #[inline]
    fn take(&mut self, mut sink: impl FnMut(u64)) -> usize {
        let mut taken = self.batch.len();
        self.batch.drain(..).for_each(&mut sink);
        // This look leaves no waker, because a consumer that is awake must not be rung.
        while let Ok(value) = self.receiver.try_recv() {
            sink(value);
            taken += 1;
        }
        taken
    }

    fn arm(&mut self) -> bool {
        !self.poll()
    }

    fn bell(&self) -> Option<&Bell> {
        Some(&self.bell)
    }

    #[inline]
    fn wait_and_drain(&mut self, mut sink: impl FnMut(u64)) {
        // The documented way: one call takes a batch or leaves the waker.
        while self.batch.is_empty() && !self.poll() {
            self.bell.wait();
        }
        self.batch.drain(..).for_each(&mut sink);
    }
}
