//! What `upgrade` claims, and what comes of it.

use wakeful_load::internals::results::Claim;

use super::contenders::WAKEFUL;
use super::found::{Found, Served};
use super::master::Act;
use crate::claims::{self, Bound};

/// What a killed worker may lose: what it had in flight.
const IN_FLIGHT: f64 = 32.0;

pub(super) fn claims(found: &Found) -> Vec<Claim> {
    let mut claims = Vec::new();
    for act in Act::ALL {
        let every = |text: &str, figure, bound| {
            let figures = found.figures(act, WAKEFUL, figure);
            claims::in_every_round(&format!("{}: {text}", act.name()), (WAKEFUL, &figures), bound)
        };
        claims.push(if act == Act::Kill {
            let text = format!(
                "a killed worker loses at most {IN_FLIGHT} requests: one for each connection"
            );
            every(&text, lost_by_act, Bound::AtMost(IN_FLIGHT))
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

fn lost_by_act(served: &Served) -> Option<f64> {
    lost(served).map(|lost| lost / served.acts.len() as f64)
}

fn refused(served: &Served) -> Option<f64> {
    (!served.acts.is_empty()).then_some(served.refused as f64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use wakeful_load::internals::results::Verdict;

    use super::*;
    use crate::interleaved::Measured;

    fn found(act: Act, lost: u64, refused: u64) -> Found {
        let mut found = Found::default();
        let lost = BTreeMap::from([("the server closed the connection".to_owned(), lost)]);
        let acts = vec![Duration::from_millis(30); 20];
        let served = Served { acts, requests: 10_000, lost, refused, ..Served::default() };
        found.add(act, "HTTP/2", Measured::canned(vec![(WAKEFUL, vec![served])]));
        found
    }

    fn verdicts(found: &Found, act: Act) -> Vec<Verdict> {
        let of_act = |claim: &Claim| claim.claim.starts_with(act.name());
        claims(found).into_iter().filter(of_act).map(|claim| claim.verdict).collect()
    }

    #[test]
    fn one_request_or_connect_is_one_too_many() {
        use Verdict::{CannotTell, DoesNotHold, Holds};
        assert_eq!(verdicts(&found(Act::Reload, 0, 0), Act::Reload), [Holds, Holds]);
        assert_eq!(verdicts(&found(Act::Reload, 1, 0), Act::Reload), [DoesNotHold, Holds]);
        assert_eq!(verdicts(&found(Act::Upgrade, 0, 1), Act::Upgrade), [Holds, DoesNotHold]);
        assert_eq!(verdicts(&found(Act::Reload, 0, 0), Act::Upgrade), [CannotTell, CannotTell]);
    }

    #[test]
    fn a_killed_worker_may_lose_what_it_had_in_flight() {
        use Verdict::{DoesNotHold, Holds};
        assert_eq!(verdicts(&found(Act::Kill, 20 * 32, 0), Act::Kill), [Holds, Holds]);
        assert_eq!(verdicts(&found(Act::Kill, 20 * 32 + 1, 0), Act::Kill), [DoesNotHold, Holds]);
    }
}
