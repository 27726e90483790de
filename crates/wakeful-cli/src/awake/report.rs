//! The line that reports what a watch has done, or a command that spins.

use std::time::Duration;

use wakeful_awake::Done;

pub(super) fn line(done: &Done) -> String {
    let Done { watched, wakes, held_wakes, held, traffic, gain, why_not, uncounted, .. } = done;
    let mut line = format!(
        "wakeful awake: in {:.0} s, {wakes} wakes, {held_wakes} of them with CPUs held, for {:.1} s",
        watched.as_secs_f64(),
        held.as_secs_f64()
    );
    line += &match traffic.as_secs_f64() {
        0.0 if uncounted.is_some() => String::new(),
        0.0 => "; there was no traffic".to_owned(),
        traffic => format!(" of {traffic:.1} s of traffic"),
    };
    if let Some(gain) = gain {
        let costs = format!("a wake takes {:.1?} here, held {:.1?}", gain.unheld, gain.held);
        line += &if gain.is_worth_it() {
            format!("; {costs}: at most {:.1?} of waiting saved", done.saved_at_most())
        } else {
            format!("; not held, because it gains nothing: {costs}")
        };
    }
    if let Some(why_not) = why_not {
        line += &format!("; not held at the last traffic: {why_not}");
    }
    if let Some(uncounted) = uncounted {
        line += &format!("; at times wakes could not be counted: {uncounted}");
    }
    line
}

/// The line about a command that spun. Only the command knows how much of its CPU time were spins.
pub(super) fn of_spin(ran: Duration, used: Duration) -> String {
    let share = used.as_secs_f64() / ran.as_secs_f64().max(f64::MIN_POSITIVE);
    format!(
        "wakeful awake: in {:.1} s, the command used {:.2} s of CPU time, its spins included: {share:.2} of a CPU",
        ran.as_secs_f64(),
        used.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_spun_is_told_by_its_time() {
        assert_eq!(
            of_spin(Duration::from_millis(20_000), Duration::from_millis(5_120)),
            "wakeful awake: in 20.0 s, the command used 5.12 s of CPU time, its spins included: 0.26 of a CPU"
        );
        assert!(of_spin(Duration::ZERO, Duration::ZERO).ends_with(": 0.00 of a CPU"));
    }
}
