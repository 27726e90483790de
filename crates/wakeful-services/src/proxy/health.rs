//! Passive health checks: the results of requests show how a backend is.
//!
//! A backend that failed several times in a row is left out for a while. Then one request tries it,
//! and it is either back, or out for twice as long. The last backend that is in is never left out,
//! because a backend that may fail is better than none. For the same reason a request that cannot
//! reach any backend that is in also tries those that are out (`Backends::choose_left_out`).
//! Operators are told of changes, and not of each failure. There is no clock and no lock here:
//! callers pass the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The range of times. Each one can be added to any [`Instant`].
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);

/// When a backend is excluded, and for how long. If all other backends are excluded, the remaining
/// one is never excluded. A value out of range becomes the nearest value in the range.
///
/// | setting | default | range |
/// |---|---|---|
/// | [`failures`](Self::failures) | 3 | 1 and more |
/// | [`shortest`](Self::shortest) | 1 s | 1 ms to 30 years |
/// | [`longest`](Self::longest) | 60 s | `shortest` to 30 years |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a setter returns the changed settings"]
pub struct Ejection {
    failures: u32,
    shortest: Duration,
    longest: Duration,
}

impl Ejection {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets after how many failures in a row, on all loops together, a backend is excluded.
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// Sets how long a backend is excluded the first time. If it fails again after that, each
    /// further exclusion is twice as long as the one before.
    pub fn shortest(mut self, time: Duration) -> Self {
        self.shortest = time;
        self
    }

    /// Sets the longest time for which a backend is excluded.
    pub fn longest(mut self, time: Duration) -> Self {
        self.longest = time;
        self
    }
}

impl Default for Ejection {
    fn default() -> Self {
        let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { failures: 3, shortest, longest }
    }
}

/// Identifies a backend. No number is used twice.
pub(super) type Id = u64;

/// The health of all backends. A backend that was removed is not in it, and nothing is reported
/// about it.
#[derive(Debug)]
pub(super) struct Health {
    settings: Ejection,
    backends: BTreeMap<Id, State>,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// The number of failures in a row.
    failures: u32,
    /// How often in a row it was left out.
    times: u32,
    out_until: Option<Instant>,
    told: Told,
    /// When something bad was last reported about it.
    told_at: Option<Instant>,
    /// One request is trying the backend. No other request tries it before this time, in case that
    /// request reports nothing. (Its client may be slow.)
    tried_until: Option<Instant>,
}

/// What was reported to operators about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Told {
    #[default]
    Nothing,
    Fails,
    IsOut,
}

/// Whether a backend may have a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    In,
    /// The backend was left out, and this request should try it.
    Due,
    Out,
}

/// The result of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Stays,
    /// The failure is news: the backend would be left out, but is the last one.
    Fails,
    Ejected {
        for_: Duration,
        news: News,
    },
}

/// Is it a change of a backend's state?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    Yes,
    No,
}

impl Health {
    pub(super) fn new(mut settings: Ejection) -> Self {
        settings.shortest = settings.shortest.clamp(SHORTEST, LONGEST);
        settings.longest = settings.longest.clamp(settings.shortest, LONGEST);
        Self { settings, backends: BTreeMap::new() }
    }

    pub(super) fn join(&mut self, backend: Id) {
        self.backends.insert(backend, State::default());
    }

    pub(super) fn leave(&mut self, backend: Id) {
        self.backends.remove(&backend);
    }

    pub(super) fn is_one_out(&self) -> bool {
        self.backends.values().any(|state| state.out_until.is_some())
    }

    /// Has the backend failed, and not answered since?
    pub(super) fn has_failed(&self, backend: Id) -> bool {
        self.backends.get(&backend).is_some_and(|state| state.failures > 0)
    }

    pub(super) fn standing(&self, backend: Id, now: Instant) -> Standing {
        let Some(state) = self.backends.get(&backend) else { return Standing::Out };
        match state.out_until {
            None => Standing::In,
            Some(until) if until <= now && state.tried_until.is_none_or(|until| until <= now) => {
                Standing::Due
            }
            Some(_) => Standing::Out,
        }
    }

    /// Notes that a request is about to try the backend.
    pub(super) fn begin_trial(&mut self, backend: Id, now: Instant) {
        if let Some(state) = self.backends.get_mut(&backend) {
            state.tried_until = now.checked_add(self.settings.longest);
        }
    }

    /// Notes that the trial ended without a result: its client has gone, or may have caused the
    /// failure. Another request may have the same fate, so the next one waits for its turn.
    pub(super) fn end_trial(&mut self, backend: Id, now: Instant) {
        let Some(state) = self.backends.get_mut(&backend) else { return };
        if state.tried_until.take().is_some() {
            state.out_until = state.out_until.max(now.checked_add(self.settings.shortest));
        }
    }

    /// Notes that the backend answered: all failures are forgotten. It is news if something bad was
    /// reported before.
    pub(super) fn succeeded(&mut self, backend: Id) -> News {
        let Some(state) = self.backends.get_mut(&backend) else { return News::No };
        let told_at = state.told_at;
        let before = std::mem::replace(state, State { told_at, ..State::default() });
        if before.told == Told::Nothing { News::No } else { News::Yes }
    }

    pub(super) fn failed(&mut self, backend: Id, now: Instant) -> Verdict {
        let in_beside = self.backends.iter();
        let in_beside =
            in_beside.filter(|(at, s)| **at != backend && s.out_until.is_none()).count();
        let Some(state) = self.backends.get_mut(&backend) else { return Verdict::Stays };
        state.failures = state.failures.saturating_add(1);
        let was_tried = state.tried_until.take().is_some();
        let is_out = state.out_until.is_some();
        // A request that was in flight when the backend was left out tells nothing new.
        if is_out && !was_tried || !is_out && state.failures < self.settings.failures {
            return Verdict::Stays;
        }
        // A backend that fails now and then is not reported each time.
        let is_late = |at: Instant| now.saturating_duration_since(at) >= self.settings.shortest;
        let may_tell = state.told_at.is_none_or(is_late);
        if in_beside == 0 {
            if state.told != Told::Nothing || !may_tell {
                return Verdict::Stays;
            }
            (state.told, state.told_at) = (Told::Fails, Some(now));
            return Verdict::Fails;
        }
        let doubled = self
            .settings
            .shortest
            .saturating_mul(1_u32.checked_shl(state.times).unwrap_or(u32::MAX));
        let for_ = doubled.clamp(self.settings.shortest, self.settings.longest);
        state.times = state.times.saturating_add(1);
        state.out_until = now.checked_add(for_);
        if state.told == Told::IsOut || !may_tell {
            return Verdict::Ejected { for_, news: News::No };
        }
        (state.told, state.told_at) = (Told::IsOut, Some(now));
        Verdict::Ejected { for_, news: News::Yes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn health(backends: Id) -> (Health, Instant) {
        with(Ejection::default(), backends)
    }

    fn with(settings: Ejection, backends: Id) -> (Health, Instant) {
        let mut health = Health::new(settings);
        (0..backends).for_each(|backend| health.join(backend));
        (health, Instant::now())
    }

    fn eject(health: &mut Health, backend: Id, now: Instant) -> Verdict {
        assert_eq!(health.failed(backend, now), Verdict::Stays);
        assert_eq!(health.failed(backend, now), Verdict::Stays);
        health.failed(backend, now)
    }

    #[test]
    fn failures_in_a_row_eject_and_a_success_between_them_does_not() {
        let (mut health, now) = health(2);
        health.failed(0, now);
        health.failed(0, now);
        health.succeeded(0);
        assert!(!health.has_failed(0) && !health.is_one_out());
        let ejected = Verdict::Ejected { for_: SECOND, news: News::Yes };
        assert_eq!(eject(&mut health, 0, now), ejected);
        assert!(health.has_failed(0) && health.is_one_out());
        assert_eq!(health.standing(0, now), Standing::Out);
        assert_eq!(health.standing(1, now), Standing::In);
    }

    #[test]
    fn a_longest_time_below_the_shortest_is_the_shortest() {
        let settings = Ejection::new().failures(1).longest(Duration::ZERO);
        let (mut health, now) = with(settings, 2);
        let ejected = Verdict::Ejected { for_: SECOND, news: News::Yes };
        assert_eq!(health.failed(0, now), ejected);
    }

    #[test]
    fn times_that_no_clock_can_hold_leave_a_backend_out() {
        let settings = Ejection::new().failures(1).longest(Duration::MAX);
        let (mut health, now) = with(settings, 2);
        health.failed(0, now);
        health.begin_trial(0, now + SECOND);
        assert_eq!(health.standing(0, now + SECOND), Standing::Out, "one request tries it");
        let again = Verdict::Ejected { for_: 2 * SECOND, news: News::No };
        assert_eq!(health.failed(0, now + SECOND), again);
        let (mut health, now) = with(settings.shortest(Duration::MAX), 2);
        assert!(matches!(health.failed(0, now), Verdict::Ejected { .. }));
        assert_eq!(health.standing(0, now), Standing::Out);
        assert!(health.is_one_out());
    }

    #[test]
    fn the_shortest_time_is_not_zero() {
        let times = Ejection::new().shortest(Duration::ZERO).longest(Duration::ZERO);
        let (mut health, now) = with(times.failures(1), 2);
        let millisecond = Duration::from_millis(1);
        let ejected = Verdict::Ejected { for_: millisecond, news: News::Yes };
        assert_eq!(health.failed(0, now), ejected);
        assert_eq!(health.standing(0, now), Standing::Out);
        health.begin_trial(0, now + millisecond);
        assert_eq!(health.standing(0, now + millisecond), Standing::Out, "one request tries it");
    }

    #[test]
    fn one_request_tries_it_when_the_time_is_up() {
        let (mut health, now) = health(2);
        eject(&mut health, 0, now);
        let later = now + SECOND;
        assert_eq!(health.standing(0, later - Duration::from_nanos(1)), Standing::Out);
        assert_eq!(health.standing(0, later), Standing::Due);
        health.begin_trial(0, later);
        assert_eq!(health.standing(0, later), Standing::Out);
        health.succeeded(0);
        assert_eq!(health.standing(0, later), Standing::In);
    }

    #[test]
    fn a_trial_without_a_result_leaves_it_out_for_the_shortest_time() {
        let (mut health, mut now) = health(2);
        eject(&mut health, 0, now);
        for _ in 0..3 {
            now += SECOND;
            health.begin_trial(0, now);
            health.end_trial(0, now);
            assert_eq!(health.standing(0, now), Standing::Out);
        }
        // It has not failed again, so the time is not doubled.
        now += SECOND;
        assert_eq!(health.standing(0, now), Standing::Due);
        health.begin_trial(0, now);
        health.succeeded(0);
        health.end_trial(0, now);
        assert_eq!(health.standing(0, now), Standing::In, "the trial was over before");
    }

    #[test]
    fn a_trial_that_tells_nothing_makes_way_for_another_one() {
        let (mut health, now) = health(2);
        eject(&mut health, 0, now);
        let later = now + SECOND;
        health.begin_trial(0, later);
        assert_eq!(health.standing(0, later + 59 * SECOND), Standing::Out);
        assert_eq!(health.standing(0, later + 60 * SECOND), Standing::Due);
    }

    #[test]
    fn each_trial_that_fails_doubles_the_time_up_to_the_longest() {
        let (mut health, mut now) = health(2);
        eject(&mut health, 0, now);
        let mut times = Vec::new();
        for _ in 0..40 {
            now += Duration::from_secs(60);
            health.begin_trial(0, now);
            let Verdict::Ejected { for_, news: News::No } = health.failed(0, now) else {
                panic!("not ejected, or told again")
            };
            times.push(for_.as_secs());
        }
        assert_eq!(times[..7], [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(times[39], 60);
    }

    #[test]
    fn what_was_under_way_when_it_was_ejected_does_not_count() {
        let (mut health, now) = health(2);
        eject(&mut health, 0, now);
        for _ in 0..10 {
            assert_eq!(health.failed(0, now), Verdict::Stays);
        }
        assert_eq!(health.standing(0, now + SECOND), Standing::Due);
    }

    #[test]
    fn the_last_one_stays() {
        let (mut health, now) = health(2);
        eject(&mut health, 0, now);
        assert_eq!(eject(&mut health, 1, now), Verdict::Fails);
        assert_eq!(health.standing(1, now), Standing::In);
        let (mut alone, now) = self::health(1);
        assert_eq!(eject(&mut alone, 0, now), Verdict::Fails);
        assert_eq!(alone.standing(0, now), Standing::In);
    }

    #[test]
    fn only_changes_are_news() {
        let (mut alone, mut now) = health(1);
        assert_eq!(alone.succeeded(0), News::No);
        assert_eq!(eject(&mut alone, 0, now), Verdict::Fails);
        for _ in 0..10 {
            assert_eq!(alone.failed(0, now), Verdict::Stays);
        }
        assert_eq!((alone.succeeded(0), alone.succeeded(0)), (News::Yes, News::No));
        // This failure comes so soon that neither it nor the recovery is reported.
        assert_eq!(eject(&mut alone, 0, now), Verdict::Stays);
        assert_eq!(alone.succeeded(0), News::No);
        now += SECOND;
        assert_eq!(eject(&mut alone, 0, now), Verdict::Fails);
        let (mut two, now) = health(2);
        eject(&mut two, 0, now);
        two.begin_trial(0, now + SECOND);
        let again = Verdict::Ejected { for_: 2 * SECOND, news: News::No };
        assert_eq!(two.failed(0, now + SECOND), again);
        assert_eq!((two.succeeded(0), two.succeeded(0)), (News::Yes, News::No));
    }

    #[test]
    fn one_that_is_left_out_and_back_all_the_time_is_told_of_once_in_the_shortest_time() {
        let (mut health, now) = health(2);
        let mut told = (0, 0);
        for at in 0..1_000 {
            let now = now + at * SECOND / 100;
            let Verdict::Ejected { news, .. } = eject(&mut health, 0, now) else {
                panic!("not ejected")
            };
            told.0 += u32::from(news == News::Yes);
            told.1 += u32::from(health.succeeded(0) == News::Yes);
        }
        assert_eq!(told, (10, 10), "in ten seconds");
        // If a backend stays out, its next trial reports it.
        eject(&mut health, 0, now + 10 * SECOND);
        health.succeeded(0);
        let now = now + 10 * SECOND + SECOND / 2;
        assert_eq!(eject(&mut health, 0, now), Verdict::Ejected { for_: SECOND, news: News::No });
        let now = now + SECOND;
        health.begin_trial(0, now);
        let out = Verdict::Ejected { for_: 2 * SECOND, news: News::Yes };
        assert_eq!(health.failed(0, now), out);
    }

    #[test]
    fn what_is_known_of_one_that_goes_goes_with_it() {
        let (mut health, now) = health(3);
        eject(&mut health, 0, now);
        health.failed(1, now);
        health.leave(0);
        health.leave(1);
        assert!(!health.is_one_out() && !health.has_failed(1));
        // A request that was in flight tells nothing, and the remaining backend is the last one.
        for gone in [0, 1] {
            assert_eq!(health.failed(gone, now), Verdict::Stays);
            assert_eq!(health.succeeded(gone), News::No);
            health.begin_trial(gone, now);
            health.end_trial(gone, now);
            assert_eq!(health.standing(gone, now), Standing::Out);
        }
        assert_eq!(eject(&mut health, 2, now), Verdict::Fails);
        health.join(3);
        assert_eq!(health.standing(3, now), Standing::In);
        let ejected = Verdict::Ejected { for_: SECOND, news: News::No };
        assert_eq!(health.failed(2, now), ejected);
    }
}
