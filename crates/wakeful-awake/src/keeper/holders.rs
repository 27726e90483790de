//! Which client holds which CPU, and the resulting latency of each CPU. This is pure bookkeeping:
//! callers pass the time.
//!
//! The tolerated latency of a CPU is the least that any of its holders asks for. A client has one
//! hold at most, and a refusal leaves it without.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::keeper_protocol::format_cpus;

/// A connection.
pub(super) type ClientId = u64;

/// What clients may ask for.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// Which CPUs; `None` is all.
    pub(super) cpus: Option<Vec<usize>>,
    /// How many CPUs at the same time, for all clients together.
    pub(super) most_cpus: Option<usize>,
    /// For how long, before the client must release.
    pub(super) longest: Option<Duration>,
    pub(super) most_clients: usize,
}

/// Why a client may not hold CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("CPU {cpu} may not be held: this keeper holds only {allowed}")]
    NotAllowed { cpu: usize, allowed: String },
    #[error("{would} CPUs would be held, and this keeper holds at most {most} at once")]
    TooManyCpus { would: usize, most: usize },
    #[error("held for the longest time, {0:?}, without a release: release first")]
    Overdue(Duration),
    #[error("{0} clients are connected, which is as many as this keeper takes")]
    TooManyClients(usize),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Holders {
    limits: Limits,
    clients: BTreeMap<ClientId, Hold>,
}

#[derive(Debug)]
enum Hold {
    Nothing,
    Cpus(Held),
    /// The hold was taken away, and the client has not released yet.
    Overdue,
}

/// A client's hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) cpus: Vec<usize>,
    pub(super) microseconds: u32,
    /// Since when the client holds without a release.
    pub(super) since: Instant,
}

impl Holders {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, clients: BTreeMap::new() }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Limits the clients from now on. Clients that are connected stay.
    pub(super) fn let_in_at_most(&mut self, clients: usize) {
        self.limits.most_clients = self.limits.most_clients.min(clients);
    }

    /// # Errors
    /// There are too many clients.
    pub(super) fn enter(&mut self, client: ClientId) -> Result<(), Refusal> {
        if self.clients.len() >= self.limits.most_clients {
            return Err(Refusal::TooManyClients(self.limits.most_clients));
        }
        self.clients.insert(client, Hold::Nothing);
        Ok(())
    }

    /// Returns the CPUs that the client held.
    pub(super) fn leave(&mut self, client: ClientId) -> Vec<usize> {
        self.clients.remove(&client).map_or_else(Vec::new, Hold::into_cpus)
    }

    /// Replaces what the client held.
    ///
    /// # Errors
    /// A limit is exceeded. The client's hold stays as it was.
    pub(super) fn hold(
        &mut self,
        client: ClientId,
        cpus: &[usize],
        microseconds: u32,
        now: Instant,
    ) -> Result<(), Refusal> {
        let since = match self.clients.get(&client) {
            Some(Hold::Overdue) => {
                return Err(Refusal::Overdue(self.limits.longest.unwrap_or_default()));
            }
            Some(Hold::Cpus(held)) => held.since,
            Some(Hold::Nothing) | None => now,
        };
        if let Some(allowed) = &self.limits.cpus
            && let Some(&cpu) = cpus.iter().find(|cpu| allowed.binary_search(cpu).is_err())
        {
            return Err(Refusal::NotAllowed { cpu, allowed: format_cpus(allowed) });
        }
        if let Some(most) = self.limits.most_cpus {
            let others = self.holds().filter(|(id, _)| *id != client);
            let mut all: BTreeSet<usize> =
                others.flat_map(|(_, held)| held.cpus.iter().copied()).collect();
            all.extend(cpus);
            if all.len() > most {
                return Err(Refusal::TooManyCpus { would: all.len(), most });
            }
        }
        let held = Held { cpus: cpus.to_vec(), microseconds, since };
        self.clients.insert(client, Hold::Cpus(held));
        Ok(())
    }

    /// Returns the CPUs that the client held.
    pub(super) fn release(&mut self, client: ClientId) -> Vec<usize> {
        let before = self.clients.insert(client, Hold::Nothing);
        before.map_or_else(Vec::new, Hold::into_cpus)
    }

    /// Like [`release`](Self::release), but by the keeper: a client that is overdue stays so.
    pub(super) fn drop_hold(&mut self, client: ClientId) -> Vec<usize> {
        match self.clients.get(&client) {
            Some(Hold::Cpus(_)) => self.release(client),
            _ => Vec::new(),
        }
    }

    /// Takes holds away that last too long. Returns the clients, and the CPUs that they held.
    pub(super) fn end_overdue(&mut self, now: Instant) -> Vec<(ClientId, Vec<usize>)> {
        let Some(longest) = self.limits.longest else { return Vec::new() };
        let mut ended = Vec::new();
        for (&client, hold) in &mut self.clients {
            let is_overdue = |held: &Held| now.saturating_duration_since(held.since) >= longest;
            if matches!(hold, Hold::Cpus(held) if is_overdue(held)) {
                ended.push((client, std::mem::replace(hold, Hold::Overdue).into_cpus()));
            }
        }
        ended
    }

    /// When the next hold is overdue.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let longest = self.limits.longest?;
        self.holds().filter_map(|(_, held)| held.since.checked_add(longest)).min()
    }

    /// How long this CPU may take to leave its idle state. `None`: nobody holds it.
    pub(super) fn wanted(&self, cpu: usize) -> Option<u32> {
        let of_cpu = self.holds().filter(|(_, held)| held.cpus.binary_search(&cpu).is_ok());
        of_cpu.map(|(_, held)| held.microseconds).min()
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = (ClientId, &Held)> {
        self.clients.iter().filter_map(|(&client, hold)| match hold {
            Hold::Cpus(held) => Some((client, held)),
            Hold::Nothing | Hold::Overdue => None,
        })
    }

    /// What this client holds.
    pub(super) fn held_by(&self, client: ClientId) -> &[usize] {
        match self.clients.get(&client) {
            Some(Hold::Cpus(held)) => &held.cpus,
            _ => &[],
        }
    }
}

impl Hold {
    fn into_cpus(self) -> Vec<usize> {
        match self {
            Self::Cpus(held) => held.cpus,
            Self::Nothing | Self::Overdue => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LIMITS: Limits =
        Limits { cpus: None, most_cpus: None, longest: None, most_clients: usize::MAX };

    fn holders(limits: Limits) -> Holders {
        let mut holders = Holders::new(limits);
        (0..3).for_each(|client| holders.enter(client).unwrap());
        holders
    }

    #[test]
    fn a_cpu_is_held_to_the_least_that_anybody_asks_for() {
        let (mut holders, now) = (holders(NO_LIMITS), Instant::now());
        holders.hold(0, &[0, 1], 5, now).unwrap();
        holders.hold(1, &[1, 2], 2, now).unwrap();
        let wanted = |holders: &Holders| [0, 1, 2, 3].map(|cpu| holders.wanted(cpu));
        assert_eq!(wanted(&holders), [Some(5), Some(2), Some(2), None]);
        assert_eq!(holders.release(1), [1, 2]);
        assert_eq!(wanted(&holders), [Some(5), Some(5), None, None]);
        assert_eq!(holders.release(1), []);
        assert_eq!(holders.leave(0), [0, 1]);
        assert_eq!(wanted(&holders), [None; 4]);
        assert_eq!(holders.leave(0), []);
    }

    #[test]
    fn a_hold_replaces_what_the_client_held() {
        let (mut holders, now) = (holders(NO_LIMITS), Instant::now());
        holders.hold(0, &[0], 0, now).unwrap();
        holders.hold(0, &[1], 7, now).unwrap();
        assert_eq!((holders.wanted(0), holders.wanted(1)), (None, Some(7)));
        assert_eq!(holders.held_by(0), [1]);
    }

    #[test]
    fn only_allowed_cpus_and_not_too_many_at_once() {
        let limits = Limits { cpus: Some(vec![0, 1, 2]), most_cpus: Some(2), ..NO_LIMITS };
        let (mut holders, now) = (holders(limits), Instant::now());
        let allowed = "0-2".to_owned();
        let refused = Refusal::NotAllowed { cpu: 3, allowed };
        assert_eq!(holders.hold(0, &[0, 3], 0, now), Err(refused));
        holders.hold(0, &[0, 1], 0, now).unwrap();
        // A CPU that is held already does not count again.
        holders.hold(1, &[0, 1], 0, now).unwrap();
        let refused = Refusal::TooManyCpus { would: 3, most: 2 };
        assert_eq!(holders.hold(2, &[2], 0, now), Err(refused));
        // The client's own previous hold is replaced, so it does not count.
        holders.release(1);
        holders.hold(0, &[1, 2], 0, now).unwrap();
    }

    #[test]
    fn a_hold_that_lasts_too_long_ends_and_needs_a_release() {
        let longest = Duration::from_secs(10);
        let (mut holders, start) =
            (holders(Limits { longest: Some(longest), ..NO_LIMITS }), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(holders.deadline(), None);
        holders.hold(0, &[0], 0, at(0)).unwrap();
        holders.hold(1, &[0], 0, at(5)).unwrap();
        assert_eq!(holders.deadline(), Some(at(10)));
        // If a client replaces its hold, the time does not start again.
        holders.hold(0, &[1], 0, at(9)).unwrap();
        assert_eq!(holders.end_overdue(at(9)), []);
        assert_eq!(holders.end_overdue(at(10)), [(0, vec![1])]);
        assert_eq!((holders.wanted(0), holders.wanted(1)), (Some(0), None));
        assert_eq!(holders.hold(0, &[0], 0, at(11)), Err(Refusal::Overdue(longest)));
        assert_eq!(holders.deadline(), Some(at(15)));
        holders.release(0);
        holders.hold(0, &[0], 0, at(12)).unwrap();
        assert_eq!(holders.end_overdue(at(16)), [(1, vec![0])]);
        assert_eq!(holders.deadline(), Some(at(22)));
    }

    #[test]
    fn there_are_not_too_many_clients() {
        let mut holders = holders(Limits { most_clients: 3, ..NO_LIMITS });
        assert_eq!(holders.enter(3), Err(Refusal::TooManyClients(3)));
        holders.leave(0);
        holders.enter(3).unwrap();
    }
}
