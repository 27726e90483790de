//! The operator, which acts again and again from its own thread while the server is loaded.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use wakeful_load::internals::bench::Companion;
use wakeful_load::internals::servers::Server;

use super::master::{Act, Master};

const POLL: Duration = Duration::from_millis(5);

pub(super) struct Operator {
    master: Master,
    act: Act,
    /// The number of acts.
    acts: u32,
    moments: Arc<Moments>,
    thread: Option<JoinHandle<io::Result<Vec<Duration>>>>,
}

#[derive(Debug, Default)]
struct Moments {
    begun: AtomicBool,
    over: AtomicBool,
}

impl Operator {
    pub(super) fn new(master: Master, act: Act, acts: u32) -> Self {
        Self { master, act, acts, moments: Arc::default(), thread: None }
    }

    /// Returns how long each act took that was done in the measured time.
    ///
    /// # Errors
    /// The reason why an act could not be done.
    pub(super) fn end(mut self) -> Result<Vec<Duration>, String> {
        let thread = self.thread.take().ok_or("the server has not started")?;
        let acted = thread.join().map_err(|_| "the operator's thread panicked")?;
        acted.map_err(|error| format!("{}: {error}", self.act.name()))
    }
}

impl Companion for Operator {
    fn server_started(&mut self, _server: &Server) -> io::Result<()> {
        self.moments.over.store(true, Ordering::Relaxed);
        self.moments = Arc::default();
        let (master, act, acts) = (self.master.clone(), self.act, self.acts);
        let moments = self.moments.clone();
        let work = move || {
            let is_over = || moments.over.load(Ordering::Relaxed);
            let may_begin = || moments.begun.load(Ordering::Relaxed) && master.is_known();
            while !(is_over() || may_begin()) {
                thread::sleep(POLL);
            }
            let begin = Instant::now();
            let mut took = Vec::new();
            for number in 0..acts {
                while begin.elapsed() < act.every() * number && !is_over() {
                    thread::sleep(POLL);
                }
                if is_over() {
                    break;
                }
                let start = Instant::now();
                if master.act(act, number, is_over)? {
                    took.push(start.elapsed());
                }
            }
            Ok(took)
        };
        // This is not the generator's thread, whose CPU the new thread would inherit.
        self.thread = Some(thread::Builder::new().name("operator".to_owned()).spawn(work)?);
        Ok(())
    }

    fn window_begins(&mut self) {
        self.moments.begun.store(true, Ordering::Relaxed);
    }

    fn window_ended(&mut self) {
        self.moments.over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.moments.over.store(true, Ordering::Relaxed);
    }
}
