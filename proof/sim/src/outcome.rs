//! The outcome of a trace: response times and CPU time.

/// The outcome of a trace. Times are in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The responses that clients see, rising.
    pub responses: Vec<u64>,
    /// The time from the start to the last answer.
    pub elapsed: f64,
    /// The CPU for answers.
    pub work: f64,
    /// The CPU for polls that found nothing.
    pub spin: f64,
    /// The CPU for falling asleep and waking.
    pub wakes: f64,
    /// The time for which the CPU was held. It is not CPU time.
    pub held: f64,
    /// How many spins, or holds, ended with an arrival.
    pub hits: u64,
    /// How many spins, or holds, ended without an arrival.
    pub misses: u64,
    /// How many sleeps there were, including those that followed a miss.
    pub parks: u64,
}

impl Outcome {
    /// Returns the response at a quantile of 0 to 1.
    ///
    /// # Panics
    ///
    /// When there was no request.
    #[must_use]
    pub fn response(&self, quantile: f64) -> f64 {
        let last = self.responses.len() - 1;
        self.responses[(quantile * last as f64).round() as usize] as f64
    }

    /// Returns the response at a quantile, if at least 100 responses are longer.
    #[must_use]
    pub fn tail(&self, quantile: f64) -> Option<f64> {
        let beyond = (1.0 - quantile) * self.responses.len() as f64;
        (beyond.round() >= 100.0).then(|| self.response(quantile))
    }

    /// Returns the share of a CPU that was used.
    #[must_use]
    pub fn cpu(&self) -> f64 {
        (self.work + self.spin + self.wakes) / self.elapsed.max(1.0)
    }

    /// Returns the share of a CPU that was used, plus what held time costs: `cost` of a spin.
    #[must_use]
    pub fn priced(&self, cost: f64) -> f64 {
        self.cpu() + cost * self.held / self.elapsed.max(1.0)
    }

    /// Adds what another loop did in the same time.
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
