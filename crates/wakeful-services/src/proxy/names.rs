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

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use dns_lookup::{AddrFamily, AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};
use wakeful_http::client::Target;

use super::counts::NameCounts;
use super::members::{Change, Members};
use crate::log;

/// The interval is this share longer or shorter, at most.
const JITTER: f64 = 0.2;

/// A name has no address when this many look-ups in a row have said so.
const BELIEVED: u32 = 3;

/// Looks `names` up until `members` is dropped. Returns when each has been looked up once, or after
/// `patience`.
///
/// # Errors
/// A thread cannot be started.
pub(super) fn follow(
    members: &Arc<Members>,
    names: Vec<(Target, Arc<NameCounts>)>,
    interval: Duration,
    patience: Duration,
) -> io::Result<()> {
    let (first, done) = channel();
    let mut waiting: Vec<_> = names.iter().map(|(target, _)| target.to_string()).collect();
    for (number, (target, counts)) in names.into_iter().enumerate() {
        let (until, end) = channel();
        members.keep(until);
        let (of, members, first) = (target.to_string(), Arc::downgrade(members), first.clone());
        let (is_failing, empty) = Default::default();
        let name = Name { number, target, of, members, counts, is_failing, empty };
        thread::Builder::new()
            .name("wakeful-names".to_owned())
            .spawn(move || name.run(interval, &first, &end))
            .map_err(|error| {
                let text = format!("cannot start a thread to look names up: {error}");
                io::Error::new(error.kind(), text)
            })?;
    }
    drop(first);
    let start = Instant::now();
    while !waiting.is_empty() {
        match done.recv_timeout(patience.saturating_sub(start.elapsed())) {
            Ok(name) => waiting.retain(|one| *one != name),
            Err(_) => break,
        }
    }
    for name in waiting {
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
    fn run(mut self, interval: Duration, first: &Sender<String>, end: &Receiver<Infallible>) {
        loop {
            let found = self.look_up();
            let Some(members) = self.members.upgrade() else { return };
            self.take(&members, found);
            drop(members);
            // After the first look-up nobody may listen any more.
            let _ = first.send(self.of.clone());
            match end.recv_timeout(varied(interval)) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(never) => match never {},
            }
        }
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
            log::log!(warn, %name, %error, known, "the name cannot be looked up; the addresses that are known stay, unless {BELIEVED} look-ups in a row say that it has none");
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
    fn a_name_loses_its_addresses_when_three_look_ups_in_a_row_find_none() {
        let counts = Arc::<Counts>::default();
        let members = Members::new(Vec::new(), 1, Ejection::new(), counts.clone());
        let target: Target = "a:80".parse().unwrap();
        let (of, counts) = (target.to_string(), counts.of_name(target.to_string()));
        let (number, is_failing, empty) = Default::default();
        let weak = Arc::downgrade(&members);
        let mut name = Name { number, target, of, members: weak, counts, is_failing, empty };
        let mut takes = |found: &str| {
            let says = match found {
                "" => Says::Empty,
                "?" => Says::Nothing,
                _ => return name.take(&members, Ok(vec![found.parse().unwrap()])),
            };
            let failure = Failure { error: io::ErrorKind::Other.into(), says };
            name.take(&members, Err(failure));
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
            takes(found);
            assert_eq!(members.count(), backends);
        }
    }

    #[test]
    fn an_address_is_its_only_address() {
        assert_eq!(addresses(("127.0.0.1", 80)).unwrap(), [([127, 0, 0, 1], 80).into()]);
    }
}
