//! Looks names up again and again, so that each address that a name has is a backend.
//!
//! Each name has a thread of its own, in each process. So a look-up that takes long delays no loop
//! and no other name, no second one of the same name begins meanwhile, and none is ever refused for
//! want of a thread. `getaddrinfo` says nothing about how long an answer is valid: the names are
//! looked up at an interval, which is varied at random, so that processes that were started
//! together do not ask together.
//!
//! An answer replaces the one before. An error, or an answer without addresses, is none: what was
//! known before stays, because servers are more often there without a name server than the other
//! way round.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use wakeful_http::client::Target;

use super::counts::NameCounts;
use super::members::{Change, Members};
use crate::log;

/// The interval is this share longer or shorter, at most.
const JITTER: f64 = 0.2;

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
        let name = Name { number, target, of, members, counts, is_failing: false };
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
    /// How it was given.
    of: String,
    members: Weak<Members>,
    counts: Arc<NameCounts>,
    /// And that has been told.
    is_failing: bool,
}

impl Name {
    fn run(mut self, interval: Duration, first: &Sender<String>, end: &Receiver<Infallible>) {
        loop {
            let found = self.look_up();
            let Some(members) = self.members.upgrade() else { return };
            self.take(&members, found);
            drop(members);
            // Nobody listens for the others.
            let _ = first.send(self.of.clone());
            match end.recv_timeout(varied(interval)) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(never) => match never {},
            }
        }
    }

    /// The addresses, each once, in an order that does not depend on the answer's.
    fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        self.counts.running.set(1);
        let found = self.target.name().map_or_else(|| Ok(Vec::new()), addresses);
        self.counts.running.set(0);
        self.counts.lookups.add(1);
        found
    }

    fn take(&mut self, members: &Members, found: io::Result<Vec<SocketAddr>>) {
        let name = &self.of;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.counts.failures.add(1);
                if !std::mem::replace(&mut self.is_failing, true) {
                    let known = self.counts.addresses();
                    log::log!(warn, %name, %error, known, "the name cannot be looked up; the addresses that are known stay");
                }
                return;
            }
        };
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
}

fn addresses((name, port): (&str, u16)) -> io::Result<Vec<SocketAddr>> {
    let mut found: Vec<_> = (name, port).to_socket_addrs()?.collect();
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no addresses"));
    }
    Ok(found)
}

/// `interval`, a little longer or shorter.
fn varied(interval: Duration) -> Duration {
    interval.mul_f64(1.0 + JITTER * (2.0 * fastrand::f64() - 1.0))
}

#[cfg(test)]
mod tests {
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
    fn an_address_is_its_only_address() {
        assert_eq!(addresses(("127.0.0.1", 80)).unwrap(), [([127, 0, 0, 1], 80).into()]);
    }
}
