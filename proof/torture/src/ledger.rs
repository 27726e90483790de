//! The accounts: what each end of each connection sent and received, how it ended, and whether that
//! is right.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// How an end ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has sent everything and has read the end of the peer's stream.
    Finished,
    /// It reset, shut down or left the connection on purpose.
    GaveUp,
    /// Its task was aborted, or its loop ended.
    Dropped,
    /// An operation failed.
    Broken(String),
}

/// What one end did.
#[derive(Debug, Default)]
pub(crate) struct EndAccount {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    /// The end has shut down its write side.
    pub(crate) shut: AtomicBool,
    /// The end has seen that the peer shut down its write side.
    pub(crate) ended: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) id: u64,
    kind: &'static str,
    ends: [EndAccount; 2],
    /// Somebody broke it on purpose, so not everything has to arrive.
    broken: AtomicBool,
}

impl Account {
    pub(crate) fn end(&self, side: Side) -> &EndAccount {
        &self.ends[side as usize]
    }

    /// Notes that the connection is broken on purpose. To be called before that is done.
    pub(crate) fn is_broken_on_purpose(&self) {
        self.broken.store(true, SeqCst);
    }

    /// Returns what is wrong with it, when both ends have ended (or one of them never existed).
    fn fault(&self) -> Option<String> {
        let outcomes =
            [Side::Client, Side::Server].map(|side| lock(&self.end(side).outcome).clone());
        let broken = self.broken.load(SeqCst);
        for side in [Side::Client, Side::Server] {
            let sent = self.end(side).sent.load(SeqCst);
            let received = self.end(side.other()).received.load(SeqCst);
            if received > sent {
                return Some(format!("{side:?} sent {sent} bytes, and {received} were received"));
            }
            if !broken && received < sent {
                return Some(format!(
                    "{side:?} sent {sent} bytes, {received} were received, and nobody broke the connection"
                ));
            }
        }
        let finished = |outcome: &Option<Outcome>| *outcome == Some(Outcome::Finished);
        (!broken && !outcomes.iter().all(finished))
            .then(|| "it did not end in order, and nobody broke it".to_owned())
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {} ({})", self.id, self.kind)?;
        if self.broken.load(SeqCst) {
            f.write_str(", broken on purpose")?;
        }
        for side in [Side::Client, Side::Server] {
            let end = self.end(side);
            write!(
                f,
                "; {side:?}: sent {}{}, received {}{}, {:?}",
                end.sent.load(SeqCst),
                if end.shut.load(SeqCst) { " and shut" } else { "" },
                end.received.load(SeqCst),
                if end.ended.load(SeqCst) { " to the end" } else { "" },
                *lock(&end.outcome),
            )?;
        }
        Ok(())
    }
}

/// Sums over all connections.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) tcp: AtomicU64,
    pub(crate) unix: AtomicU64,
    pub(crate) pairs: AtomicU64,
    pub(crate) blocking: AtomicU64,
    pub(crate) finished: AtomicU64,
    pub(crate) broken: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) detached_on_a_thread: AtomicU64,
    pub(crate) halves: AtomicU64,
    pub(crate) half_closes: AtomicU64,
    pub(crate) resets: AtomicU64,
    pub(crate) shutdowns: AtomicU64,
    pub(crate) aborts: AtomicU64,
    pub(crate) peeks: AtomicU64,
    /// Single reads and writes of a stream after waiting for it.
    pub(crate) attempts: AtomicU64,
    pub(crate) priorities: AtomicU64,
    pub(crate) visits: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) wakers: AtomicU64,
    pub(crate) acts: AtomicU64,
    pub(crate) blocking_calls: AtomicU64,
    pub(crate) stops: AtomicU64,
    pub(crate) short_of_descriptors: AtomicU64,
    pub(crate) short_of_threads: AtomicU64,
}

/// Everything that is open, and the sums over everything that was open.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    accounts: Mutex<HashMap<u64, Arc<Account>>>,
    next: AtomicU64,
    /// How many ends exist. Each has to be dropped.
    live: AtomicUsize,
    /// Connections that the server's end broke on purpose before it knew which ones they were.
    broken_unknown: AtomicUsize,
    faults: Mutex<Vec<String>>,
    pub(crate) totals: Totals,
}

impl Ledger {
    /// Opens an account for a new connection.
    pub(crate) fn open(&self, kind: &'static str, counter: &AtomicU64) -> Arc<Account> {
        counter.fetch_add(1, Relaxed);
        let id = self.next.fetch_add(1, Relaxed);
        let account = Arc::new(Account {
            id,
            kind,
            ends: Default::default(),
            broken: AtomicBool::new(false),
        });
        lock(&self.accounts).insert(id, account.clone());
        account
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Account>> {
        lock(&self.accounts).get(&id).cloned()
    }

    /// Returns how many ends have not ended.
    pub(crate) fn in_use(&self) -> usize {
        self.live.load(SeqCst)
    }

    pub(crate) fn begin(&self) {
        self.live.fetch_add(1, SeqCst);
    }

    /// Notes that something that counted as an end has ended.
    pub(crate) fn release(&self) {
        self.live.fetch_sub(1, SeqCst);
    }

    /// Notes that an end has ended. With the second one, the connection's account is closed.
    pub(crate) fn end(&self, account: &Account, side: Side, outcome: Outcome) {
        *lock(&account.end(side).outcome) = Some(outcome);
        let mut accounts = lock(&self.accounts);
        // Under the lock, so that exactly one of the two is the second.
        if lock(&account.end(side.other()).outcome).is_some() {
            accounts.remove(&account.id);
            drop(accounts);
            self.close(account, account.fault());
        }
        self.live.fetch_sub(1, SeqCst);
    }

    /// Notes that everything that is open is about to be broken on purpose.
    pub(crate) fn break_all(&self) {
        lock(&self.accounts).values().for_each(|account| account.is_broken_on_purpose());
    }

    /// Notes that the accept side broke a connection on purpose, and never knew which one.
    pub(crate) fn broke_unknown(&self) {
        self.broken_unknown.fetch_add(1, SeqCst);
    }

    /// Closes what is left when a round is over. Every end should be gone by then, so what is left
    /// had no second end.
    pub(crate) fn close_all(&self) {
        let left: Vec<_> = lock(&self.accounts).drain().map(|(_, account)| account).collect();
        for account in left {
            let mut fault = account.fault();
            let server = lock(&account.end(Side::Server).outcome).clone();
            // The server's end broke it before it knew which connection it was.
            if fault.is_some() && server.is_none() {
                let take = |left: usize| left.checked_sub(1);
                if self.broken_unknown.fetch_update(SeqCst, SeqCst, take).is_ok() {
                    fault = None;
                }
            }
            self.close(&account, fault);
        }
        self.broken_unknown.store(0, SeqCst);
        let live = self.live.swap(0, SeqCst);
        if live > 0 {
            self.fault(format!("{live} ends of connections were never dropped"));
        }
    }

    fn close(&self, account: &Account, fault: Option<String>) {
        let totals = &self.totals;
        for end in &account.ends {
            totals.bytes_sent.fetch_add(end.sent.load(SeqCst), Relaxed);
            totals.bytes_received.fetch_add(end.received.load(SeqCst), Relaxed);
        }
        let broken = account.broken.load(SeqCst);
        if broken { &totals.broken } else { &totals.finished }.fetch_add(1, Relaxed);
        if let Some(fault) = fault {
            self.fault(format!("{fault}: {account}"));
        }
    }

    /// Notes that something is wrong.
    pub(crate) fn fault(&self, fault: String) {
        eprintln!("FAULT: {fault}");
        lock(&self.faults).push(fault);
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        lock(&self.faults).clone()
    }

    /// Returns a number that changes as long as anything makes progress.
    pub(crate) fn progress(&self) -> u64 {
        let open = lock(&self.accounts);
        let ends = open.values().flat_map(|account| &account.ends);
        let moved =
            ends.map(|end| end.sent.load(Relaxed) + end.received.load(Relaxed)).sum::<u64>();
        let totals = &self.totals;
        moved
            + totals.bytes_sent.load(Relaxed)
            + totals.bytes_received.load(Relaxed)
            + totals.finished.load(Relaxed)
            + totals.broken.load(Relaxed)
            + totals.moves.load(Relaxed)
    }

    /// Returns what is open, for finding out why.
    pub(crate) fn open_accounts(&self) -> Vec<String> {
        lock(&self.accounts).values().map(ToString::to_string).collect()
    }
}

/// Locks a mutex. A poisoned one is locked too: the panic is a fault that is reported elsewhere.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(ledger: &Ledger, sent: u64, received: u64, on_purpose: bool) -> Vec<String> {
        let account = ledger.open("test", &ledger.totals.tcp);
        if on_purpose {
            account.is_broken_on_purpose();
        }
        account.end(Side::Client).sent.store(sent, SeqCst);
        account.end(Side::Server).received.store(received, SeqCst);
        for side in [Side::Client, Side::Server] {
            ledger.begin();
            ledger.end(&account, side, Outcome::Finished);
        }
        assert_eq!((ledger.open_accounts().len(), ledger.in_use()), (0, 0));
        ledger.faults()
    }

    #[test]
    fn what_is_sent_is_received() {
        assert!(transfer(&Ledger::default(), 100, 100, false).is_empty());
        assert_eq!(transfer(&Ledger::default(), 100, 99, false).len(), 1);
        assert_eq!(transfer(&Ledger::default(), 100, 101, false).len(), 1);
    }

    #[test]
    fn behind_a_reset_what_is_received_was_sent() {
        assert!(transfer(&Ledger::default(), 100, 99, true).is_empty());
        assert_eq!(transfer(&Ledger::default(), 100, 101, true).len(), 1);
    }

    #[test]
    fn an_error_that_nobody_ordered_is_a_fault() {
        let ledger = Ledger::default();
        let account = ledger.open("test", &ledger.totals.tcp);
        ledger.begin();
        ledger.begin();
        ledger.end(&account, Side::Client, Outcome::Finished);
        ledger.end(&account, Side::Server, Outcome::Broken("reset".into()));
        assert_eq!(ledger.faults().len(), 1);
    }

    #[test]
    fn an_end_that_is_left_is_a_fault() {
        let ledger = Ledger::default();
        ledger.begin();
        ledger.close_all();
        assert_eq!(ledger.faults().len(), 1);
    }

    #[test]
    fn a_connection_without_a_server_is_a_fault_unless_it_was_broken_there() {
        for broken in [false, true] {
            let ledger = Ledger::default();
            let account = ledger.open("test", &ledger.totals.tcp);
            ledger.begin();
            if broken {
                ledger.broke_unknown();
            }
            account.end(Side::Client).sent.store(8, SeqCst);
            ledger.end(&account, Side::Client, Outcome::Broken("reset".into()));
            ledger.close_all();
            assert_eq!(ledger.faults().is_empty(), broken);
        }
    }
}
