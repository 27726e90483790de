//! A hold of single CPUs by the machine's keeper, for a thread that may wait for its answers.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::fork_gate::{self, Published};
use crate::keeper_client::{KeeperClient, KeeperError};
use crate::keeper_protocol::Answer;

/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(1);
/// A keeper that said no, or is gone, is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(10);
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct KeptHold {
    path: PathBuf,
    published: Option<Published>,
    client: Option<KeeperClient>,
    held: Vec<usize>,
    /// Why it is not asked, and until when.
    refused: Option<(String, Instant)>,
}

impl KeptHold {
    /// The number of the connection's descriptor is in `published` from then on: a copy of it in a
    /// forked child would hold as well.
    pub(crate) fn connect(
        path: PathBuf,
        published: Option<Published>,
    ) -> Result<Self, KeeperError> {
        let client = Some(connected(&path, published)?);
        Ok(Self { path, published, client, held: Vec::new(), refused: None })
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Holds these CPUs, in ascending order, and no other.
    ///
    /// # Errors
    /// Why none is held.
    pub(crate) fn hold(&mut self, cpus: &[usize], tolerated: Duration) -> Result<(), String> {
        if let Some((reason, until)) = &self.refused {
            if Instant::now() < *until {
                return Err(reason.clone());
            }
            self.refused = None;
        }
        let held = self
            .still_held()
            .and_then(|()| if self.held == cpus { Ok(()) } else { self.ask(cpus, tolerated) });
        if let Err((reason, pause)) = held {
            self.held.clear();
            self.refused = Some((reason.clone(), Instant::now() + pause));
            return Err(reason);
        }
        Ok(())
    }

    pub(crate) fn release(&mut self) {
        self.held.clear();
        if self.client.as_ref().is_some_and(|client| client.release().is_err()) {
            // Without the connection nothing is held.
            self.disconnect();
        }
    }

    /// Reads what the keeper says unasked.
    fn still_held(&mut self) -> Result<(), (String, Duration)> {
        while let Some(client) = &self.client {
            match client.answer() {
                Ok(None) => break,
                Ok(Some(Answer::Ended(reason))) => return Err((reason, ASK_AGAIN)),
                Ok(Some(_)) => {}
                Err(error) => return Err(self.gone(&error)),
            }
        }
        Ok(())
    }

    fn ask(&mut self, cpus: &[usize], tolerated: Duration) -> Result<(), (String, Duration)> {
        let client = match self.client.take() {
            Some(client) => client,
            None => connected(&self.path, self.published)
                .map_err(|error| (error.to_string(), CONNECT_AGAIN))?,
        };
        let client = self.client.insert(client);
        match client.hold_and_wait(cpus, tolerated, PATIENCE) {
            Ok(Answer::Held(held)) => {
                self.held = held;
                Ok(())
            }
            Ok(Answer::Refused(reason)) => Err((reason, ASK_AGAIN)),
            Ok(answer) => {
                let error = io::Error::other(format!("an answer to nothing: {answer:?}"));
                Err(self.gone(&error))
            }
            Err(error) => Err(self.gone(&error)),
        }
    }

    fn gone(&mut self, error: &io::Error) -> (String, Duration) {
        self.disconnect();
        (format!("the keeper of CPUs is gone: {error}"), CONNECT_AGAIN)
    }

    fn disconnect(&mut self) {
        if let Some(published) = self.published {
            // Its number is somebody else's soon.
            published.store(-1, Ordering::Relaxed);
        }
        self.client = None;
    }
}

fn connected(path: &Path, published: Option<Published>) -> Result<KeeperClient, KeeperError> {
    let number = |client: &KeeperClient| client.as_fd().as_raw_fd();
    fork_gate::open(published, || KeeperClient::connect(path), number)
}
