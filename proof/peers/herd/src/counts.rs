//! The counters of each worker. Any thread may read them, and only the worker writes them.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of one worker.
#[derive(Debug, Default)]
pub struct Counts {
    accepts: AtomicU64,
    waits: Option<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    returns: AtomicU64,
    in_vain: AtomicU64,
}

impl Counts {
    /// Makes the counters of a worker that knows how it waits. A worker that leaves this to a
    /// runtime has [`Counts::default`].
    pub fn with_waits() -> Self {
        Self { waits: Some(Waits::default()), ..Self::default() }
    }

    /// The worker has accepted a connection.
    pub fn accepted(&self) {
        self.accepts.fetch_add(1, Ordering::Relaxed);
    }

    /// The worker tried to accept a connection, and there was none.
    pub fn accepted_nothing(&self) {
        if let Some(waits) = &self.waits {
            waits.in_vain.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The worker was told that there is a connection.
    pub fn returned(&self) {
        if let Some(waits) = &self.waits {
            waits.returns.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn json(&self) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed).to_string();
        let [returns, in_vain] = self.waits.as_ref().map_or_else(
            || ["null".to_owned(), "null".to_owned()],
            |waits| [of(&waits.returns), of(&waits.in_vain)],
        );
        let accepts = of(&self.accepts);
        format!(r#"{{"accepts":{accepts},"returns":{returns},"in_vain":{in_vain}}}"#)
    }
}

/// Returns the counters of all workers, as JSON.
pub fn json(workers: &[Counts]) -> String {
    let workers: Vec<String> = workers.iter().map(Counts::json).collect();
    format!("[{}]", workers.join(","))
}
