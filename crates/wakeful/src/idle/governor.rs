//! The idle governor decides how long a loop without work should spin before it sleeps. Its
//! estimate of the gaps also tells how long a CPU should be held meanwhile (`hold_governor`).

mod allowance;
mod gaps;
mod hold_governor;

use self::allowance::Allowance;
use self::gaps::{Gaps, Wanted};

pub use self::hold_governor::HoldGovernor;
pub(crate) use self::hold_governor::TICK;

/// How many spins a trial has.
const TRIAL: u32 = 8;
/// This many misses in a row are no coincidence, so the window is reviewed.
const SURPRISE: u32 = 8;
/// Sleeps give points: one that an event ends within the longest window counts as much as two
/// longer ones. [`TRAFFIC`] more points for short sleeps than for long ones mean traffic. If fewer
/// than a third of the sleeps are short, that hardly ever happens.
const SHORT_SLEEP: u32 = 2;
const TRAFFIC: u32 = 6;
/// One spin in this many lasts up to the maximum window.
const LOOK_FURTHER: u32 = 32;
/// After this many idle periods the window is computed again.
const REVIEW: u32 = 32;
/// If as many events as wanted cannot be met, an event is worth this many of the longest windows.
/// Then two in five random events come within the longest window.
const WORTH: f32 = 2.0;
/// If the longest window meets less than this share, spinning does not pay any more. (A trial wants
/// a half.)
const LEAST_MET: f32 = 0.4;
/// After a failed attempt to spin, the loop sleeps without a spin for this long, in nanoseconds:
/// after the first attempt, and at most.
const SHORTEST_PAUSE: u64 = 1_000_000;
const LONGEST_PAUSE: u64 = 200_000_000;
/// The longest pause while another thread needs the CPU. The loop should notice within 0.3 s that
/// the other thread has left, even if something else disturbs the first attempt.
const LONGEST_PAUSE_BESIDE: u64 = 130_000_000;
/// The longest pause is at least this many of the longest windows, because a failed attempt costs
/// up to eight of them.
const PAUSE_WINDOWS: u64 = 100;
/// If the loop has spun for this many of its last pauses without another thread taking the CPU, the
/// next pause is the shortest one again. Spinning for the second number, in nanoseconds, is enough
/// in any case, because a busy thread takes the CPU within a few slices of the scheduler.
const LEFT_ALONE: u64 = 4;
const LEFT_ALONE_AT_MOST: u64 = 30_000_000;

/// The limits of a [`Governor`]. A value out of range becomes the nearest value within it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GovernorLimits {
    /// Which share of the events a spin should meet, 0.05 to 0.9999.
    pub hit_rate: f64,
    /// The longest spin, in nanoseconds, up to [`LONGEST_WINDOW`]; 0 never spins.
    pub max_window: u64,
    /// The share of a CPU that spinning may use, 0 to 1.
    pub max_cpu: f64,
}

/// The longest window, in nanoseconds: 2^24, a little over 16.7 ms.
pub const LONGEST_WINDOW: u64 = gaps::LONGEST;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Spinning,
    Parked,
    Trial { left: u32, hits: u32 },
}

/// Decides how long a loop without work should spin before it sleeps.
/// [`IdlePolicy::Adaptive`](crate::IdlePolicy::Adaptive) uses it.
///
/// It has no clock: the caller passes the time, so a simulator, or another runtime, can use it. All
/// times are nanoseconds on one monotonic clock of the caller's choice. A decision costs a few
/// comparisons. Once in 32 idle periods the governor looks through what it has learnt (114
/// buckets). It never allocates.
///
/// An idle period begins with [`begin`](Self::begin), which says how long to spin, and ends with
/// [`hit`](Self::hit), or with [`miss`](Self::miss) and then [`parked`](Self::parked), or, without
/// a spin, with `parked` alone. The governor is in one of three states:
///
/// * *Spinning*: the window is the shortest that meets the wanted share of events, estimated from
///   the gaps that spins have seen. (It is a Kaplan-Meier estimate, because a spin that ended
///   without an event says only that its gap was longer.) Perhaps no window up to the maximum meets
///   that share, but the maximum meets more than two events in five. Then the governor chooses the
///   window that is worth most, where a met event is worth two of the longest windows. For events
///   at random times this is the maximum; for events in groups it is a window that ends with the
///   group. One spin in 32 lasts up to the maximum, to see gaps that are longer than the window.
/// * *Parked*: the loop sleeps at once. A short gap that ends a sleep proves nothing: a peer on the
///   same CPU may answer in 3 µs only because the loop sleeps. But without short gaps there is no
///   traffic worth a spin. So three short gaps in a row, or more among longer ones, are a hint, and
///   the governor starts a trial. Each failed trial doubles the time to the next one, from 1 ms to
///   0.2 s (or 100 of the longest windows, if that is more). Each 32 idle periods in which spinning
///   pays halve that time.
/// * *On trial*: up to eight spins of the maximum length. If half of them meet an event, spinning
///   pays.
///
/// # Threads
/// A value like any other; each loop has its own.
#[derive(Debug, Clone)]
pub struct Governor {
    limits: GovernorLimits,
    gaps: Gaps,
    allowance: Allowance,
    state: State,
    window: u64,
    misses_in_a_row: u32,
    since_review: u32,
    since_far_look: u32,
    /// The points of the last sleeps, up to [`TRAFFIC`], which means that there may be traffic.
    hint: u32,
    /// While the loop parks: it does not try again before this moment.
    try_again_at: u64,
    /// How long the next pause is: if spinning does not pay, and if another thread needs the CPU.
    pause: u64,
    pause_beside: u64,
    /// When the present spin or park began.
    since: u64,
}

impl Governor {
    /// Returns a governor that has seen no events. It begins with a trial.
    #[must_use]
    pub fn new(limits: GovernorLimits) -> Self {
        let limits = GovernorLimits {
            hit_rate: within(limits.hit_rate, 0.05, 0.9999),
            max_window: limits.max_window.min(LONGEST_WINDOW),
            max_cpu: within(limits.max_cpu, 0.0, 1.0),
        };
        Self {
            limits,
            gaps: Gaps::new(),
            allowance: Allowance::new(limits.max_cpu),
            state: State::Trial { left: TRIAL, hits: 0 },
            window: limits.max_window,
            misses_in_a_row: 0,
            since_review: 0,
            since_far_look: 0,
            hint: 0,
            try_again_at: 0,
            pause: SHORTEST_PAUSE,
            pause_beside: SHORTEST_PAUSE,
            since: 0,
        }
    }

    /// Returns the limits of this governor.
    #[must_use]
    pub fn limits(&self) -> GovernorLimits {
        self.limits
    }

    /// Sets the longest window from now on, once it was measured.
    pub fn set_max_window(&mut self, ns: u64) {
        self.limits.max_window = ns.min(LONGEST_WINDOW);
        self.window = self.window.min(self.limits.max_window);
    }

    /// Sets the share of a CPU from now on, once a quota was found.
    pub fn set_max_cpu(&mut self, now: u64, share: f64) {
        self.limits.max_cpu = within(share, 0.0, 1.0);
        self.allowance.set_share(now, self.limits.max_cpu);
    }

    /// Begins an idle period, because nothing is runnable. Returns how long the loop should spin
    /// before it sleeps. 0 means that it should not spin.
    #[inline]
    #[must_use = "it is how long to spin"]
    pub fn begin(&mut self, now: u64) -> u64 {
        let wanted = match self.state {
            State::Spinning if self.since_far_look < LOOK_FURTHER => {
                self.since_far_look += 1;
                self.window
            }
            State::Spinning => {
                self.since_far_look = 0;
                self.limits.max_window
            }
            State::Trial { .. } => self.limits.max_window,
            State::Parked if self.hint >= TRAFFIC && now >= self.try_again_at => {
                self.enter(State::Trial { left: TRIAL, hits: 0 }, now);
                self.limits.max_window
            }
            State::Parked => return 0,
        };
        self.allowance.grant(now, wanted)
    }

    /// Notes that the spin met an event, `spun` after it began.
    #[inline]
    pub fn hit(&mut self, now: u64, spun: u64) {
        self.allowance.spend(spun);
        self.gaps.closed_after(spun);
        self.misses_in_a_row = 0;
        self.learn(now, true);
    }

    /// Notes that the spin ended after `spun`, and no event had come.
    pub fn miss(&mut self, now: u64, spun: u64) {
        self.allowance.spend(spun);
        self.gaps.open_after(spun);
        self.misses_in_a_row += 1;
        self.learn(now, false);
    }

    /// Notes that the spin ended after `spun` for a reason that was known before, such as a timer.
    /// This says only that no event came before that.
    pub fn cut_short(&mut self, now: u64, spun: u64) {
        self.allowance.spend(spun);
        self.gaps.open_after(spun);
        self.learn(now, false);
    }

    /// Notes that an event ended a sleep, `idle` after the idle period began. (A sleep that a timer
    /// ended says nothing, so the caller does not report it.)
    #[inline]
    pub fn parked(&mut self, idle: u64) {
        self.hint = if idle < self.limits.max_window {
            (self.hint + SHORT_SLEEP).min(TRAFFIC)
        } else {
            self.hint.saturating_sub(1)
        };
    }

    /// Returns whether [`begin`](Self::begin) would spin, as far as that is known without the time.
    #[inline]
    #[must_use]
    pub fn expects_soon(&self) -> bool {
        self.state != State::Parked
    }

    /// Notes that another thread needed this CPU, `spun` after the spin began. For some time the
    /// loop then sleeps at once. Each time that this happens again, that time is longer, up to 0.13
    /// s.
    pub fn disturbed(&mut self, now: u64, spun: u64) {
        self.allowance.spend(spun);
        if self.is_left_alone(now) {
            self.pause_beside = SHORTEST_PAUSE;
        }
        self.sleep_for(now, self.pause_beside);
        self.pause_beside = (self.pause_beside * 2).min(LONGEST_PAUSE_BESIDE);
    }

    /// Returns whether the loop has been spinning for so long that the thread that disturbed it
    /// last must be gone.
    #[must_use]
    pub fn is_left_alone(&self, now: u64) -> bool {
        let enough = (LEFT_ALONE * self.pause_beside).min(LEFT_ALONE_AT_MOST);
        self.state == State::Spinning && now.saturating_sub(self.since) > enough
    }

    #[inline]
    fn learn(&mut self, now: u64, hit: bool) {
        match &mut self.state {
            State::Spinning => {
                self.since_review += 1;
                if self.misses_in_a_row >= SURPRISE {
                    self.gaps.forget_half();
                    self.enter(State::Trial { left: TRIAL, hits: 0 }, now);
                } else if self.since_review >= REVIEW {
                    if self.review() {
                        self.pause = (self.pause / 2).max(SHORTEST_PAUSE);
                    } else {
                        self.give_up(now);
                    }
                }
            }
            State::Trial { left, hits } => {
                *left -= 1;
                *hits += u32::from(hit);
                if *hits >= TRIAL / 2 {
                    self.enter(State::Spinning, now);
                    if !self.review() {
                        // The estimate is older than the sleep, and the trial is newer. The next
                        // review comes when there are as many new samples.
                        self.gaps.fade_to(TRIAL as f32);
                        self.window = self.limits.max_window;
                        self.since_review = REVIEW - TRIAL;
                    }
                } else if *left + *hits < TRIAL / 2 {
                    self.give_up(now);
                }
            }
            State::Parked => {}
        }
    }

    /// Computes the window again. Returns whether spinning pays.
    fn review(&mut self) -> bool {
        self.since_review = 0;
        let most = self.limits.max_window;
        let (share, worth) = (self.limits.hit_rate as f32, WORTH * most as f32);
        let found = self.gaps.windows(Wanted { share, least: 0, most, worth });
        self.window = found.meets.unwrap_or(found.best);
        found.meets.is_some() || (found.best > 0 && found.met >= LEAST_MET)
    }

    /// Parks for a while, because spinning does not pay.
    fn give_up(&mut self, now: u64) {
        self.sleep_for(now, self.pause);
        let longest = LONGEST_PAUSE.max(PAUSE_WINDOWS * self.limits.max_window);
        self.pause = (self.pause * 2).min(longest);
    }

    fn sleep_for(&mut self, now: u64, pause: u64) {
        self.try_again_at = now + pause;
        self.hint = 0;
        self.enter(State::Parked, now);
    }

    fn enter(&mut self, state: State, now: u64) {
        self.misses_in_a_row = 0;
        self.since = now;
        self.state = state;
    }
}

/// The nearest number in the range. NaN becomes the lowest.
fn within(number: f64, lowest: f64, highest: f64) -> f64 {
    if number.is_nan() { lowest } else { number.clamp(lowest, highest) }
}

#[cfg(test)]
mod tests;
