//! What operators read, for tests that are a process of their own: there is one log.

use std::io;
use std::sync::{Arc, Mutex};

use crate::common::until;

/// The lines of all threads.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// From now on, at `info` and above.
    pub(crate) fn start() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(move || writer.clone());
        tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
        log
    }

    /// What was said about the proxy since the last time.
    pub(crate) fn take(&self) -> Vec<String> {
        self.take_with("wakeful_services::proxy")
    }

    /// The lines with this text since the last time.
    pub(crate) fn take_with(&self, part: &str) -> Vec<String> {
        let text = std::mem::take(&mut *self.0.lock().unwrap());
        let text = String::from_utf8(text).unwrap();
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }

    /// Takes lines until one has this text.
    #[allow(dead_code)] // One of the test programs uses it.
    #[track_caller]
    pub(crate) fn until(&self, text: &str) {
        until(text, || self.take().iter().any(|line| line.contains(text)));
    }
}
