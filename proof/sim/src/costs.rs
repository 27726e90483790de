//! The parameters of the model: how long things take on one machine, as
//! [`calibrate`](crate::calibrate) measures them.

use serde::{Deserialize, Serialize};
use wakeful_load::internals::results::Machine;

/// The calibration that belongs to this crate.
const COMMITTED: &str = include_str!("../calibration.json");

/// The parameters of the model. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// A poll of a spinning loop that finds nothing: the yield, the system call and the reading of
    /// the clock.
    pub poll: f64,
    /// The service of a request that is alone.
    pub service: f64,
    /// The service of each further request that was ready at the same time.
    pub service_batched: f64,
    /// How the extra time of a request that [comes after a gap](Self::cold) decays: the share of it
    /// that the client of the next request still sees. The request after that sees this share of
    /// the share, and so on. 0 to 1.
    pub warming: f64,
    /// The costs that depend on how long nothing had come, by rising [`gap`](Idle::gap). Between
    /// two entries they are interpolated by the logarithm of the gap.
    pub idle: Vec<Idle>,
}

/// The costs of a request that comes when the loop had nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// How long nothing had come.
    pub gap: f64,
    /// The response that the client of a spinning loop sees.
    pub spinning: f64,
    /// The response that the client of a sleeping loop sees.
    pub parking: f64,
    /// All the CPU that a sleeping loop uses for the request.
    pub parking_cpu: f64,
}

/// [`Costs`], and where they were measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Calibration {
    /// The command that printed it.
    pub command: String,
    /// The machine that was measured.
    pub machine: Machine,
    /// What a reader has to know about it. Empty if nothing.
    pub note: String,
    /// The measured costs.
    pub costs: Costs,
}

impl Calibration {
    /// The calibration that belongs to this crate.
    ///
    /// # Panics
    ///
    /// Never: a test reads it.
    #[must_use]
    pub fn committed() -> Self {
        Self::read(COMMITTED).expect("a test reads it")
    }

    /// Reads what `calibrate` has written.
    ///
    /// # Errors
    ///
    /// When the text is not a calibration.
    pub fn read(text: &str) -> Result<Self, String> {
        let calibration: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        calibration.costs.check()?;
        Ok(calibration)
    }

    /// Returns one line that says where the costs come from.
    #[must_use]
    pub fn describe(&self) -> String {
        let Machine { cpu, cpus, kernel, hypervisor, .. } = &self.machine;
        let hypervisor = hypervisor.as_deref().unwrap_or("no hypervisor");
        let note = if self.note.is_empty() { "" } else { " " };
        format!(
            "`{}` on {cpus} CPUs ({cpu}, {hypervisor}, Linux {kernel}).{note}{}",
            self.command, self.note
        )
    }
}

impl Costs {
    fn check(&self) -> Result<(), String> {
        let times = [self.poll, self.service, self.service_batched];
        let idle = self.idle.iter();
        let idle = idle.flat_map(|it| [it.gap, it.spinning, it.parking, it.parking_cpu]);
        if !times.into_iter().chain(idle).all(|time| time.is_finite() && time > 0.0) {
            return Err("every time has to be a positive number of nanoseconds".to_owned());
        }
        if !(0.0..=1.0).contains(&self.warming) {
            return Err("the warming has to be 0 to 1".to_owned());
        }
        if self.idle.is_empty() || !self.idle.is_sorted_by(|one, next| one.gap < next.gap) {
            return Err("the gaps have to rise, and there has to be one".to_owned());
        }
        Ok(())
    }

    /// The part of the response that is neither the wait for the loop nor the service: what the
    /// network and the client take.
    #[must_use]
    pub fn outside(&self) -> f64 {
        // On average, a spinning loop is in the middle of a poll.
        (self.after(0.0).spinning - self.service - self.poll / 2.0).max(0.0)
    }

    /// How much longer a request takes that comes after such a gap, because nothing that it needs
    /// is in a cache. The requests after it wait for that too.
    #[must_use]
    pub fn cold(&self, gap: f64) -> f64 {
        (self.after(gap).spinning - self.after(0.0).spinning).max(0.0)
    }

    /// The time from an arrival until the loop runs, if it has slept for `slept`.
    #[must_use]
    pub fn wake(&self, slept: f64) -> f64 {
        let idle = self.after(slept);
        (idle.parking - idle.spinning + self.poll / 2.0).max(0.0)
    }

    /// The CPU that falling asleep and waking takes.
    #[must_use]
    pub fn wake_cpu(&self, slept: f64) -> f64 {
        (self.after(slept).parking_cpu - self.service - self.cold(slept)).max(0.0)
    }

    /// The same costs, but with a wake that takes this long after any sleep.
    #[must_use]
    pub fn with_wake(mut self, ns: f64) -> Self {
        for idle in &mut self.idle {
            idle.parking = idle.spinning - self.poll / 2.0 + ns;
        }
        self
    }

    /// The longest window that a loop chooses for itself if it is given none: 25 times the length
    /// of a wake, 0.2 to 2 ms, as in `wakeful::idle`.
    #[must_use]
    pub fn max_window(&self) -> u64 {
        // The survey of `wakeful::idle` sleeps for 0.2 ms before each wake.
        (25.0 * self.wake(200_000.0)).clamp(200_000.0, 2_000_000.0) as u64
    }

    fn after(&self, gap: f64) -> Idle {
        // Before the first entry and after the last one the costs stay the same.
        let above = self.idle.partition_point(|idle| idle.gap <= gap);
        let (Some(from), Some(to)) = (self.idle[..above].last(), self.idle.get(above)) else {
            return self.idle[above.saturating_sub(1)];
        };
        let way = (gap / from.gap).ln() / (to.gap / from.gap).ln();
        let between = |a: f64, b: f64| a + way * (b - a);
        Idle {
            gap,
            spinning: between(from.spinning, to.spinning),
            parking: between(from.parking, to.parking),
            parking_cpu: between(from.parking_cpu, to.parking_cpu),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Round figures, close to those of a virtual machine.
    pub(crate) fn costs() -> Costs {
        let idle =
            |gap, spinning, parking, parking_cpu| Idle { gap, spinning, parking, parking_cpu };
        Costs {
            poll: 400.0,
            service: 4_000.0,
            service_batched: 3_000.0,
            warming: 0.0,
            idle: vec![
                idle(100_000.0, 8_200.0, 48_000.0, 14_000.0),
                idle(10_000_000.0, 18_200.0, 68_000.0, 24_000.0),
            ],
        }
    }

    #[test]
    fn the_committed_calibration_is_one() {
        let committed = Calibration::read(COMMITTED).unwrap();
        assert!(committed.costs.max_window() >= 200_000);
        assert!(!committed.machine.cpu.is_empty() && !committed.command.is_empty());
    }

    #[test]
    fn what_depends_on_the_gap_is_interpolated_by_its_logarithm() {
        let costs = costs();
        assert!((costs.outside() - 4_000.0).abs() < 1e-6);
        assert!((costs.cold(1.0)).abs() < 1e-6);
        assert!((costs.cold(1_000_000.0) - 5_000.0).abs() < 1e-6);
        assert!((costs.cold(1e12) - 10_000.0).abs() < 1e-6);
        assert!((costs.wake(1.0) - 40_000.0).abs() < 1e-6);
        assert!((costs.wake_cpu(1_000_000.0) - 10_000.0).abs() < 1e-6);
        assert!((costs.wake(100_000.0) - costs.wake(99_999.0)).abs() < 1.0);
    }

    #[test]
    fn a_wake_of_the_user_s_takes_as_long_after_any_sleep() {
        let costs = costs().with_wake(20_000.0);
        for slept in [1.0, 1e6, 1e12] {
            assert!((costs.wake(slept) - 20_000.0).abs() < 1e-6);
        }
        assert_eq!(costs.max_window(), 500_000);
    }

    #[test]
    fn costs_that_make_no_sense_are_refused() {
        let refused = |change: fn(&mut Costs)| {
            let mut costs = costs();
            change(&mut costs);
            costs.check().is_err()
        };
        assert!(refused(|costs| costs.poll = 0.0));
        assert!(refused(|costs| costs.service = f64::NAN));
        assert!(refused(|costs| costs.warming = 1.1));
        assert!(refused(|costs| costs.idle.clear()));
        assert!(refused(|costs| costs.idle.reverse()));
        assert!(!refused(|_| {}));
    }
}
