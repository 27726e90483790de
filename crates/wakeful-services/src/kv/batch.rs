//! The questions of a connection to another loop's shard. All commands of one read go in one
//! message, which comes back with the answers.

use super::reply;
use super::shard::{Key, Operation, Refused, Shard, Spare};
use crate::buffers::{Charge, FREE};

/// The owner stops when its answers are as long as this. It handles the rest when these answers
/// have been taken.
const MOST_ANSWERS: usize = 64 * 1024;

/// The questions and answers of one message. An empty batch allocates nothing. See the module.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The keys and values, one after another.
    bytes: Vec<u8>,
    asked: Vec<Asked>,
    /// How many questions are answered, and the position of the next one's key.
    done: usize,
    at: usize,
    answers: Vec<u8>,
    /// The memory of `answers`.
    charge: Charge,
    /// The ends of the answers that were not taken yet, how many were taken, and where the next one
    /// begins.
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
    /// # Errors
    /// There is no memory for it.
    #[inline]
    pub(super) fn push(
        &mut self,
        op: Operation,
        key: Key<'_>,
        value: &[u8],
        spare: &mut Spare,
    ) -> Result<(), Refused> {
        let length = key.bytes.len() + value.len();
        if !spare.has_room(&mut self.bytes, length) || !spare.has_room(&mut self.asked, 1) {
            return Err(Refused::NoMemory);
        }
        self.bytes.extend_from_slice(key.bytes);
        self.bytes.extend_from_slice(value);
        let (hash, key, value) = (key.hash, key.bytes.len(), value.len());
        self.asked.push(Asked { op, hash, key, value });
        Ok(())
    }

    /// How many have no answer yet.
    pub(super) fn unanswered(&self) -> usize {
        self.asked.len() - self.done
    }

    /// Are there questions left, and no answers that would have to be taken first?
    pub(super) fn is_to_be_sent(&self) -> bool {
        self.unanswered() > 0 && self.ends.is_empty()
    }

    /// Answers the questions, on the owner's loop. Without memory for an answer it stops, too. If
    /// that is the first one, the batch is still [to be sent](Self::is_to_be_sent).
    pub(super) fn run(&mut self, shard: &mut Shard) {
        while self.answers.len() < MOST_ANSWERS
            && let Some(asked) = self.asked.get(self.done)
        {
            let (key, rest) = self.bytes[self.at..].split_at(asked.key);
            let key = Key { hash: asked.hash, bytes: key };
            let value = &rest[..asked.value];
            if !shard.spare().gives(|| self.ends.try_reserve(1))
                || !shard.apply(asked.op, key, value, &mut self.answers, &mut self.charge)
            {
                break;
            }
            self.ends.push(self.answers.len());
            self.at += asked.key + asked.value;
            self.done += 1;
        }
        shard.free_removed();
    }

    /// Replaces a batch that was lost: `count` answers that are all this error.
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

    /// If all answers were taken, makes room for the next ones. Returns how many bytes it keeps
    /// allocated.
    pub(super) fn forget_answers(&mut self) -> usize {
        if self.taken == self.ends.len() {
            self.clear_answers();
        }
        self.bytes.capacity()
            + self.asked.capacity() * size_of::<Asked>()
            + self.answers.capacity()
            + self.ends.capacity() * size_of::<usize>()
    }

    fn clear_answers(&mut self) {
        (self.taken, self.from) = (0, 0);
        self.ends.clear();
        self.answers.clear();
        self.answers.shrink_to(2 * FREE);
        self.charge.shrink_to(0);
        if self.unanswered() == 0 {
            (self.done, self.at) = (0, 0);
            self.asked.clear();
            self.bytes.clear();
            if self.bytes.capacity() > FREE {
                *self = Self::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::buffers::Budget;
    use crate::kv::shard::{Condition, Meter, Meters};

    const KEY: Key<'_> = Key { hash: 7, bytes: b"key" };

    /// Runs the batch and takes the answers until all are there. Returns how often it ran, and the
    /// answers.
    fn answers(batch: &mut Batch, shard: &mut Shard) -> (usize, Vec<Vec<u8>>) {
        let (mut runs, mut answers) = (0, Vec::new());
        while batch.is_to_be_sent() {
            batch.run(shard);
            runs += 1;
            assert!(batch.answers.len() < 2 * MOST_ANSWERS);
            assert!(!batch.is_to_be_sent(), "what was answered is taken first");
            while let Some(answer) = batch.take() {
                answers.push(answer.to_vec());
            }
            batch.forget_answers();
        }
        (runs, answers)
    }

    #[test]
    fn an_owner_stops_when_its_answers_are_long_and_goes_on_when_they_were_taken() {
        let mut shard = Shard::new(Meter::new(
            Arc::new(Meters::new(usize::MAX, Budget::new(usize::MAX), 1)),
            0,
        ));
        let mut batch = Batch::default();
        let value = vec![b'x'; MOST_ANSWERS / 4];
        batch.push(Operation::Set(Condition::Always), KEY, &value, shard.spare()).unwrap();
        (0..10).for_each(|_| batch.push(Operation::Get, KEY, &[], shard.spare()).unwrap());
        batch.push(Operation::Remove, KEY, &[], shard.spare()).unwrap();
        assert_eq!(batch.unanswered(), 12);
        let (runs, all) = answers(&mut batch, &mut shard);
        assert_eq!(runs, 3, "four values at a time");
        assert_eq!(all.len(), 12);
        assert!(all[1..11].iter().all(|answer| answer.len() > value.len()));
        assert_eq!((all[0].as_slice(), all[11].as_slice()), (&b"+OK\r\n"[..], &b":1\r\n"[..]));
        // The batch can be filled again.
        batch.push(Operation::Get, KEY, &[], shard.spare()).unwrap();
        assert_eq!(answers(&mut batch, &mut shard), (1, vec![b"$-1\r\n".to_vec()]));
    }

    #[test]
    fn a_lost_batch_has_an_error_for_each_question() {
        let mut batch = Batch::lost(2, "ERR lost");
        assert!(!batch.is_to_be_sent());
        assert_eq!(batch.take(), Some(&b"-ERR lost\r\n"[..]));
        assert_eq!(batch.take(), Some(&b"-ERR lost\r\n"[..]));
        assert_eq!(batch.take(), None);
        batch.forget_answers();
        assert_eq!(batch.take(), None);
    }
}
