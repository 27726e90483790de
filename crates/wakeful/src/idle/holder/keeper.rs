//! The machine's keeper (`wakeful keeper`), which holds the CPUs on which a loop sleeps.
//!
//! Nothing here waits for the keeper. Its answers are read later: at the next sleep after a hold,
//! and regularly after that, because the keeper may end a hold by itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use wakeful_awake::keeper_protocol::Answer;
use wakeful_awake::{KeeperClient, KeeperError};

use super::leash::Release;
use super::recent_cpus::RecentCpus;
use crate::metrics::HoldState;
use crate::sys::closed_in_child::ClosedInChild;
use crate::sys::panics;

/// After how many sleeps the keeper's answers are read, while it holds.
const SLEEPS_TO_A_LOOK: u32 = 1024;
/// The same while the keeper has not answered. Its first answer takes long, because it measures
/// first.
const SLEEPS_TO_AN_ANSWER: u32 = 16;

/// Why the keeper does not hold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeeperLost {
    #[error(transparent)]
    Connect(#[from] KeeperError),
    #[error("the keeper of CPUs refuses: {0}")]
    Refused(String),
    #[error("the keeper of CPUs is gone: {0}")]
    Gone(#[from] io::Error),
}

impl KeeperLost {
    pub(super) fn shown(&self) -> HoldState {
        match self {
            Self::Connect(KeeperError::Permission(_)) => HoldState::NoPermission,
            Self::Connect(_) | Self::Gone(_) => HoldState::NoKeeper,
            Self::Refused(_) => HoldState::Refused,
        }
    }
}

/// The connection to the machine's keeper. See the [module](self).
#[derive(Debug)]
pub(super) struct Keeper {
    path: PathBuf,
    connection: Connection,
    cpus: RecentCpus,
    /// How many sleeps are left until the answers are read.
    until_look: u32,
    lost: Option<KeeperLost>,
}

/// A connection, of which no child of this process keeps a copy.
#[derive(Debug)]
struct Connection(Option<Arc<Client>>);

/// Open until the last owner is gone. The hold ends with it. Another thread takes the lock only to
/// end a hold, when there was no turn for long. So the loop does not wait for the lock, and goes
/// without a hold.
#[derive(Debug)]
pub(super) struct Client(Mutex<Option<ClosedInChild<KeeperClient>>>);

impl Connection {
    fn open(path: &Path) -> Result<Self, KeeperError> {
        let opened = ClosedInChild::open(|| KeeperClient::connect(path))?;
        Ok(Self(opened.map(|client| Arc::new(Client(Mutex::new(Some(client)))))))
    }

    /// `None`: there is no connection, or another thread uses it.
    fn with<T>(&self, ask: impl FnOnce(&KeeperClient) -> T) -> Option<T> {
        self.0.as_ref()?.with(ask)
    }
}

impl Client {
    fn with<T>(&self, ask: impl FnOnce(&KeeperClient) -> T) -> Option<T> {
        let client = panics::try_lock(&self.0)?;
        client.as_ref().and_then(ClosedInChild::get).map(ask)
    }
}

impl Release for Client {
    fn release(&self) {
        self.with(|client| {
            if client.release().is_err() {
                // The keeper is gone, or does not read.
                let _ = shutdown(client, Shutdown::Both);
            }
        });
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let client = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(client) = client {
            // A shutdown ends the connection for all its copies, whatever the keeper has read by
            // then.
            client.close_after(|client| _ = shutdown(client, Shutdown::Both));
        }
    }
}

impl Keeper {
    pub(super) fn new(path: PathBuf) -> Self {
        let cpus = RecentCpus::default();
        Self { path, connection: Connection(None), cpus, until_look: 0, lost: None }
    }

    /// Connects, unless there is a connection, or the process is just being forked.
    pub(super) fn connect(&mut self) -> Result<(), KeeperLost> {
        if self.connection.with(|_| ()).is_none() {
            self.connection = Connection::open(&self.path)?;
        }
        Ok(())
    }

    /// Asks for a hold of the CPUs on which the loop slept lately. `false`: not now, because the
    /// process is being forked.
    pub(super) fn hold(&mut self, tolerated: Duration) -> Result<bool, KeeperLost> {
        if self.lost.is_none() {
            // This reads the answer to the previous hold, in case the loop released that hold with
            // its next sleep.
            self.look();
        }
        if let Some(lost) = self.lost.take() {
            self.connection = Connection(None);
            return Err(lost);
        }
        self.cpus.begins_on(rustix::thread::sched_getcpu());
        let cpus = self.cpus.get();
        self.connect()?;
        match self.connection.with(|client| client.hold(&cpus, tolerated)) {
            None => return Ok(false),
            Some(Ok(())) => {}
            Some(Err(error)) => {
                self.connection = Connection(None);
                return Err(error.into());
            }
        }
        self.until_look = 1;
        Ok(true)
    }

    /// Must the loop ask again, because it sleeps on another CPU, or the keeper has said no?
    #[inline]
    pub(super) fn has_to_ask_anew(&mut self) -> bool {
        self.until_look = self.until_look.wrapping_sub(1);
        (self.until_look == 0 && self.look()) || self.cpus.sleeps_on(rustix::thread::sched_getcpu())
    }

    /// Reads the keeper's answers. Returns whether the answer is no.
    #[cold]
    fn look(&mut self) -> bool {
        self.until_look = SLEEPS_TO_AN_ANSWER;
        loop {
            let Some(answer) = self.connection.with(KeeperClient::answer) else { return false };
            match answer {
                Ok(None) => return false,
                Ok(Some(Answer::Held(_))) => self.until_look = SLEEPS_TO_A_LOOK,
                Ok(Some(Answer::Refused(reason) | Answer::Ended(reason))) => {
                    self.lost = Some(KeeperLost::Refused(reason));
                    return true;
                }
                Ok(Some(_)) => {}
                Err(error) => {
                    self.lost = Some(error.into());
                    return true;
                }
            }
        }
    }

    /// Shared with a thread that may end the hold.
    pub(super) fn client(&self) -> Option<&Arc<Client>> {
        self.connection.0.as_ref()
    }

    pub(super) fn release(&mut self) {
        if self.connection.with(|client| client.release().is_err()) == Some(true) {
            // The keeper is gone, or does not read. Without the connection nothing is held.
            self.connection = Connection(None);
        }
    }
}
