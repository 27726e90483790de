//! What is going on and how long it will take, on stderr: one line that is redrawn on a terminal, a line for each block elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// A terminal's line is redrawn at most this often; it costs the generator's thread a few µs.
const REDRAW_EVERY: Duration = Duration::from_secs(1);

/// Progress of a command that takes a known number of blocks.
#[derive(Debug)]
pub struct Progress {
    style: Style,
    /// Blocks planned and done.
    planned: usize,
    done: usize,
    /// How long a block takes: what was expected, then the mean of those that are done.
    block: Duration,
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
            planned: 0,
            done: 0,
            block: Duration::ZERO,
            began: now,
            block_began: now,
            drawn: None,
            label: String::new(),
        }
    }

    /// So many blocks more will be measured, each of about this length.
    pub fn expect(&mut self, blocks: usize, each: Duration) {
        self.planned += blocks;
        if self.done == 0 {
            self.block = self.block.max(each);
        }
    }

    /// A block begins.
    pub fn begin(&mut self, label: &str) {
        label.clone_into(&mut self.label);
        self.block_began = Instant::now();
        if self.done == 0 {
            self.began = self.block_began;
        }
        self.drawn = None;
        self.tick();
        if self.style == Style::Lines {
            eprintln!("{}", self.line());
        }
    }

    /// Redraws the line, if it is a terminal and time.
    pub fn tick(&mut self) {
        if self.style == Style::Redrawn && self.drawn.is_none_or(|at| at.elapsed() >= REDRAW_EVERY)
        {
            self.drawn = Some(Instant::now());
            let mut out = stderr().lock();
            // Nobody to tell if stderr is gone.
            let _ = write!(out, "\r\x1b[2K{}", self.line()).and_then(|()| out.flush());
        }
    }

    /// A block is done, and need not be measured again.
    pub fn end(&mut self) {
        self.done += 1;
        self.planned = self.planned.max(self.done);
        self.block = self.began.elapsed() / self.done as u32;
    }

    /// A line that stays.
    pub fn say(&mut self, text: &str) {
        match self.style {
            Style::Silent => {}
            Style::Lines => eprintln!("{text}"),
            Style::Redrawn => eprintln!("\r\x1b[2K{text}"),
        }
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if self.style == Style::Redrawn && self.drawn.take().is_some() {
            eprint!("\r\x1b[2K");
        }
    }

    fn line(&self) -> String {
        let left = self.block * (self.planned - self.done).max(1) as u32;
        let left = left.saturating_sub(self.block_began.elapsed()).as_secs() + 1;
        let left = if left >= 60 {
            format!("{} min {} s", left / 60, left % 60)
        } else {
            format!("{left} s")
        };
        format!(
            "[{}/{}] {} · about {left} left",
            self.done + 1,
            self.planned.max(self.done + 1),
            self.label
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_counts_down_with_the_blocks() {
        let mut progress = Progress::silent();
        progress.expect(3, Duration::from_secs(100));
        progress.begin("a at 10k/s");
        assert_eq!(progress.line(), "[1/3] a at 10k/s · about 5 min 0 s left");
        progress.end();
        progress.begin("b");
        assert_eq!(progress.line(), "[2/3] b · about 1 s left");
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
