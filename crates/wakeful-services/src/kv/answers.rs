//! The answers of a connection, in the order of its commands.
//!
//! The answers of this loop's shard are written at once. An answer of another loop gets a slot, and
//! the question goes into that loop's [`Batch`]. When the connection has no more complete commands,
//! or there are enough questions, every batch is sent as one message for each loop. The answers
//! fill the slots from the front. With one loop there are neither slots nor messages.
//!
//! The memory is bounded, whatever a client asks: if it reads slowly, its answers are written
//! before more commands run.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use super::batch::Batch;
use super::options::KEPT;
use super::reply;
use super::resp::Words;
use super::service::Local;
use super::shard::{ANSWER, Condition, Key, Operation, Refused};
use crate::buffers::{Charge, FREE};
use crate::patience::PatientStream;

/// After this many bytes of answers, or of questions to other loops, they are written.
pub(super) const ENOUGH: usize = 32 * 1024;
/// After this many questions to other loops, they are sent.
const ENOUGH_QUESTIONS: usize = 1024;

/// The memory for questions to other loops that a connection keeps while its client sends nothing:
/// this many bytes, and some more for each loop. That is enough for a client that sends a few
/// commands at a time, so such a client costs no allocation for each of them.
const KEPT_QUESTIONS: usize = FREE;
const KEPT_OF_A_LOOP: usize = 1024;

const LOST: &str = "ERR the loop that owns the key has ended";

/// A place in the sequence of answers.
#[derive(Debug)]
enum Slot {
    /// This many bytes that are there.
    Here(usize),
    /// An answer of this loop.
    There(usize),
    /// An error: there was no room to ask another loop.
    Refused(Refused),
    /// The same, for a part of an answer.
    RefusedPart(Refused),
    /// An answer of this loop that is a part of the next `Sum` or `Verdict`.
    Part(usize),
    /// The sum of the parts, plus this number.
    Sum(i64),
    /// OK, unless this, or a part, is an error.
    Verdict(Option<Refused>),
}

/// The parts of one answer.
#[derive(Debug, Default)]
struct Parts {
    sum: i64,
    error: Option<Vec<u8>>,
}

/// The answers of one connection. See the module.
#[derive(Debug)]
pub(super) struct Answers {
    local: Rc<Local>,
    out: Vec<u8>,
    /// The memory of `out`.
    charge: Charge,
    /// How many bytes of `out` belong to slots.
    placed: usize,
    slots: VecDeque<Slot>,
    /// A batch for each loop. That of this loop stays empty.
    batches: Box<[Batch]>,
    /// How many bytes the slots and the batches keep allocated.
    kept: usize,
    questions: usize,
    question_bytes: usize,
    /// The memory of `question_bytes`.
    question_charge: Charge,
    /// This loop's part of the command that is being answered.
    sum: i64,
    refused: Option<Refused>,
    /// The parts of the answer that is being put together.
    parts: Parts,
    /// There was no memory for an answer, so the connection has to end.
    are_lost: bool,
}

impl Answers {
    pub(super) fn new(local: Rc<Local>) -> Self {
        let batches = (0..local.service.loops()).map(|_| Batch::default()).collect();
        Self {
            local,
            out: Vec::new(),
            charge: Charge::default(),
            placed: 0,
            slots: VecDeque::new(),
            batches,
            kept: 0,
            questions: 0,
            question_bytes: 0,
            question_charge: Charge::default(),
            sum: 0,
            refused: None,
            parts: Parts::default(),
            are_lost: false,
        }
    }

    /// The buffer for an answer that needs no key.
    #[inline]
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        self.out_for(ANSWER)
    }

    #[inline]
    fn out_for(&mut self, length: usize) -> &mut Vec<u8> {
        if !self.local.shard.borrow_mut().spare().gives(|| self.out.try_reserve(length)) {
            // Nobody will see the answer.
            self.are_lost = true;
            self.out.clear();
            self.placed = 0;
        }
        &mut self.out
    }

    /// How many bytes of answers wait to be written.
    pub(super) fn length(&self) -> usize {
        self.out.len()
    }

    /// Counts the memory for an answer of at most `length` bytes. `false`: there is no room for it,
    /// so the answer is an error.
    pub(super) fn has_room(&mut self, length: usize) -> bool {
        let length = self.out.len() + length;
        let has_room = self.charge.cover(self.local.service.meters.buffers(), length);
        if !has_room {
            self.error(&Refused::NoRoomToAnswer.to_string());
        }
        has_room
    }

    /// The same, and makes room.
    pub(super) fn make_room(&mut self, length: usize) -> bool {
        if !self.has_room(length) {
            return false;
        }
        let has_room = self.local.shard.borrow_mut().spare().has_room(&mut self.out, length);
        if !has_room {
            self.error(&Refused::NoMemory.to_string());
        }
        has_room
    }

    /// Answers with a text.
    pub(super) fn text(&mut self, text: &[u8]) {
        if self.make_room(text.len() + 32) {
            reply::bulk(&mut self.out, text);
        }
    }

    pub(super) fn error(&mut self, text: &str) {
        reply::error(self.out_for(text.len() + 3), text);
    }

    /// Answers a command with one key.
    #[inline]
    pub(super) fn one(&mut self, op: Operation, key: &[u8], value: &[u8]) {
        let key = self.local.service.key(key);
        match self.elsewhere(key) {
            None => {
                let mut shard = self.local.shard.borrow_mut();
                if !shard.apply(op, key, value, &mut self.out, &mut self.charge) {
                    self.are_lost = true;
                }
            }
            Some(owner) => self.ask(owner, op, key, value, Slot::There(owner)),
        }
    }

    /// Adds a part to the sum that follows: `Remove` or `Count`.
    pub(super) fn add(&mut self, op: Operation, key: &[u8]) {
        let key = self.local.service.key(key);
        match self.elsewhere(key) {
            None => {
                let mut shard = self.local.shard.borrow_mut();
                let found = match op {
                    Operation::Remove => shard.remove(key),
                    _ => shard.contains(key),
                };
                self.sum += i64::from(found);
            }
            Some(owner) => self.ask(owner, op, key, &[], Slot::Part(owner)),
        }
    }

    pub(super) fn end_of_sum(&mut self) {
        let here = std::mem::take(&mut self.sum);
        if self.are_owed() {
            self.slot(Slot::Sum(here));
        } else {
            std::mem::take(&mut self.parts).sum(here, self.out());
        }
    }

    /// Sets all of them or none, with one answer. Only possible if this loop owns all keys.
    pub(super) fn set_all(&mut self, pairs: Words<'_>) {
        let service = &self.local.service;
        let pairs = pairs.pairs().map(|(key, value)| (service.key(key), value));
        self.refused = self.local.shard.borrow_mut().set_all(pairs).err();
        self.end_of_verdict();
    }

    /// Adds a part to the verdict that follows.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) {
        let key = self.local.service.key(key);
        match self.elsewhere(key) {
            None => {
                let outcome = self.local.shard.borrow_mut().set(key, value, Condition::Always);
                self.refused = self.refused.or(outcome.err());
            }
            Some(owner) => {
                let op = Operation::Set(Condition::Always);
                self.ask(owner, op, key, value, Slot::Part(owner));
            }
        }
    }

    pub(super) fn end_of_verdict(&mut self) {
        let here = self.refused.take();
        if self.are_owed() {
            self.slot(Slot::Verdict(here));
        } else {
            std::mem::take(&mut self.parts).verdict(here, self.out());
        }
    }

    /// Clears every shard, with one answer.
    pub(super) fn clear(&mut self) {
        let key = Key { hash: 0, bytes: &[] };
        for owner in 0..self.batches.len() {
            if owner == self.local.number {
                self.local.shard.borrow_mut().clear();
            } else {
                self.ask(owner, Operation::Clear, key, &[], Slot::Part(owner));
            }
        }
        self.end_of_verdict();
    }

    #[inline]
    fn elsewhere(&self, key: Key<'_>) -> Option<usize> {
        let loops = self.batches.len();
        if loops == 1 {
            return None;
        }
        Some(key.owner(loops)).filter(|owner| *owner != self.local.number)
    }

    fn ask(&mut self, owner: usize, op: Operation, key: Key<'_>, value: &[u8], slot: Slot) {
        let bytes = self.question_bytes + key.bytes.len() + value.len();
        let has_room = self.question_charge.cover(self.local.service.meters.buffers(), bytes);
        let asked = if has_room {
            let mut shard = self.local.shard.borrow_mut();
            self.batches[owner].push(op, key, value, shard.spare())
        } else {
            Err(Refused::NoRoomToSend)
        };
        match asked {
            Ok(()) => {
                self.questions += 1;
                self.question_bytes = bytes;
                self.slot(slot);
            }
            Err(refused) if matches!(slot, Slot::Part(_)) => self.slot(Slot::RefusedPart(refused)),
            Err(refused) => self.slot(Slot::Refused(refused)),
        }
    }

    fn slot(&mut self, slot: Slot) {
        if !self.local.shard.borrow_mut().spare().gives(|| self.slots.try_reserve(2)) {
            self.are_lost = true;
            return;
        }
        let here = self.out.len() - std::mem::replace(&mut self.placed, self.out.len());
        if here > 0 {
            self.slots.push_back(Slot::Here(here));
        }
        self.slots.push_back(slot);
    }

    /// Are there enough answers to [`write`](Self::write) them?
    #[inline]
    pub(super) fn are_enough(&self) -> bool {
        self.out.len() >= ENOUGH
            || self.question_bytes >= ENOUGH
            || self.questions >= ENOUGH_QUESTIONS
            || self.slots.len() >= ENOUGH_QUESTIONS
            || self.are_lost
            || self.are_full()
    }

    /// Would the next answer need a larger buffer, while there is hardly any memory?
    #[inline]
    pub(super) fn are_full(&self) -> bool {
        let is_full = |length, capacity, more| length > 0 && capacity - length < more;
        (is_full(self.out.len(), self.out.capacity(), ANSWER)
            || is_full(self.slots.len(), self.slots.capacity(), 2))
            && self.local.shard.borrow().is_spare_given()
    }

    /// Does another loop still have to answer?
    pub(super) fn are_owed(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Frees most of the memory for questions to other loops, if it is much. To be called when the
    /// client has sent nothing more: it may not do so for hours.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.kept > KEPT_QUESTIONS + self.batches.len() * KEPT_OF_A_LOOP && !self.are_owed() {
            self.forget_questions();
        }
    }

    #[cold]
    fn forget_questions(&mut self) {
        self.batches.fill_with(Batch::default);
        self.slots = VecDeque::new();
        self.kept = 0;
    }

    /// How many bytes are kept for questions to other loops.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Gets the answers of other loops, and writes all answers.
    ///
    /// # Errors
    /// The kernel's. `OutOfMemory`: there was no memory for an answer.
    pub(super) async fn write(&mut self, stream: &mut PatientStream) -> io::Result<()> {
        if !self.slots.is_empty() {
            self.gather(stream).await?;
        }
        if self.are_lost {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        stream.write_all(&self.out).await?;
        self.out.clear();
        self.out.shrink_to(KEPT);
        self.charge.shrink_to(0);
        Ok(())
    }

    /// Fills all slots. Answers that are ready earlier are written meanwhile, as long as more will
    /// come.
    async fn gather(&mut self, stream: &mut PatientStream) -> io::Result<()> {
        self.slot(Slot::Here(0));
        self.placed = 0;
        let (mut ready, mut charge, mut from) = (Vec::new(), Charge::default(), 0);
        loop {
            self.exchange().await;
            // The owner had no memory for a single answer.
            if self.are_lost || self.batches.iter().any(Batch::is_to_be_sent) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            while let Some(slot) = self.slots.pop_front() {
                let answer = match slot {
                    Slot::Here(length) => {
                        from += length;
                        Some(&self.out[from - length..from])
                    }
                    Slot::There(owner) => self.batches[owner].take(),
                    _ => None,
                };
                let shard = &self.local.shard;
                if let Some(answer) = answer {
                    if answer.len() <= ENOUGH
                        && shard.borrow_mut().spare().has_room(&mut ready, answer.len())
                    {
                        ready.extend_from_slice(answer);
                    } else {
                        // This answer is not copied, so that its memory is counted only once, or
                        // because there is no memory for a copy.
                        stream.write_all(&ready).await?;
                        ready.clear();
                        stream.write_all(answer).await?;
                    }
                } else {
                    if !shard.borrow_mut().spare().gives(|| ready.try_reserve(ANSWER)) {
                        stream.write_all(&ready).await?;
                        ready.clear();
                        ready.try_reserve(ANSWER)?;
                    }
                    if !self.fill(&slot, &mut ready) {
                        self.slots.push_front(slot);
                        break;
                    }
                }
                let budget = self.local.service.meters.buffers();
                if ready.len() >= ENOUGH && !charge.try_cover(budget, ready.capacity()) {
                    stream.write_all(&ready).await?;
                    ready.clear();
                }
            }
            self.kept = self.batches.iter_mut().map(Batch::forget_answers).sum();
            if self.slots.is_empty() {
                self.kept += self.slots.capacity() * size_of::<Slot>();
                break;
            }
            stream.write_all(&ready).await?;
            ready.clear();
        }
        (self.questions, self.question_bytes) = (0, 0);
        self.question_charge.shrink_to(0);
        (self.out, self.charge) = (ready, charge);
        Ok(())
    }

    /// Sends every batch that has questions and no answers, and waits until all are back.
    async fn exchange(&mut self) {
        let mut sent = Vec::new();
        for (owner, batch) in self.batches.iter_mut().enumerate() {
            if batch.is_to_be_sent() {
                let count = batch.unanswered();
                sent.push((owner, count, self.local.service.send(owner, std::mem::take(batch))));
            }
        }
        for (owner, count, batch) in sent {
            let back = match batch {
                Some(batch) => batch.await.ok().flatten(),
                None => None,
            };
            self.batches[owner] = back.unwrap_or_else(|| Batch::lost(count, LOST));
        }
    }

    /// Fills one slot. `false`: an answer for it has not come.
    fn fill(&mut self, slot: &Slot, ready: &mut Vec<u8>) -> bool {
        match slot {
            Slot::Here(_) | Slot::There(_) => return false,
            Slot::Refused(refused) => reply::error(ready, &refused.to_string()),
            Slot::RefusedPart(refused) => self.parts.refuse(*refused),
            Slot::Part(owner) => match self.batches[*owner].take() {
                Some(answer) => self.parts.add(answer),
                None => return false,
            },
            Slot::Sum(here) => std::mem::take(&mut self.parts).sum(*here, ready),
            Slot::Verdict(here) => std::mem::take(&mut self.parts).verdict(*here, ready),
        }
        true
    }
}

impl Parts {
    /// Adds a part: OK, an error, or the number 0 or 1.
    fn add(&mut self, answer: &[u8]) {
        match answer.first() {
            Some(b'-') if self.error.is_none() => self.error = Some(answer.to_vec()),
            Some(b':') => self.sum += i64::from(answer == b":1\r\n"),
            _ => {}
        }
    }

    fn refuse(&mut self, refused: Refused) {
        let error = self.error.get_or_insert_default();
        if error.is_empty() {
            reply::error(error, &refused.to_string());
        }
    }

    fn sum(self, here: i64, out: &mut Vec<u8>) {
        match self.error {
            Some(error) => out.extend_from_slice(&error),
            None => reply::integer(out, self.sum + here),
        }
    }

    fn verdict(self, here: Option<Refused>, out: &mut Vec<u8>) {
        match (here, self.error) {
            (Some(refused), _) => reply::error(out, &refused.to_string()),
            (None, Some(error)) => out.extend_from_slice(&error),
            (None, None) => reply::ok(out),
        }
    }
}
