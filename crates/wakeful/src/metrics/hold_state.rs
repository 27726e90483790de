//! Whether a loop keeps CPUs from halting, and why not.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether a loop keeps CPUs from halting now, and if not, why.
///
/// # Threads
/// It is a copy: `Send` and `Sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
#[repr(u8)]
pub enum HoldState {
    /// The loop's policy never holds CPUs; or the policy is adaptive, and the loop has not needed a
    /// keeper yet, or uses none.
    #[default]
    NotAsked,
    /// No event has arrived lately.
    Silent,
    /// CPUs are held while the loop sleeps.
    Held,
    /// The process is measuring whether a hold makes a wake shorter.
    Measuring,
    /// A hold would not make a wake shorter here.
    NoGain,
    /// The machine runs on battery.
    OnBattery,
    /// The hypervisor takes time from the machine's CPUs.
    Stolen,
    /// The process may use neither the device nor a keeper.
    NoPermission,
    /// The machine has more than four CPUs, or this process may use fewer than half of its CPUs,
    /// and [`whole_machine`](crate::idle::Hold::whole_machine) is not set.
    LargeMachine,
    /// The keeper has ended, or there is none. The loop looks for it again.
    NoKeeper,
    /// The keeper has refused or ended a hold. The loop asks again.
    Refused,
    /// The kernel refused the hold, or the thread that would measure its gain. The loop tries again
    /// to start the thread, after 10 s at the earliest.
    Failed,
    /// Events are too rare for a hold to be worth its
    /// [`hold_cost`](crate::idle::Hold::hold_cost).
    TooDear,
}

impl HoldState {
    /// All states.
    const ALL: [Self; 13] = [
        Self::NotAsked,
        Self::Silent,
        Self::Held,
        Self::Measuring,
        Self::NoGain,
        Self::OnBattery,
        Self::Stolen,
        Self::NoPermission,
        Self::LargeMachine,
        Self::NoKeeper,
        Self::Refused,
        Self::Failed,
        Self::TooDear,
    ];

    /// Returns its name, as used in the label of a metric: `not_asked`, `held`, `on_battery` …
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotAsked => "not_asked",
            Self::Silent => "silent",
            Self::Held => "held",
            Self::Measuring => "measuring",
            Self::NoGain => "no_gain",
            Self::OnBattery => "on_battery",
            Self::Stolen => "stolen",
            Self::NoPermission => "no_permission",
            Self::LargeMachine => "large_machine",
            Self::NoKeeper => "no_keeper",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::TooDear => "too_dear",
        }
    }
}

/// A [`HoldState`] with one writer.
#[derive(Debug, Default)]
pub(crate) struct HoldStateNow(AtomicU8);

impl HoldStateNow {
    #[inline]
    pub(crate) fn set(&self, state: HoldState) {
        self.0.store(state as u8, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> HoldState {
        let number = usize::from(self.0.load(Ordering::Relaxed));
        HoldState::ALL.get(number).copied().unwrap_or_default()
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_state_is_read_as_it_was_written_and_has_a_name_of_its_own() {
        let now = HoldStateNow::default();
        assert_eq!(now.get(), HoldState::NotAsked);
        for state in HoldState::ALL {
            now.set(state);
            assert_eq!(now.get(), state);
        }
        let names: BTreeSet<_> = HoldState::ALL.map(HoldState::as_str).into_iter().collect();
        assert_eq!(names.len(), HoldState::ALL.len());
    }
}
