//! A hold of single CPUs by the machine's keeper, for a thread that may wait for its answers.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::fork_gate::{Gated, Place};
use crate::keeper_client::{KeeperClient, KeeperError};
use crate::keeper_protocol::Answer;

/// An answer that takes longer counts as none.
const PATIENCE: Duration = Duration::from_secs(1);
/// After this time, a keeper that said no, or was gone, is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(10);
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct KeptHold {
    path: PathBuf,
    place: Option<Place>,
    client: Option<Gated<KeeperClient>>,
    held: Vec<usize>,
    /// Why the keeper is not asked, and until when.
    refused: Option<(String, Instant)>,
}

impl KeptHold {
    /// From now on the number of the connection's descriptor is in `place`, because a copy of it in
    /// a forked child would hold as well.
    pub(crate) fn connect(path: PathBuf, place: Option<Place>) -> Result<Self, KeeperError> {
        let client = Some(connected(&path, place)?);
        Ok(Self { path, place, client, held: Vec::new(), refused: None })
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Holds these CPUs, in ascending order, and no other.
    ///
    /// # Errors
    /// The reason why none is held.
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
            // A keeper that has ended a hold gives no other one before a release.
            self.release();
            self.refused = Some((reason.clone(), Instant::now() + pause));
            return Err(reason);
        }
        Ok(())
    }

    pub(crate) fn release(&mut self) {
        self.held.clear();
        if self.client.as_ref().is_some_and(|client| client.release().is_err()) {
            // Without the connection nothing is held.
            self.client = None;
        }
    }

    /// Reads messages that the keeper sends without a request.
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
            None => connected(&self.path, self.place)
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
                let error = io::Error::other(format!(
                    "the keeper sent an answer without a request: {answer:?}"
                ));
                Err(self.gone(&error))
            }
            Err(error) => Err(self.gone(&error)),
        }
    }

    fn gone(&mut self, error: &io::Error) -> (String, Duration) {
        self.client = None;
        (format!("the keeper of CPUs is gone: {error}"), CONNECT_AGAIN)
    }
}

fn connected(path: &Path, place: Option<Place>) -> Result<Gated<KeeperClient>, KeeperError> {
    Gated::open(place, || KeeperClient::connect(path))
}

#[cfg(all(test, feature = "keeper"))]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;
    use crate::{Keeper, KeeperSettings};

    #[test]
    fn a_hold_that_lasted_too_long_for_its_keeper_is_given_again_behind_the_pause() {
        let machine = std::env::temp_dir().join(format!("wakeful-kept-{}", std::process::id()));
        fs::create_dir_all(machine.join("cpu0/power")).unwrap();
        fs::write(machine.join("cpu0/power/pm_qos_resume_latency_us"), "0\n").unwrap();
        let below = |name| machine.join(name);
        let settings = KeeperSettings::new().cpu_directory(&machine).unmeasured();
        let settings = settings.socket(below("sock")).state(below("state")).lock(below("lock"));
        let mut keeper = Keeper::open(settings.longest(Duration::from_millis(20))).unwrap();
        let mut kept = KeptHold::connect(below("sock"), None).unwrap();
        let (stopped, stop) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| keeper.run(stopped.as_fd()).unwrap());
            let _stop = stop;
            let start = Instant::now();
            while kept.hold(&[0], Duration::ZERO).is_ok() {
                assert!(start.elapsed() < Duration::from_secs(20), "it is not ended");
                thread::yield_now();
            }
            kept.refused = None;
            kept.hold(&[0], Duration::ZERO).unwrap();
            assert!(kept.is_held());
        });
        fs::remove_dir_all(machine).unwrap();
    }
}
