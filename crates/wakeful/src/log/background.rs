//! The receiving end of a log: usually a thread. It may block for as long as the destination
//! blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use super::Destination;
use super::counts::Counts;
use super::output::{Output, WhenFull};
use super::patience::Patience;
use crate::sys::fork_check::ProcessMark;
use crate::sys::panics::contain;
use crate::task::end_main_of_child;

#[derive(Debug)]
pub(super) enum Message {
    Lines {
        bytes: Vec<u8>,
        lines: u64,
    },
    /// Asks for a message back when everything before is written or dropped.
    Tell(SyncSender<()>),
    /// Asks the destination whether it should be opened again.
    LookAround,
}

#[derive(Debug)]
pub(super) struct Background<D> {
    messages: Receiver<Message>,
    output: Output<D>,
    counts: Arc<Counts>,
    /// Dropped lines that a note has reported.
    reported: u64,
    /// Whether the last write failed.
    fails: bool,
}

/// A [`Background`] without its type, for writers that have no thread.
pub(super) trait Inline: Send {
    /// Writes what the destination takes at once. Returns whether nothing is left.
    fn write_what_fits(&mut self) -> bool;

    /// Like `write_what_fits`, but waits for room as long as `patience` lasts. After that it still
    /// writes what is queued and fits.
    fn write_within(&mut self, patience: &mut Patience<'_>) -> bool;
}

impl<D: Destination> Background<D> {
    pub(super) fn new(messages: Receiver<Message>, destination: D, counts: Arc<Counts>) -> Self {
        let output = Output::new(destination, counts.clone());
        Self { messages, output, counts, reported: 0, fails: false }
    }

    /// Runs until the last writer is dropped.
    pub(super) fn run(&mut self) {
        let process = ProcessMark::new();
        while let Ok(message) = self.messages.recv() {
            // The destination is user code. This thread survives its panics.
            contain(|| self.take(message, WhenFull::Wait));
            if process.is_forked() {
                // It has forked, and returned in the child. There no other thread has messages.
                end_main_of_child();
            }
        }
    }

    fn take(&mut self, message: Message, when_full: WhenFull) {
        // This runs before the lines are taken, so that they are written and counted even if it
        // panics.
        contain(|| {
            self.output.reopen();
        });
        match message {
            Message::Lines { bytes, lines } => {
                self.counts.queued.fetch_sub(bytes.len(), Ordering::Relaxed);
                self.write(&bytes, lines, when_full);
            }
            Message::Tell(teller) => {
                if !self.fails {
                    self.report_dropped(when_full);
                }
                contain(|| self.output.destination.flushed());
                let _ = teller.try_send(());
            }
            Message::LookAround => {}
        }
    }

    /// Writes what the next message has, without waiting. Returns how many bytes that are. `None`:
    /// there is no message.
    fn write_next(&mut self) -> Option<usize> {
        let message = self.messages.try_recv().ok()?;
        let bytes = match &message {
            Message::Lines { bytes, .. } => bytes.len(),
            Message::Tell(_) | Message::LookAround => 0,
        };
        contain(|| self.take(message, WhenFull::Fail));
        Some(bytes)
    }

    /// Writes what is queued now, as far as the destination takes it at once. Returns whether
    /// nothing of that is left. What other threads queue meanwhile does not prolong this.
    fn write_what_is_queued(&mut self) -> bool {
        let mut left = self.counts.queued.load(Ordering::Relaxed);
        while left > 0 && self.output.is_writable(Duration::ZERO) {
            let Some(bytes) = self.write_next() else { return true };
            left = left.saturating_sub(bytes);
        }
        left == 0
    }

    fn write(&mut self, bytes: &[u8], lines: u64, when_full: WhenFull) {
        match self.output.write(bytes, when_full) {
            Ok(()) => {
                self.counts.written.fetch_add(lines, Ordering::Relaxed);
                self.fails = false;
                self.report_dropped(when_full);
            }
            Err(failed) => {
                let whole = failed.lines.min(lines);
                self.counts.written.fetch_add(whole, Ordering::Relaxed);
                self.counts.drop_lines(lines - whole);
                if !std::mem::replace(&mut self.fails, true) {
                    contain(|| self.output.destination.failed(&failed.error));
                }
            }
        }
    }

    fn report_dropped(&mut self, when_full: WhenFull) {
        let lines = self.counts.dropped.load(Ordering::Relaxed) - self.reported;
        if lines == 0 {
            return;
        }
        let mut note = Vec::new();
        // A note that panics or fails is tried again after the next line.
        if contain(|| note = self.output.destination.note(lines))
            && self.output.write(&note, when_full).is_ok()
        {
            self.reported += lines;
            contain(|| self.output.destination.noted(lines));
        }
    }
}

impl<D: Destination> Inline for Background<D> {
    fn write_what_fits(&mut self) -> bool {
        while self.output.is_writable(Duration::ZERO) {
            if self.write_next().is_none() {
                return true;
            }
        }
        false
    }

    fn write_within(&mut self, patience: &mut Patience<'_>) -> bool {
        loop {
            // A write may take long, which is no pause of the process.
            patience.begins_to_look();
            let waits = self.output.waits();
            let is_writable = self.output.is_writable(patience.until_next_look());
            let is_over = patience.is_over();
            drop(waits);
            if is_writable && self.write_next().is_none() {
                return true;
            }
            if is_over {
                return self.write_what_is_queued();
            }
            if !is_writable {
                // This is user code, and may not have waited.
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
