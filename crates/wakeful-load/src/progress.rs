//! Shows on stderr which block runs and how long the rest will take: one line that is redrawn on a
//! terminal, elsewhere a line for each block.

use std::io::{IsTerminal, Write, stderr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A terminal's line is redrawn at most this often; it costs the generator's thread a few µs.
const REDRAW_EVERY: Duration = Duration::from_secs(1);

/// Progress of a command that takes a known number of blocks.
#[derive(Debug)]
pub struct Progress {
    style: Style,
    /// Blocks done.
    done: usize,
    /// The planned parts in order: for each, the number of blocks and the expected time of one
    /// block.
    parts: Vec<(usize, Duration)>,
    began: Instant,
    block_began: Instant,
    drawn: Option<Instant>,
    label: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Redrawn,
    Lines,
    Silent,
}

impl Progress {
    /// Prints to stderr.
    #[must_use]
    pub fn to_stderr() -> Self {
        Self::new(if stderr().is_terminal() { Style::Redrawn } else { Style::Lines })
    }

    /// Prints nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self::new(Style::Silent)
    }

    fn new(style: Style) -> Self {
        let now = Instant::now();
        Self {
            style,
            done: 0,
            parts: Vec::new(),
            began: now,
            block_began: now,
            drawn: None,
            label: String::new(),
        }
    }

    /// Adds a part to the plan: this number of blocks, each of about this length, after the parts
    /// that were added before.
    pub fn expect(&mut self, blocks: usize, each: Duration) {
        self.parts.push((blocks, each));
    }

    /// Begins a block.
    pub fn begin(&mut self, label: &str) {
        label.clone_into(&mut self.label);
        self.block_began = Instant::now();
        if self.done == 0 {
            self.began = self.block_began;
        }
        self.drawn = None;
        self.tick();
        if self.style == Style::Lines {
            let _ = writeln!(stderr(), "{}", self.line());
        }
    }

    /// Redraws the line, if stderr is a terminal and the last redraw is long enough ago. Does not
    /// wait for a terminal that is stopped (Ctrl-S), because the generator's thread calls this.
    pub fn tick(&mut self) {
        if self.style == Style::Redrawn
            && self.drawn.is_none_or(|at| at.elapsed() >= REDRAW_EVERY)
            && has_room(stderr())
        {
            self.drawn = Some(Instant::now());
            let mut out = stderr().lock();
            // If stderr is gone, there is nobody to tell.
            let _ = write!(out, "\r\x1b[2K{}", self.line()).and_then(|()| out.flush());
        }
    }

    /// Ends a block that need not be measured again.
    pub fn end(&mut self) {
        self.done += 1;
    }

    /// Prints a line that stays.
    pub fn say(&mut self, text: &str) {
        // If stderr is gone, there is nobody to tell.
        let _ = match self.style {
            Style::Silent => Ok(()),
            Style::Lines => writeln!(stderr(), "{text}"),
            Style::Redrawn => writeln!(stderr(), "\r\x1b[2K{text}"),
        };
    }

    /// Removes the line from the terminal.
    pub fn clear(&mut self) {
        if self.style == Style::Redrawn && self.drawn.take().is_some() {
            let _ = write!(stderr(), "\r\x1b[2K");
        }
    }

    fn planned(&self) -> usize {
        self.parts.iter().map(|(blocks, _)| blocks).sum()
    }

    /// The remaining time, including the current block: the expected time, scaled by how long the
    /// finished blocks took compared with what was expected of them. A twentieth of the plan counts
    /// as if it had gone as expected, because the first block may wait for a quiet machine.
    fn left(&self) -> Duration {
        let (mut done, mut expected, mut left) = (self.done, Duration::ZERO, Duration::ZERO);
        for &(blocks, each) in &self.parts {
            let done_of_these = done.min(blocks);
            done -= done_of_these;
            expected += each * done_of_these as u32;
            left += each * (blocks - done_of_these) as u32;
        }
        if expected.is_zero() {
            return left;
        }
        let took = self.block_began.duration_since(self.began);
        let assumed = (expected + left) / 20;
        left.mul_f64((took + assumed).as_secs_f64() / (expected + assumed).as_secs_f64())
    }

    pub(crate) fn line(&self) -> String {
        let left = self.left().saturating_sub(self.block_began.elapsed()).as_secs() + 1;
        let left = if left >= 60 {
            format!("{} min {} s", left / 60, left % 60)
        } else {
            format!("{left} s")
        };
        format!(
            "[{}/{}] {} · about {left} left",
            self.done + 1,
            self.planned().max(self.done + 1),
            self.label
        )
    }
}

/// Whether a write of one line would not wait.
fn has_room(out: impl AsFd) -> bool {
    let at_once = Timespec::default();
    poll(&mut [PollFd::new(&out, PollFlags::OUT)], Some(&at_once)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_takes_nothing_is_not_waited_for() {
        let (_reader, writer) = std::io::pipe().unwrap();
        assert!(has_room(&writer));
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
        assert!(!has_room(&writer));
    }

    #[test]
    fn the_time_left_counts_down_with_the_blocks() {
        let mut progress = Progress::silent();
        progress.expect(3, Duration::from_secs(100));
        progress.begin("a at 10k/s");
        assert_eq!(progress.line(), "[1/3] a at 10k/s · about 5 min 0 s left");
        progress.end();
        progress.begin("b");
        assert_eq!(progress.line(), "[2/3] b · about 27 s left");
    }

    #[test]
    fn parts_that_come_later_count_with_the_pace_of_the_first() {
        let mut progress = Progress::silent();
        progress.expect(1, Duration::from_secs(100));
        progress.expect(3, Duration::from_secs(300));
        progress.begin("a");
        assert_eq!(progress.line(), "[1/4] a · about 16 min 40 s left");
        progress.end();
        progress.begin("b");
        progress.began = progress.block_began - Duration::from_secs(250);
        assert_eq!(progress.line(), "[2/4] b · about 30 min 0 s left");
    }

    #[test]
    fn a_first_block_that_waits_does_not_decide_the_time_left() {
        let mut progress = Progress::silent();
        progress.expect(1, Duration::from_secs(1));
        progress.expect(999, Duration::from_secs(1));
        progress.begin("a");
        progress.end();
        progress.begin("b");
        progress.began = progress.block_began - Duration::from_secs(50);
        assert_eq!(progress.line(), "[2/1000] b · about 32 min 39 s left");
    }

    #[test]
    fn more_blocks_than_planned_are_no_panic() {
        let mut progress = Progress::silent();
        progress.begin("a");
        progress.end();
        progress.end();
        progress.begin("b");
        assert!(progress.line().starts_with("[3/3] b"));
    }
}
