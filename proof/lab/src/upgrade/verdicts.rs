//! The claims of `upgrade`, and their verdicts.
//!
//! A claim is about all clients together. It does not hold if the server failed with some of them,
//! and cannot hold if it was not measured with some.

use wakeful_load::internals::results::{Claim, Verdict};

use super::contenders::OURS;
use super::found::{Found, Served};
use super::master::Act;
use crate::claims::{self, Bound};

/// How requests fail on a connection whose worker was killed.
const CLOSED: [&str; 3] = ["closed the connection", "reset by peer", "Broken pipe"];

/// Returns all claims, each with the act that decides it.
pub(super) fn claims(found: &Found) -> Vec<(Act, Claim)> {
    let of_act = |act: Act| OURS.into_iter().flat_map(move |ours| of(found, act, ours));
    Act::ALL.into_iter().flat_map(|act| of_act(act).map(move |claim| (act, claim))).collect()
}

fn of(found: &Found, act: Act, (server, options): (&str, &[&str])) -> [Claim; 2] {
    let subject = match options {
        [] => act.name().to_owned(),
        options => format!("{} with {}", act.name(), options.join(" ")),
    };
    let (failure, missing) = (found.failure(act, server), found.missing(act, server));
    let every = |text: &str, figure, bound| {
        let figures = found.figures(act, server, figure);
        let claim =
            claims::in_every_round(&format!("{subject}: {text}"), (server, &figures), bound);
        let (verdict, why) = match (&failure, missing) {
            (Some(why), _) => (Verdict::DoesNotHold, why.clone()),
            (None, Some(client)) if claim.verdict == Verdict::Holds => {
                (Verdict::CannotTell, format!("there are no figures with {client}"))
            }
            _ => return claim,
        };
        Claim { measured: format!("{}; {why}", claim.measured), verdict, ..claim }
    };
    let first = if act == Act::Kill {
        let text = "nothing is lost but what was on a killed worker's connections";
        every(text, lost_elsewhere, Bound::AtMost(0.0))
    } else {
        every("no request is lost", lost, Bound::AtMost(0.0))
    };
    [first, every("no connect is refused", refused, Bound::AtMost(0.0))]
}

fn lost(served: &Served) -> f64 {
    served.count_lost() as f64
}

fn lost_elsewhere(served: &Served) -> f64 {
    let is_elsewhere = |cause: &String| !CLOSED.iter().any(|closed| cause.contains(closed));
    let elsewhere = served.lost.iter().filter(|(cause, _)| is_elsewhere(cause));
    elsewhere.map(|(_, count)| *count).sum::<u64>() as f64
}

fn refused(served: &Served) -> f64 {
    served.refused as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::contenders::{EXECUTED, NGINX, SOCKETS, WAKEFUL};
    use super::*;
    use crate::interleaved::Measured;

    fn served(lost: &[(&str, u64)], refused: u64) -> Served {
        let lost = lost.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect();
        let acts = vec![Duration::from_millis(30); 20];
        Served { acts, requests: 10_000, lost, refused, ..Served::default() }
    }

    fn found(act: Act, servers: Vec<(&str, Served)>) -> Found {
        let mut found = Found::default();
        let servers = servers.into_iter().map(|(name, served)| (name, vec![served])).collect();
        found.add(act, "HTTP/2", Measured::canned(servers));
        found
    }

    fn of_wakeful(act: Act, lost: &[(&str, u64)], refused: u64) -> Found {
        found(act, vec![(WAKEFUL, served(lost, refused))])
    }

    const CLOSED: &str = "the server closed the connection";

    /// Returns the verdicts on the claims whose sentence begins with `beginning`.
    fn verdicts(found: &Found, beginning: &str) -> Vec<Verdict> {
        let beginning = format!("{beginning}:");
        let claims = claims(found).into_iter().map(|(_, claim)| claim);
        let claims = claims.filter(|claim| claim.claim.starts_with(&beginning));
        claims.map(|claim| claim.verdict).collect()
    }

    #[test]
    fn one_request_or_connect_is_one_too_many() {
        use Verdict::{CannotTell, DoesNotHold, Holds};
        let of = of_wakeful;
        assert_eq!(verdicts(&of(Act::Reload, &[], 0), "reload"), [Holds, Holds]);
        let one = [(CLOSED, 1)];
        assert_eq!(verdicts(&of(Act::Reload, &one, 0), "reload"), [DoesNotHold, Holds]);
        assert_eq!(verdicts(&of(Act::Upgrade, &[], 1), "upgrade"), [Holds, DoesNotHold]);
        assert_eq!(verdicts(&of(Act::Reload, &[], 0), "upgrade"), [CannotTell, CannotTell]);
    }

    #[test]
    fn a_killed_worker_may_lose_what_was_on_its_connections() {
        use Verdict::{DoesNotHold, Holds};
        let closed = [(CLOSED, 600), ("Connection reset by peer (os error 104)", 40)];
        assert_eq!(verdicts(&of_wakeful(Act::Kill, &closed, 0), "kill"), [Holds, Holds]);
        let late = [(CLOSED, 600), ("no answer in time", 1)];
        assert_eq!(verdicts(&of_wakeful(Act::Kill, &late, 0), "kill"), [DoesNotHold, Holds]);
    }

    #[test]
    fn each_of_wakefuls_servers_has_verdicts_of_its_own() {
        use Verdict::{DoesNotHold, Holds};
        let servers = vec![
            (WAKEFUL, served(&[], 0)),
            (EXECUTED, served(&[(CLOSED, 1)], 0)),
            (SOCKETS, served(&[], 1)),
        ];
        let found = found(Act::Scaling, servers);
        assert_eq!(verdicts(&found, "scaling"), [Holds, Holds]);
        assert_eq!(verdicts(&found, "scaling with --exec"), [DoesNotHold, Holds]);
        assert_eq!(verdicts(&found, "scaling with --accept reuse-port"), [Holds, DoesNotHold]);
    }

    /// Returns wakeful's claims about upgrades if they cost its first clients nothing but `lost`,
    /// and `last` was found with the last clients.
    fn with_last(lost: &[(&str, u64)], last: Measured<Served>) -> [Claim; 2] {
        let mut found = of_wakeful(Act::Upgrade, lost, 0);
        found.add(Act::Upgrade, "the last clients", last);
        of(&found, Act::Upgrade, OURS[0])
    }

    fn last(wakeful: Vec<Served>) -> Measured<Served> {
        Measured::canned(vec![(WAKEFUL, wakeful), (NGINX, vec![served(&[], 0)])])
    }

    #[test]
    fn nothing_holds_if_it_failed_with_some_clients_or_was_not_measured() {
        use Verdict::{CannotTell, DoesNotHold, Holds};
        let verdicts = |claims: [Claim; 2]| claims.map(|claim| claim.verdict);
        let mut failed = last(vec![served(&[], 0)]);
        failed.fail(WAKEFUL, "the server died\nits last words");
        let claims = with_last(&[], failed);
        let why = "0 in 1 round; with the last clients it failed: the server died";
        assert!(claims.iter().all(|claim| claim.measured == why), "{claims:?}");
        assert_eq!(verdicts(claims), [DoesNotHold; 2]);

        let no_act = vec![Served { acts: Vec::new(), ..served(&[], 0) }];
        assert_eq!(verdicts(with_last(&[], last(no_act))), [DoesNotHold; 2]);

        assert_eq!(verdicts(with_last(&[], last(Vec::new()))), [CannotTell; 2]);
        let one = [(CLOSED, 1)];
        assert_eq!(verdicts(with_last(&one, last(Vec::new()))), [DoesNotHold, CannotTell]);

        let mut other_failed = last(vec![served(&[], 0)]);
        other_failed.fail(NGINX, "the server died");
        assert_eq!(verdicts(with_last(&[], other_failed)), [Holds; 2]);
    }
}
