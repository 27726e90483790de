//! What a connection asks of another loop's shard: one message for all that it read at once, which comes back with the answers.

use super::shard::{Key, Operation, Shard};
use super::{KEPT, reply};

/// The owner stops when its answers are as long as this, and does the rest when these have been taken.
const MOST_ANSWERS: usize = 64 * 1024;

/// See the module. Empty ones allocate nothing.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    asked: Vec<Asked>,
    /// How many have their answer, and where the next one's key is.
    done: usize,
    at: usize,
    answers: Vec<u8>,
    /// Where each answer that was not taken yet ends; how many were taken, and where the next begins.
    ends: Vec<usize>,
    taken: usize,
    from: usize,
}

#[derive(Debug)]
struct Asked {
    op: Operation,
    hash: u64,
    key: usize,
    value: usize,
}

impl Batch {
    #[inline]
    pub(super) fn push(&mut self, op: Operation, key: Key<'_>, value: &[u8]) {
        self.bytes.extend_from_slice(key.bytes);
        self.bytes.extend_from_slice(value);
        let (hash, key, value) = (key.hash, key.bytes.len(), value.len());
        self.asked.push(Asked { op, hash, key, value });
    }

    /// How many have no answer yet.
    pub(super) fn unanswered(&self) -> usize {
        self.asked.len() - self.done
    }

    /// Are there questions left, and no answers that would have to be taken first?
    pub(super) fn is_to_be_sent(&self) -> bool {
        self.unanswered() > 0 && self.ends.is_empty()
    }

    /// On the owner's loop.
    pub(super) fn run(&mut self, shard: &mut Shard) {
        while self.answers.len() < MOST_ANSWERS
            && let Some(asked) = self.asked.get(self.done)
        {
            let (key, rest) = self.bytes[self.at..].split_at(asked.key);
            let key = Key { hash: asked.hash, bytes: key };
            shard.apply(asked.op, key, &rest[..asked.value], &mut self.answers);
            self.ends.push(self.answers.len());
            self.at += asked.key + asked.value;
            self.done += 1;
        }
    }

    /// One that stands for a batch that was lost: so many answers, all of them this error.
    pub(super) fn lost(count: usize, error: &str) -> Self {
        let mut answers = Vec::new();
        reply::error(&mut answers, error);
        let (mut batch, length) = (Self::default(), answers.len());
        for end in 1..=count {
            batch.answers.extend_from_slice(&answers);
            batch.ends.push(end * length);
        }
        batch
    }

    /// The next answer.
    #[inline]
    pub(super) fn take(&mut self) -> Option<&[u8]> {
        let end = *self.ends.get(self.taken)?;
        self.taken += 1;
        Some(&self.answers[std::mem::replace(&mut self.from, end)..end])
    }

    /// If all answers were taken, makes room for the next ones.
    pub(super) fn forget_answers(&mut self) {
        if self.taken < self.ends.len() {
            return;
        }
        (self.taken, self.from) = (0, 0);
        self.ends.clear();
        self.answers.clear();
        if self.unanswered() == 0 {
            (self.done, self.at) = (0, 0);
            self.asked.clear();
            self.bytes.clear();
            if self.bytes.capacity() > KEPT || self.answers.capacity() > 2 * KEPT {
                *self = Self::default();
            }
        }
    }
}
