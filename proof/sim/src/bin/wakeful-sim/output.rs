//! What the program prints.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use clap::Args;
use wakeful_load::internals::results::Results;
use wakeful_sim::report::{self, Style};

#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Print tables for a document.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print everything for programs, in the schema of `wakeful load --json`.
    #[arg(long)]
    json: bool,
}

impl Output {
    pub(crate) fn print(&self, results: &Results) -> Result<(), String> {
        let text = if self.json {
            serde_json::to_string_pretty(results).map_err(|error| error.to_string())? + "\n"
        } else {
            let style = if self.markdown { Style::Markdown } else { Style::Terminal };
            report::text(results, style)
        };
        print(&text)
    }
}

pub(crate) fn print(text: &str) -> Result<(), String> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // It is no error if a reader such as `head` has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to stdout: {error}"))
        }
        _ => Ok(()),
    }
}

/// A line on a terminal that says what is being done, if it takes long.
pub(crate) struct Progress {
    began: Instant,
    count: usize,
    done: usize,
}

impl Progress {
    pub(crate) fn of(count: usize) -> Self {
        Self { began: Instant::now(), count, done: 0 }
    }

    pub(crate) fn next(&mut self, name: &str) {
        self.done += 1;
        if self.began.elapsed() > Duration::from_secs(2) && stderr().is_terminal() {
            eprint!("\r\x1b[2K[{}/{}] {name}", self.done, self.count);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if stderr().is_terminal() {
            eprint!("\r\x1b[2K");
        }
    }
}
