//! The lines that this process logs, for tests that have a process of their own.

use std::io::{self, Write};
use std::sync::Mutex;

static LOGGED: Mutex<String> = Mutex::new(String::new());

struct Logged;

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what is logged from now on, down to `level`.
pub(crate) fn from_now_on(level: tracing::Level) {
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
    log.with_writer(|| Logged).init();
}

/// How many lines contain all of `texts`.
pub(crate) fn count(texts: &[&str]) -> usize {
    let has_all = |line: &&str| texts.iter().all(|text| line.contains(text));
    LOGGED.lock().unwrap().lines().filter(has_all).count()
}
