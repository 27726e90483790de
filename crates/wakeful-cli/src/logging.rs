//! The program's log: `tracing` lines, panics and messages, all by one writer that never waits. See
//! [`wakeful::log`].

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use wakeful::log::{LossyWriter, report_panics};

static LOG: OnceLock<LossyWriter> = OnceLock::new();

/// How long the end of the program waits for a standard error that is slow.
const AT_THE_END: Duration = Duration::from_secs(1);

/// Writes the last lines when it is dropped, also by a panic in `main`.
pub(crate) struct Logging(LossyWriter);

impl Drop for Logging {
    fn drop(&mut self) {
        self.0.flush_within(AT_THE_END);
    }
}

/// Logs to standard error what `RUST_LOG` says, by default everything from `info` on except h2's
/// warnings. h2 warns of what single clients do, which could fill a disk;
/// `wakeful_http_refused_total` counts that.
pub(crate) fn start() -> Logging {
    let log = LOG.get_or_init(|| LossyWriter::new(io::stderr())).clone();
    report_panics(&log);
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|error| {
        if std::env::var_os(EnvFilter::DEFAULT_ENV).is_some_and(|value| !value.is_empty()) {
            say(format_args!("wakeful: RUST_LOG is not understood, and ignored: {error}"));
        }
        EnvFilter::new("info,h2=error")
    });
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || writer.clone())
        .with_ansi(io::stderr().is_terminal())
        // They would be printed by `eprintln!`.
        .log_internal_errors(false)
        .init();
    Logging(log)
}

/// Writes a line to standard error. In contrast to `eprintln!` it neither waits nor panics.
pub(crate) fn say(line: impl Display) {
    let text = format!("{line}\n");
    match LOG.get() {
        Some(log) => log.write_lines(text.into_bytes(), 1),
        // A test of a part of the program.
        None => drop(io::stderr().write_all(text.as_bytes())),
    }
}

/// The writer, for those who count its lines.
pub(crate) fn writer() -> Option<LossyWriter> {
    LOG.get().cloned()
}
