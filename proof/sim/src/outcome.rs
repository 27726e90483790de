//! What came of a trace: response times and CPU time.

/// What came of a trace. Times are nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The responses that clients see, rising.
    pub responses: Vec<u64>,
    /// From the start to the last answer.
    pub elapsed: f64,
    /// CPU for answers.
    pub work: f64,
    /// CPU for polls that found nothing.
    pub spin: f64,
    /// CPU for falling asleep and waking.
    pub wakes: f64,
    /// The time for which the CPU was held, which is no CPU time.
    pub held: f64,
    /// Spins, or holds, that an arrival ended.
    pub hits: u64,
    /// Spins, or holds, that ended without one.
    pub misses: u64,
    /// Sleeps, also those that followed a miss.
    pub parks: u64,
}

impl Outcome {
    /// The response at a quantile of 0 to 1.
    ///
    /// # Panics
    /// There was no request.
    #[must_use]
    pub fn response(&self, quantile: f64) -> f64 {
        let last = self.responses.len() - 1;
        self.responses[(quantile * last as f64).round() as usize] as f64
    }

    /// The same, if at least 100 responses are longer.
    #[must_use]
    pub fn tail(&self, quantile: f64) -> Option<f64> {
        let beyond = (1.0 - quantile) * self.responses.len() as f64;
        (beyond.round() >= 100.0).then(|| self.response(quantile))
    }

    /// The share of a CPU that was used.
    #[must_use]
    pub fn cpu(&self) -> f64 {
        (self.work + self.spin + self.wakes) / self.elapsed.max(1.0)
    }

    /// The share of a CPU that was used, and what the time costs in which it was held: `cost` of a
    /// spin.
    #[must_use]
    pub fn priced(&self, cost: f64) -> f64 {
        self.cpu() + cost * self.held / self.elapsed.max(1.0)
    }

    /// What another loop did in the same time.
    pub(crate) fn add(&mut self, other: Self) {
        self.responses.extend(other.responses);
        self.work += other.work;
        self.spin += other.spin;
        self.wakes += other.wakes;
        self.held += other.held;
        self.hits += other.hits;
        self.misses += other.misses;
        self.parks += other.parks;
    }
}
