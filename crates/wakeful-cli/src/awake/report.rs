//! What a watch has done, in a line.

use wakeful_awake::Done;

pub(super) fn line(done: &Done) -> String {
    let Done { watched, wakes, held_wakes, held, gain, why_not, .. } = done;
    let mut line = format!(
        "wakeful awake: in {:.0} s, {wakes} wakes, {held_wakes} of them with CPUs held, for {:.1} s",
        watched.as_secs_f64(),
        held.as_secs_f64()
    );
    if let Some(gain) = gain {
        let costs = format!("a wake takes {:.1?} here, held {:.1?}", gain.unheld, gain.held);
        line += &if gain.is_worth_it() {
            format!("; {costs}: at most {:.1?} of waiting saved", done.saved_at_most())
        } else {
            format!("; not held, since nothing is gained: {costs}")
        };
    }
    if let Some(why_not) = why_not {
        line += &format!("; not held at the last traffic: {why_not}");
    }
    line
}
