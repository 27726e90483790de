//! The list of backends, for all loops.
//!
//! Backends with a fixed address stay. The addresses of names change: [`Members::found`] compares a
//! name's present addresses with the previous ones, and tells the loops, which then take the new
//! list. No request uses this list directly. The results of requests at a backend
//! ([`health`](super::health)) are kept as long as it is in the list. An address that comes back is
//! a new backend.
//!
//! Locks are taken in this order: the list, the health, the counts.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use async_channel::{Receiver, Sender, bounded};
use wakeful_http::client::Target;

use super::counts::{BackendCounts, Counts};
use super::health::{Ejection, Health, Id};

/// A backend, from when it is added until it is removed.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) id: Id,
    pub(super) target: Target,
    pub(super) counts: Arc<BackendCounts>,
    /// Whether it has failed and not answered since.
    pub(super) has_failed: AtomicBool,
}

/// The state that all loops share.
#[derive(Debug)]
pub(super) struct Members {
    /// Whether a backend is left out.
    is_one_out: AtomicBool,
    health: Mutex<Health>,
    list: Mutex<List>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct List {
    next: Id,
    given: Vec<Arc<Backend>>,
    /// The addresses of each name.
    found: Vec<Vec<Target>>,
    of_names: Vec<Arc<Backend>>,
    loops: Vec<Sender<()>>,
    /// The look-up threads end when these are dropped.
    look_ups: Vec<mpsc::Sender<Infallible>>,
}

/// The result of a look-up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) came: Vec<String>,
    pub(super) went: Vec<String>,
}

/// Two targets with the same place are one backend, because requests cannot distinguish them.
type Place = (String, Option<String>);

fn place(target: &Target) -> Place {
    (target.to_string(), target.tls_name())
}

impl Members {
    /// `names` is the number of names whose addresses will be looked up.
    pub(super) fn new(
        given: Vec<Target>,
        names: usize,
        ejection: Ejection,
        counts: Arc<Counts>,
    ) -> Arc<Self> {
        let this = Self {
            is_one_out: AtomicBool::new(false),
            health: Mutex::new(Health::new(ejection)),
            list: Mutex::default(),
            counts,
        };
        let mut list = this.list();
        list.found = vec![Vec::new(); names];
        list.given = given.into_iter().map(|target| this.join(&mut list.next, target)).collect();
        drop(list);
        Arc::new(this)
    }

    pub(super) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_one_out(&self) -> bool {
        self.is_one_out.load(Ordering::Relaxed)
    }

    /// Updates what depends on the health, while its lock is held.
    pub(super) fn note(&self, health: &Health, backend: &Backend) {
        self.is_one_out.store(health.is_one_out(), Ordering::Relaxed);
        backend.has_failed.store(health.has_failed(backend.id), Ordering::Relaxed);
    }

    fn join(&self, next: &mut Id, target: Target) -> Arc<Backend> {
        let id = *next;
        *next += 1;
        self.health().join(id);
        let counts = self.counts.list(target.to_string());
        Arc::new(Backend { id, target, counts, has_failed: AtomicBool::new(false) })
    }

    fn leave(&self, backend: &Backend) {
        let mut health = self.health();
        health.leave(backend.id);
        self.note(&health, backend);
        drop(health);
        backend.counts.unlist();
    }

    /// Sets the addresses of the name with this number.
    pub(super) fn found(&self, name: usize, targets: Vec<Target>) -> Change {
        let mut list = self.list();
        let list = &mut *list;
        if list.found[name] == targets {
            return Change::default();
        }
        list.found[name] = targets;
        // A fixed backend does not become a second backend because a name has its address, too.
        let mut places: HashSet<_> = list.given.iter().map(|one| place(&one.target)).collect();
        let mut wanted = HashSet::new();
        let mut coming = Vec::new();
        for target in list.found.iter().flatten() {
            if places.insert(place(target)) {
                wanted.insert(place(target));
                coming.push(target);
            }
        }
        let (stay, went): (Vec<_>, Vec<_>) = std::mem::take(&mut list.of_names)
            .into_iter()
            .partition(|one| wanted.remove(&place(&one.target)));
        coming.retain(|target| wanted.contains(&place(target)));
        // Removed backends leave first, because a name may get an address back.
        went.iter().for_each(|one| self.leave(one));
        let next = &mut list.next;
        let came: Vec<_> = coming.into_iter().map(|one| self.join(next, one.clone())).collect();
        let labels = |all: &[Arc<Backend>]| all.iter().map(|one| one.target.to_string()).collect();
        let change = Change { came: labels(&came), went: labels(&went) };
        list.of_names = stay;
        list.of_names.extend(came);
        if change != Change::default() {
            // A loop that has not handled the last message yet will see both changes.
            list.loops.retain(|one| {
                let _ = one.try_send(());
                !one.is_closed()
            });
        }
        change
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        let list = self.list();
        list.given.len() + list.of_names.len()
    }

    /// Registers a look-up thread, which ends when the other end of `until` does.
    pub(super) fn keep(&self, until: mpsc::Sender<Infallible>) {
        self.list().look_ups.push(until);
    }

    /// Tells one more loop of changes from now on. `None`: there will be none.
    pub(super) fn follow(&self) -> Option<Receiver<()>> {
        let (told, changes) = bounded(1);
        let mut list = self.list();
        if list.found.is_empty() {
            return None;
        }
        list.loops.push(told);
        Some(changes)
    }

    /// All backends that there are now.
    pub(super) fn all(&self) -> Vec<Arc<Backend>> {
        let list = self.list();
        list.given.iter().chain(&list.of_names).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn targets(addrs: &[&str]) -> Vec<Target> {
        let name: Target = "a:80".parse().unwrap();
        addrs.iter().map(|addr| name.at(addr.parse().unwrap())).collect()
    }

    #[test]
    fn a_backend_that_goes_takes_along_what_is_known_of_it() {
        let counts = Arc::<Counts>::default();
        let members = Members::new(Vec::new(), 1, Ejection::new().failures(1), counts.clone());
        let change = members.found(0, targets(&["1.1.1.1:1", "2.2.2.2:2"]));
        assert_eq!((change.came.len(), change.went.len(), members.count()), (2, 0, 2));
        let one = members.all()[0].clone();
        let mut health = members.health();
        health.failed(one.id, Instant::now());
        members.note(&health, &one);
        drop(health);
        assert!(members.is_one_out() && one.has_failed.load(Ordering::Relaxed));
        assert_eq!(members.found(0, targets(&["1.1.1.1:1", "2.2.2.2:2"])), Change::default());
        assert!(members.is_one_out(), "it is still there");
        let change = members.found(0, targets(&["2.2.2.2:2"]));
        assert_eq!(change, Change { came: Vec::new(), went: vec!["1.1.1.1:1".to_owned()] });
        assert!(!members.is_one_out() && !members.health().has_failed(one.id));
        assert_eq!(counts.backends().len(), 1);
        members.found(0, targets(&["1.1.1.1:1"]));
        assert!(members.all()[0].id > one.id, "it is another one");
    }

    #[test]
    fn an_address_stays_while_any_name_has_it() {
        let members = Members::new(Vec::new(), 2, Ejection::new(), Arc::default());
        members.found(0, targets(&["1.1.1.1:1", "2.2.2.2:2"]));
        assert_eq!(members.found(1, targets(&["1.1.1.1:1"])), Change::default());
        let change = members.found(0, targets(&["2.2.2.2:2"]));
        assert_eq!((change, members.count()), (Change::default(), 2));
        let change = members.found(1, targets(&["3.3.3.3:3"]));
        assert_eq!(
            (change.came.as_slice(), change.went.as_slice()),
            (&["3.3.3.3:3".to_owned()][..], &["1.1.1.1:1".to_owned()][..])
        );
    }
}
