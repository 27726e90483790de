//! What the connections of a group do: when they come, go, and send.

use fastrand::Rng;

use super::setting::Setting;

/// After this many nanoseconds all connections have come.
const ARRIVING: f64 = 1e9;

/// Requests at random times, each of a random connection. So the requests of each connection come
/// at random times too.
#[derive(Debug)]
pub(super) struct Traffic {
    random: Rng,
    /// The mean time between two requests, in nanoseconds.
    gap: f64,
    next: f64,
    /// How long a connection lasts on average.
    life: Option<f64>,
    /// When each connection comes, or goes and is replaced by another one.
    ends: Vec<f64>,
}

impl Traffic {
    pub(super) fn new(setting: &Setting) -> Self {
        let count = setting.connections;
        let mut traffic = Self {
            random: Rng::with_seed(setting.seed),
            gap: 1e9 / setting.rate,
            next: 0.0,
            life: setting.life,
            ends: (0..count).map(|number| number as f64 / count as f64 * ARRIVING).collect(),
        };
        traffic.next = traffic.exponential(traffic.gap);
        traffic
    }

    /// Returns the next request and its connection, which may not have come yet.
    pub(super) fn next_before(&mut self, now: f64) -> Option<(f64, usize)> {
        if self.next >= now {
            return None;
        }
        let at = self.next;
        self.next += self.exponential(self.gap);
        Some((at, self.random.usize(..self.ends.len())))
    }

    /// Returns the connections that have come by now. Each takes the place of the one with its
    /// number.
    pub(super) fn replaced(&mut self, now: f64) -> Vec<usize> {
        let due = (0..self.ends.len()).filter(|it| self.ends[*it] < now).collect::<Vec<_>>();
        for connection in &due {
            let life = self.life.map_or(f64::INFINITY, |mean| self.exponential(mean));
            self.ends[*connection] = now + life;
        }
        due
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        // 1 - u is never 0, for which there is no logarithm.
        -(1.0 - self.random.f64()).ln() * mean
    }
}
