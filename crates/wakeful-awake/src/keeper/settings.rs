//! The settings of a keeper.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::holders::Limits;
use super::lines::{KeeperLine, Lines};
use crate::back_off::BackOff;
use crate::keeper_protocol::SOCKET;

/// The default directory of the keeper's files.
pub(super) const DIRECTORY: &str = "/run/wakeful";

/// The settings of a keeper of CPUs.
///
/// | setting | default | range |
/// |---|---|---|
/// | [`socket`](Self::socket) | `/run/wakeful/keeper.sock` | a path of up to 103 bytes |
/// | [`state`](Self::state) | `/run/wakeful/keeper.state` | a file; its file system may be full |
/// | [`lock`](Self::lock) | `/run/wakeful/keeper.lock` | one file for the whole machine |
/// | [`group`](Self::group) | the process's | a group id |
/// | [`cpus`](Self::cpus) | all | CPUs of the machine |
/// | [`most_cpus`](Self::most_cpus) | no limit | 1 and more |
/// | [`longest`](Self::longest) | no limit | over 0 |
/// | [`most_clients`](Self::most_clients) | 1,024 | below the limit of descriptors |
#[derive(Debug)]
pub struct KeeperSettings {
    pub(super) socket: PathBuf,
    pub(super) listener: Option<OwnedFd>,
    pub(super) state: PathBuf,
    pub(super) lock: PathBuf,
    pub(super) group: Option<u32>,
    pub(super) limits: Limits,
    pub(super) is_measured: bool,
    pub(super) cpu_directory: PathBuf,
    pub(super) back_off: BackOff,
    pub(super) lines: Lines,
}

impl Default for KeeperSettings {
    fn default() -> Self {
        let limits = Limits { cpus: None, most_cpus: None, longest: None, most_clients: 1024 };
        Self {
            socket: SOCKET.into(),
            listener: None,
            state: Path::new(DIRECTORY).join("keeper.state"),
            lock: Path::new(DIRECTORY).join("keeper.lock"),
            group: None,
            limits,
            is_measured: true,
            cpu_directory: "/sys/devices/system/cpu".into(),
            back_off: BackOff::new(),
            lines: Lines::default(),
        }
    }
}

impl KeeperSettings {
    /// Returns the defaults of the table above.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the path of the socket to which clients connect. The file has mode 0660.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.socket = path.into();
        self
    }

    /// Uses a socket that already listens (`SOCK_SEQPACKET`), such as systemd's, instead of making
    /// one.
    #[must_use]
    pub fn listener(mut self, socket: OwnedFd) -> Self {
        self.listener = Some(socket);
        self
    }

    /// Sets the file in which the keeper notes what must be restored if it is killed. Only root may
    /// write to its directory.
    #[must_use]
    pub fn state(mut self, path: impl Into<PathBuf>) -> Self {
        self.state = path.into();
        self
    }

    /// Sets the file whose lock shows that a keeper runs.
    #[must_use]
    pub fn lock(mut self, path: impl Into<PathBuf>) -> Self {
        self.lock = path.into();
        self
    }

    /// Sets the group of the socket. Its members may hold CPUs.
    #[must_use]
    pub fn group(mut self, id: u32) -> Self {
        self.group = Some(id);
        self
    }

    /// Allows clients to hold only these CPUs. The keeper refuses requests for other CPUs, and does
    /// not start if the machine has none of these.
    #[must_use]
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        let mut cpus: Vec<usize> = cpus.into_iter().collect();
        cpus.sort_unstable();
        self.limits.cpus = Some(cpus);
        self
    }

    /// Limits how many CPUs may be held at once, for all clients together.
    #[must_use]
    pub fn most_cpus(mut self, number: usize) -> Self {
        self.limits.most_cpus = Some(number);
        self
    }

    /// Limits how long a hold may last without a release. After that time the keeper ends the hold,
    /// and the client must release before it may hold again.
    #[must_use]
    pub fn longest(mut self, time: Duration) -> Self {
        self.limits.longest = Some(time);
        self
    }

    /// Limits how many clients may be connected. The limit of descriptors may allow fewer.
    #[must_use]
    pub fn most_clients(mut self, number: usize) -> Self {
        self.limits.most_clients = number;
        self
    }

    /// Makes the keeper hold CPUs without measuring whether that gains anything. By default it
    /// measures at the first hold, and refuses holds that gain nothing.
    #[must_use]
    pub fn unmeasured(mut self) -> Self {
        self.is_measured = false;
        self
    }

    /// Sets a directory to use instead of `/sys/devices/system/cpu`, for tests. The directory must
    /// also have `stat` and `power_supply`, which replace `/proc/stat` and
    /// `/sys/class/power_supply`.
    #[must_use]
    pub fn cpu_directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.cpu_directory = path.into();
        let below = |name| self.cpu_directory.join(name);
        self.back_off = BackOff::of(below("stat"), below("power_supply"));
        self
    }

    /// Calls `receiver` with each line for the administrator's log. `receiver` runs on the keeper's
    /// thread, so it should be quick.
    #[must_use]
    pub fn lines(mut self, receiver: impl FnMut(KeeperLine) + Send + 'static) -> Self {
        self.lines = Lines::to(receiver);
        self
    }
}
