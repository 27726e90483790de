//! Verdicts on whether it is right to concentrate.

use wakeful::internals::GovernorLimits;
use wakeful_load::Rate;
use wakeful_load::internals::format::{number, percent, time};
use wakeful_load::internals::results::{Claim, Verdict};

use super::{Placing, Seen, Setting, simulate};
use crate::costs::Costs;

/// A load is light if one loop can do it in this share of its time.
pub const LIGHT: f64 = 0.1;
/// With fewer requests per second no loop spins, even if it gets all of them.
pub const LEAST: f64 = 2_000.0;
/// At light load the median may be at most this many times that of one spinning loop.
pub const MEDIAN: f64 = 1.3;
/// At light load two or more loops may use at most this share of the CPU of as many spinning loops.
pub const CPU: f64 = 0.6;
/// The busiest loop may be at most this many times as busy as an active loop on average.
pub const UNEVEN: f64 = 1.25;

/// Returns the verdicts on the groups that concentrate, for each rate.
#[must_use]
pub fn claims(seen: &[Seen], limits: GovernorLimits, costs: &Costs) -> Vec<Claim> {
    let mut claims = Vec::new();
    for seen in seen.chunk_by(|one, next| one.setting.rate == next.setting.rate) {
        let concentrate = |it: &&Seen| it.setting.placing == Placing::Concentrate;
        let groups: Vec<&Seen> = seen.iter().filter(concentrate).collect();
        if let Some(first) = groups.first().filter(|it| is_light(&it.setting, costs)) {
            let one = Setting { placing: Placing::Burn, loops: 1, ..first.setting };
            claims.extend(awake(&groups, &simulate(one, limits, costs)));
        }
        claims.extend(even(&groups));
        claims.extend(settled(&groups));
    }
    claims
}

fn is_light(setting: &Setting, costs: &Costs) -> bool {
    setting.rate >= LEAST && setting.rate * (costs.service + setting.work) <= LIGHT * 1e9
}

fn awake(groups: &[&Seen], one: &Seen) -> Option<Claim> {
    let spinning = one.total.response(0.5);
    let slower = |it: &Seen| it.total.response(0.5) / spinning;
    let share = |it: &Seen| it.total.cpu() / it.setting.loops as f64;
    let slowest = worst(groups.iter().copied(), slower)?;
    let mut measured =
        format!("at most {} times {}{}", number(slower(slowest)), time(spinning), with(slowest));
    let mut holds = slower(slowest) <= MEDIAN;
    if let Some(dearest) = worst(groups.iter().copied().filter(|it| it.setting.loops > 1), share) {
        measured = format!("{measured}; {} of the CPU{}", number(share(dearest)), with(dearest));
        holds &= share(dearest) <= CPU;
    }
    let claim = format!(
        "light load: the median is at most {MEDIAN} times one spinning loop's, at up to {CPU} of the CPU of as many"
    );
    Some(judged(groups, &claim, measured, holds))
}

fn even(groups: &[&Seen]) -> Option<Claim> {
    let ratio = |it: &Seen| it.busiest / it.mean_busy();
    let heavy = groups.iter().copied().filter(|it| it.active >= 2.0 && !it.is_overloaded());
    let worst = worst(heavy, ratio)?;
    let measured = format!(
        "at most {} times{}: {} of {}",
        number(ratio(worst)),
        with(worst),
        percent(worst.busiest),
        percent(worst.mean_busy())
    );
    let claim = format!("the busiest loop has at most {UNEVEN} times the mean of the active ones");
    Some(judged(groups, &claim, measured, ratio(worst) <= UNEVEN))
}

fn settled(groups: &[&Seen]) -> Option<Claim> {
    // If connections come and go, a few have to move.
    let steady = groups.iter().copied().filter(|it| it.setting.life.is_none());
    let last = worst(steady, |it| it.last_move.unwrap_or(0) as f64)?;
    let measured = match last.last_move {
        None => "nothing ever moves".to_owned(),
        Some(at) => format!(
            "{} moves of {} loops, the last at {}; up to {} were active, and {} then",
            last.moves,
            last.setting.loops,
            time(at as f64),
            last.most_active,
            number(last.active)
        ),
    };
    Some(judged(groups, "nothing moves after 5 s", measured, last.late_moves == 0))
}

/// Returns the group with the highest figure.
fn worst<'a>(
    groups: impl Iterator<Item = &'a Seen>,
    figure: impl Fn(&Seen) -> f64,
) -> Option<&'a Seen> {
    groups.max_by(|one, other| figure(one).total_cmp(&figure(other)))
}

fn with(it: &Seen) -> String {
    format!(" with {} loops", it.setting.loops)
}

fn judged(groups: &[&Seen], claim: &str, measured: String, holds: bool) -> Claim {
    let rate = groups.first().map_or(0.0, |it| it.setting.rate);
    Claim {
        claim: format!("{}: {claim}", Rate(rate)),
        measured,
        verdict: if holds { Verdict::Holds } else { Verdict::DoesNotHold },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Moving;
    use crate::outcome::Outcome;
    use crate::policy::{HELD_WAKE, Hold, HoldLength, SILENCE};
    use wakeful::group::Targets;

    /// Four active loops of eight. They work for a fifth of their time.
    fn seen(rate: f64) -> Seen {
        let setting = Setting {
            placing: Placing::Concentrate,
            loops: 8,
            rate,
            work: 0.0,
            connections: 64,
            life: None,
            seconds: 6,
            seed: 1,
            targets: Targets::default(),
            moving: Moving::default(),
            hold: Hold { length: HoldLength::Silence(SILENCE), wake: HELD_WAKE },
        };
        let responses = vec![10_000; 1_000];
        let total = Outcome { responses, elapsed: 1e9, work: 0.8e9, ..Outcome::default() };
        Seen {
            setting,
            total,
            unanswered: 0,
            active: 4.0,
            most_active: 4,
            busiest: 0.25,
            moves: 7,
            late_moves: 0,
            last_move: Some(3_000_000_000),
        }
    }

    fn verdicts(seen: &[Seen]) -> Vec<(String, Verdict)> {
        let costs = crate::costs::tests::costs();
        let limits = GovernorLimits { hit_rate: 0.999, max_window: 1_000_000, max_cpu: 1.0 };
        let claims = claims(seen, limits, &costs).into_iter();
        claims.map(|claim| (claim.claim, claim.verdict)).collect()
    }

    fn holds(seen: Seen, of: &str) -> Option<bool> {
        let verdicts = verdicts(&[seen]);
        let found = verdicts.iter().find(|(claim, _)| claim.contains(of));
        found.map(|(_, verdict)| *verdict == Verdict::Holds)
    }

    #[test]
    fn the_busiest_loop_is_compared_with_the_active_ones() {
        let (even, uneven) = (seen(1e5), Seen { busiest: 0.26, ..seen(1e5) });
        assert_eq!(holds(even.clone(), "the busiest"), Some(true));
        assert_eq!(holds(uneven, "the busiest"), Some(false));
        // A single loop cannot be uneven, and a group that cannot keep up is busy everywhere.
        assert_eq!(holds(Seen { active: 1.0, ..even.clone() }, "the busiest"), None);
        assert_eq!(holds(Seen { unanswered: 500, ..even }, "the busiest"), None);
    }

    #[test]
    fn a_late_move_is_one_too_many() {
        let late = Seen { late_moves: 1, last_move: Some(5_500_000_000), ..seen(1e5) };
        assert_eq!(holds(seen(1e5), "nothing moves"), Some(true));
        assert_eq!(holds(late.clone(), "nothing moves"), Some(false));
        let short = Setting { life: Some(1e9), ..late.setting };
        assert_eq!(holds(Seen { setting: short, ..late }, "nothing moves"), None);
    }

    #[test]
    fn light_load_is_to_be_fast_and_cheap() {
        let with = |p50, cpu| {
            let total = Outcome { responses: vec![p50; 1_000], work: cpu * 1e9, ..seen(1e4).total };
            holds(Seen { total, ..seen(1e4) }, "light load")
        };
        assert_eq!(with(10_000, 4.7), Some(true));
        assert_eq!(with(20_000, 4.7), Some(false));
        assert_eq!(with(10_000, 4.9), Some(false));
        assert_eq!(holds(seen(1e5), "light load"), None);
        assert_eq!(holds(seen(1e3), "light load"), None);
    }

    #[test]
    fn each_rate_has_its_verdicts_and_only_on_groups_that_concentrate() {
        let spread = Setting { placing: Placing::Spread, ..seen(1e6).setting };
        let groups = [seen(1e5), seen(1e5), Seen { setting: spread, ..seen(1e6) }];
        assert_eq!(verdicts(&groups).len(), 2);
        assert!(verdicts(&groups).iter().all(|(claim, _)| claim.starts_with("100k: ")));
    }
}
