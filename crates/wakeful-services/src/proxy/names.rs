//! Looks names up at intervals, so that each address of a name is a backend.
//!
//! Each name has its own thread in each process. So a long look-up delays no loop and no other
//! name, there is never a second look-up of the same name, and no look-up fails because no thread
//! can be started. `getaddrinfo` does not tell how long an answer is valid, so the names are looked
//! up at an interval. The interval varies at random, so that processes that were started together
//! do not ask at the same time.
//!
//! An answer replaces the previous one. If there is no answer, because a name server is down or
//! reports that it cannot answer, the known addresses stay, because the backends are probably still
//! there. An answer that there is no such name, or that it has no addresses (a headless Service of
//! Kubernetes without ready pods), may be a mistake of a name server that has just started. Only
//! three such answers in a row are believed.
//!
//! A name without known addresses is looked up sooner: see [`pause`].

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dns_lookup::{AddrFamily, AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};
use wakeful::process::start_thread;
use wakeful_http::client::Target;

use super::counts::NameCounts;
use super::members::{Change, Members};
use crate::log;

/// The interval is this share longer or shorter, at most.
const JITTER: f64 = 0.2;

/// A name has no address when this many look-ups in a row have said so.
const BELIEVED: u32 = 3;

/// A name without known addresses is looked up again after this time at the earliest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// Looks `names` up until `members` is dropped. Returns when each has an address, or after
/// `patience`. A worker that replaces another one is not ready before that. So the other one, which
/// may know addresses, serves while the look-ups of the new one fail.
///
/// # Errors
/// A thread cannot be started.
pub(super) fn follow(
    members: &Arc<Members>,
    names: Vec<(Target, Arc<NameCounts>)>,
    interval: Duration,
    patience: Duration,
) -> io::Result<()> {
    let start = Instant::now();
    let (has_one, found) = channel();
    let mut waiting: Vec<_> = names.iter().map(|(_, counts)| counts.clone()).enumerate().collect();
    for (number, (target, counts)) in names.into_iter().enumerate() {
        let (until, end) = channel();
        members.keep(until);
        let (of, members, has_one) = (target.to_string(), Arc::downgrade(members), has_one.clone());
        let (is_failing, empty) = Default::default();
        let has_none_since = Some(start);
        let name = Name { number, target, of, members, counts, is_failing, empty, has_none_since };
        start_thread("wakeful-names", move || name.run(interval, has_one, &end))?;
    }
    drop(has_one);
    while !waiting.is_empty() {
        match found.recv_timeout(patience.saturating_sub(start.elapsed())) {
            Ok(number) => waiting.retain(|(one, _)| *one != number),
            Err(_) => break,
        }
    }
    // Each look-up that has failed was logged by its thread.
    for (_, counts) in waiting.iter().filter(|(_, counts)| counts.lookups() == 0) {
        let name = counts.name();
        log::log!(warn, %name, "the name is still being looked up after {patience:?}; it has no backends until then");
    }
    Ok(())
}

struct Name {
    number: usize,
    target: Target,
    /// The name as it was given.
    of: String,
    members: Weak<Members>,
    counts: Arc<NameCounts>,
    /// Whether look-ups fail, and that was logged.
    is_failing: bool,
    /// How many look-ups in a row have said that it has no address.
    empty: u32,
    /// Since when no address of it is known.
    has_none_since: Option<Instant>,
}

/// Why there are no addresses.
#[derive(Debug)]
struct Failure {
    error: io::Error,
    says: Says,
}

#[derive(Debug, PartialEq, Eq)]
enum Says {
    /// The answer is that the name has no address.
    Empty,
    /// There is no answer: no name server has answered, or this process lacks a resource.
    Nothing,
}

impl Name {
    /// Sends its number to `has_one` when it has its first address.
    fn run(mut self, interval: Duration, has_one: Sender<usize>, end: &Receiver<Infallible>) {
        let mut has_one = Some(has_one);
        loop {
            let found = self.look_up();
            let Some(members) = self.members.upgrade() else { return };
            self.take(&members, found);
            drop(members);
            let has_none_for = self.has_none_for();
            // After the start nobody listens.
            if let Some(has_one) = has_one.take_if(|_| has_none_for.is_none()) {
                let _ = has_one.send(self.number);
            }
            match end.recv_timeout(varied(pause(has_none_for, interval))) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(never) => match never {},
            }
        }
    }

    /// For how long no address has been known.
    fn has_none_for(&mut self) -> Option<Duration> {
        if self.counts.addresses() > 0 {
            self.has_none_since = None;
            return None;
        }
        Some(self.has_none_since.get_or_insert_with(Instant::now).elapsed())
    }

    /// The addresses, without duplicates, in an order that does not depend on the answer's.
    fn look_up(&self) -> Result<Vec<SocketAddr>, Failure> {
        self.counts.running.set(1);
        let found = self.target.name().map_or_else(|| Ok(Vec::new()), addresses);
        self.counts.running.set(0);
        self.counts.lookups.add(1);
        found
    }

    fn take(&mut self, members: &Members, found: Result<Vec<SocketAddr>, Failure>) {
        match found {
            Ok(found) => self.succeeded(members, &found),
            Err(failure) => self.failed(members, &failure),
        }
    }

    fn succeeded(&mut self, members: &Members, found: &[SocketAddr]) {
        let name = &self.of;
        self.empty = 0;
        self.counts.addresses.set(found.len());
        if std::mem::replace(&mut self.is_failing, false) {
            log::log!(info, %name, "the name can be looked up again");
        }
        let targets = found.iter().map(|addr| self.target.at(*addr)).collect();
        let change = members.found(self.number, targets);
        if change != Change::default() {
            let Change { came, went } = change;
            log::log!(info, %name, ?came, ?went, addresses = found.len(), "the addresses of the name have changed");
        }
    }

    fn failed(&mut self, members: &Members, failure: &Failure) {
        let (name, error, known) = (&self.of, &failure.error, self.counts.addresses());
        self.counts.failures.add(1);
        self.empty = match failure.says {
            Says::Empty => self.empty.saturating_add(1),
            Says::Nothing => 0,
        };
        if !std::mem::replace(&mut self.is_failing, true) {
            if known == 0 {
                log::log!(warn, %name, %error, known, "the name cannot be looked up, and no address is known: it has no backends until a look-up finds one");
            } else {
                log::log!(warn, %name, %error, known, "the name cannot be looked up; the addresses that are known stay, unless {BELIEVED} look-ups in a row say that it has none");
            }
        }
        if self.empty != BELIEVED {
            return;
        }
        self.counts.addresses.set(0);
        let change = members.found(self.number, Vec::new());
        if change != Change::default() {
            let went = change.went;
            log::log!(warn, %name, %error, ?went, "{BELIEVED} look-ups in a row say that the name has no address: it has no backends until it has one");
        }
    }
}

fn addresses((name, port): (&str, u16)) -> Result<Vec<SocketAddr>, Failure> {
    let found = of_family(name, port, ANY_FAMILY);
    if found.as_ref().is_err_and(|failure| failure.says == Says::Empty) {
        // glibc also reports this if a name server has failed for one address family, and has
        // nothing for the other.
        for family in [AddrFamily::Inet, AddrFamily::Inet6] {
            match of_family(name, port, family.into()) {
                Err(Failure { says: Says::Empty, .. }) => {}
                otherwise => return otherwise,
            }
        }
    }
    found
}

/// `AF_UNSPEC`.
const ANY_FAMILY: i32 = 0;

fn of_family(name: &str, port: u16, family: i32) -> Result<Vec<SocketAddr>, Failure> {
    let socktype = SockType::Stream.into();
    let hints = AddrInfoHints { address: family, socktype, ..AddrInfoHints::default() };
    let found = getaddrinfo(Some(name), None, Some(hints))?;
    let found: io::Result<Vec<_>> = found.map(|one| Ok(one?.sockaddr)).collect();
    let mut found = found.map_err(|error| Failure { error, says: Says::Nothing })?;
    found.iter_mut().for_each(|addr| addr.set_port(port));
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        let error = io::Error::new(io::ErrorKind::NotFound, "the name has no addresses");
        return Err(Failure { error, says: Says::Empty });
    }
    Ok(found)
}

/// glibc has `NoData` for a name without addresses, musl and other resolvers `NoName` for that as
/// well. If all name servers fail, are silent or cannot be reached, it is `Again`.
impl From<LookupError> for Failure {
    fn from(error: LookupError) -> Self {
        let says = match error.kind() {
            LookupErrorKind::NoName | LookupErrorKind::NoData => Says::Empty,
            _ => Says::Nothing,
        };
        Self { error: error.into(), says }
    }
}

/// The time until the next look-up of a name that has had no address for `has_none_for`.
///
/// Without an address each request for the name is lost, and the next look-up may find one. So the
/// pause is half of the time that the name has been without one: however long that was, a half more
/// is lost at most. A name that stays without addresses is soon looked up at the interval.
fn pause(has_none_for: Option<Duration>, interval: Duration) -> Duration {
    has_none_for.map_or(interval, |time| (time / 2).max(SHORTEST_PAUSE).min(interval))
}

/// `interval`, a little longer or shorter.
fn varied(interval: Duration) -> Duration {
    interval.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0))
}

#[cfg(test)]
mod tests {
    use super::super::counts::Counts;
    use super::super::health::Ejection;
    use super::*;

    #[test]
    fn each_interval_is_another_one_within_a_fifth() {
        let interval = Duration::from_secs(5);
        let all: Vec<_> = (0..1000).map(|_| varied(interval)).collect();
        assert!(all.iter().all(|one| (4.0..=6.0).contains(&one.as_secs_f64())));
        assert!(all.iter().any(|one| *one < interval) && all.iter().any(|one| *one > interval));
        assert_ne!(all[0], all[1]);
    }

    #[test]
    fn a_name_without_addresses_is_looked_up_after_pauses_that_grow_to_the_interval() {
        let interval = Duration::from_secs(5);
        assert_eq!(pause(None, interval), interval, "it has one");
        let (mut time, mut lookups) = (Duration::ZERO, 0);
        let mut last = SHORTEST_PAUSE;
        while last < interval {
            let next = pause(Some(time), interval);
            assert!(next >= last && next <= (time / 2).max(SHORTEST_PAUSE) && next <= interval);
            (time, last, lookups) = (time + next, next, lookups + 1);
        }
        assert!(lookups < 20, "{lookups} look-ups in {time:?}");
        assert_eq!(pause(Some(Duration::MAX), interval), interval);
        // An interval that is shorter than all pauses.
        let interval = Duration::from_millis(1);
        assert_eq!(pause(Some(Duration::ZERO), interval), interval);
    }

    #[test]
    fn a_name_loses_its_addresses_when_three_look_ups_in_a_row_find_none() {
        let counts = Arc::<Counts>::default();
        let members = Members::new(Vec::new(), 1, Ejection::new(), counts.clone());
        let target: Target = "a:80".parse().unwrap();
        let (of, counts) = (target.to_string(), counts.of_name(target.to_string()));
        let (number, is_failing, empty, has_none_since) = Default::default();
        let weak = Arc::downgrade(&members);
        let mut name =
            Name { number, target, of, members: weak, counts, is_failing, empty, has_none_since };
        let mut takes = |found: &str| {
            let failure = |says| Failure { error: io::ErrorKind::Other.into(), says };
            let found = match found {
                "" => Err(failure(Says::Empty)),
                "?" => Err(failure(Says::Nothing)),
                _ => Ok(vec![found.parse().unwrap()]),
            };
            name.take(&members, found);
            name.has_none_for().is_some()
        };
        for (found, backends) in [
            ("", 0),
            ("1.1.1.1:1", 1),
            ("", 1),
            ("", 1),
            // These answers are failures, so the empty ones before were not in a row.
            ("?", 1),
            ("", 1),
            ("", 1),
            ("1.1.1.1:1", 1),
            ("", 1),
            ("", 1),
            ("", 0),
            ("", 0),
            ("?", 0),
            ("2.2.2.2:2", 1),
        ] {
            let has_none = takes(found);
            assert_eq!((members.count(), has_none), (backends, backends == 0));
        }
    }

    #[test]
    fn an_address_is_its_only_address() {
        assert_eq!(addresses(("127.0.0.1", 80)).unwrap(), [([127, 0, 0, 1], 80).into()]);
    }
}
