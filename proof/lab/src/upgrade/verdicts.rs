//! What `upgrade` claims, and what comes of it.

use wakeful_load::internals::results::Claim;

use super::contenders::WAKEFUL;
use super::found::{Found, Served};
use super::master::Act;
use crate::claims::{self, Bound};

/// What became of requests on a connection whose worker was killed.
const CLOSED: [&str; 3] = ["closed the connection", "reset by peer", "Broken pipe"];

pub(super) fn claims(found: &Found) -> Vec<Claim> {
    let mut claims = Vec::new();
    for act in Act::ALL {
        let every = |text: &str, figure, bound| {
            let figures = found.figures(act, WAKEFUL, figure);
            claims::in_every_round(&format!("{}: {text}", act.name()), (WAKEFUL, &figures), bound)
        };
        claims.push(if act == Act::Kill {
            let text = "nothing is lost but what was on a killed worker's connections";
            every(text, lost_elsewhere, Bound::AtMost(0.0))
        } else {
            every("no request is lost", lost, Bound::AtMost(0.0))
        });
        claims.push(every("no connect is refused", refused, Bound::AtMost(0.0)));
    }
    claims
}

fn lost(served: &Served) -> Option<f64> {
    (!served.acts.is_empty()).then(|| served.count_lost() as f64)
}

fn lost_elsewhere(served: &Served) -> Option<f64> {
    let is_elsewhere = |cause: &String| !CLOSED.iter().any(|closed| cause.contains(closed));
    let elsewhere = served.lost.iter().filter(|(cause, _)| is_elsewhere(cause));
    (!served.acts.is_empty()).then(|| elsewhere.map(|(_, count)| *count as f64).sum())
}

fn refused(served: &Served) -> Option<f64> {
    (!served.acts.is_empty()).then_some(served.refused as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wakeful_load::internals::results::Verdict;

    use super::*;
    use crate::interleaved::Measured;

    fn found(act: Act, lost: &[(&str, u64)], refused: u64) -> Found {
        let mut found = Found::default();
        let lost = lost.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect();
        let acts = vec![Duration::from_millis(30); 20];
        let served = Served { acts, requests: 10_000, lost, refused, ..Served::default() };
        found.add(act, "HTTP/2", Measured::canned(vec![(WAKEFUL, vec![served])]));
        found
    }

    const CLOSED: &str = "the server closed the connection";

    fn verdicts(found: &Found, act: Act) -> Vec<Verdict> {
        let of_act = |claim: &Claim| claim.claim.starts_with(act.name());
        claims(found).into_iter().filter(of_act).map(|claim| claim.verdict).collect()
    }

    #[test]
    fn one_request_or_connect_is_one_too_many() {
        use Verdict::{CannotTell, DoesNotHold, Holds};
        assert_eq!(verdicts(&found(Act::Reload, &[], 0), Act::Reload), [Holds, Holds]);
        let one = [(CLOSED, 1)];
        assert_eq!(verdicts(&found(Act::Reload, &one, 0), Act::Reload), [DoesNotHold, Holds]);
        assert_eq!(verdicts(&found(Act::Upgrade, &[], 1), Act::Upgrade), [Holds, DoesNotHold]);
        assert_eq!(verdicts(&found(Act::Reload, &[], 0), Act::Upgrade), [CannotTell, CannotTell]);
    }

    #[test]
    fn a_killed_worker_may_lose_what_was_on_its_connections() {
        use Verdict::{DoesNotHold, Holds};
        let closed = [(CLOSED, 600), ("Connection reset by peer (os error 104)", 40)];
        assert_eq!(verdicts(&found(Act::Kill, &closed, 0), Act::Kill), [Holds, Holds]);
        let late = [(CLOSED, 600), ("no answer in time", 1)];
        assert_eq!(verdicts(&found(Act::Kill, &late, 0), Act::Kill), [DoesNotHold, Holds]);
    }
}
