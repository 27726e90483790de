//! The machine's keeper (`wakeful keeper`), which holds the CPUs on which a loop sleeps.
//!
//! Nothing here waits for the keeper. Its answers are read later: to a hold with the next sleep,
//! and now and then, since it may end a hold by itself.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use wakeful_awake::keeper_protocol::{Answer, Request};
use wakeful_awake::{KeeperClient, KeeperError};

use super::recent_cpus::RecentCpus;
use crate::sys::before_fork::{self, ForkCount};
use crate::sys::fork_check::Process;

/// So often the keeper's answers are read while it holds.
const SLEEPS_TO_A_LOOK: u32 = 1024;
/// And while it has not answered: the first time it measures.
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

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Keeper {
    path: PathBuf,
    connection: Option<Connection>,
    cpus: RecentCpus,
    /// Sleeps until its answers are read.
    until_look: u32,
    lost: Option<KeeperLost>,
}

/// A connection by which no child of this process holds anything.
#[derive(Debug)]
struct Connection {
    client: KeeperClient,
    /// The same socket, for a release before a fork.
    socket: Arc<OwnedFd>,
    forks: ForkCount,
}

impl Connection {
    fn open(path: &std::path::Path) -> Result<Self, KeeperLost> {
        // First the count, as in `Device::open`.
        let forks = Process::fork_count()?;
        let client = KeeperClient::connect(path)?;
        let socket = Arc::new(client.as_fd().try_clone_to_owned()?);
        Ok(Self { client, socket, forks })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        before_fork::undo(&Arc::downgrade(&self.socket));
    }
}

impl Keeper {
    pub(super) fn new(path: PathBuf) -> Self {
        let cpus = RecentCpus::default();
        Self { path, connection: None, cpus, until_look: 0, lost: None }
    }

    /// Connects, if it is not connected.
    pub(super) fn connect(&mut self) -> Result<(), KeeperLost> {
        if self.connection.is_none() {
            self.connection = Some(Connection::open(&self.path)?);
        }
        Ok(())
    }

    /// Asks for a hold of the CPUs on which the loop slept lately, until the next fork. During one,
    /// on the thread that forks, it does not ask.
    pub(super) fn hold(&mut self, tolerated: Duration) -> Result<(), KeeperLost> {
        if let Some(lost) = self.lost.take() {
            self.connection = None;
            return Err(lost);
        }
        self.cpus.sleeps_on(rustix::thread::sched_getcpu());
        let cpus = self.cpus.get();
        loop {
            self.connect()?;
            let Some(Connection { client, socket, forks }) = &self.connection else { continue };
            let hold = |_: &OwnedFd| client.hold(&cpus, tolerated);
            let asked = before_fork::change_until_fork(*forks, socket, hold, release_by);
            match asked {
                Ok(true) => break,
                // `has_to_ask_anew` says so behind the fork.
                Ok(false) if before_fork::is_forking() => break,
                // A child may have a copy of the connection.
                Ok(false) => self.connection = None,
                Err(error) => {
                    self.connection = None;
                    return Err(error.into());
                }
            }
        }
        self.until_look = 1;
        Ok(())
    }

    /// A fork has ended the hold, the loop sleeps on another CPU, or the keeper has said no.
    #[inline]
    pub(super) fn has_to_ask_anew(&mut self) -> bool {
        let is_released = self.connection.as_ref().is_none_or(|it| it.forks.is_past());
        self.until_look = self.until_look.wrapping_sub(1);
        (self.until_look == 0 && self.look())
            || is_released
            || self.cpus.sleeps_on(rustix::thread::sched_getcpu())
    }

    /// Reads its answers. Is it a no?
    #[cold]
    fn look(&mut self) -> bool {
        self.until_look = SLEEPS_TO_AN_ANSWER;
        let Some(connection) = &self.connection else { return false };
        loop {
            match connection.client.answer() {
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

    pub(super) fn release(&self) {
        if let Some(connection) = &self.connection {
            before_fork::undo(&Arc::downgrade(&connection.socket));
        }
    }
}

fn release_by(socket: &OwnedFd) {
    // A keeper that is gone, or does not read, is noticed by the next look.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = send(socket, Request::Release.to_string().as_bytes(), flags);
}
