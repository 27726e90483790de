//! What a master is told to do.

use std::path::PathBuf;
use std::time::Duration;

use wakeful::LoopGroupBuilder;
use wakeful::accept::{AcceptStrategy, SharedListener};
use wakeful::net::ListenAddr;

use crate::exec::StartMethod;
use crate::worker::{Orphans, SharedData};

const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

/// A larger number is probably a typing error.
pub(crate) const MOST_WORKERS: usize = 4096;

/// The settings of a master. The [crate's documentation](crate) explains what it does.
///
/// | setting | default | range |
/// |---|---|---|
/// | [`listen`](Self::listen), [`passed`](Self::passed) | nowhere | |
/// | [`strategy`](Self::strategy) | [`AcceptStrategy::Exclusive`] | [`AcceptStrategy`] |
/// | [`workers`](Self::workers) | 1 | 1 to 4,096; a number out of range becomes the nearest limit |
/// | [`timeout`](Self::timeout) | 30 s | 1 s and more; less becomes 1 s |
/// | [`start_timeout`](Self::start_timeout) | 60 s | 1 s and more; less becomes 1 s |
/// | [`pre_drain`](Self::pre_drain) | 0 | any |
/// | [`drain_timeout`](Self::drain_timeout) | none | any |
/// | [`admin`](Self::admin) | none | |
/// | [`orphans`](Self::orphans) | [`Orphans::Drain`] | [`Orphans`] |
/// | [`pid_file`](Self::pid_file) | none | |
/// | [`start_method`](Self::start_method) | [`StartMethod::Fork`] | [`StartMethod`] |
/// | [`shared_data`](Self::shared_data) | none | |
#[derive(Debug)]
#[must_use = "nothing happens until it runs"]
pub struct Master {
    pub(crate) group: LoopGroupBuilder,
    pub(crate) listen: Vec<ListenAddr>,
    pub(crate) passed: Vec<SharedListener>,
    pub(crate) admin: Vec<ListenAddr>,
    pub(crate) strategy: AcceptStrategy,
    pub(crate) workers: usize,
    pub(crate) timeout: Duration,
    pub(crate) start_timeout: Duration,
    pub(crate) pre_drain: Duration,
    pub(crate) drain_timeout: Option<Duration>,
    pub(crate) orphans: Orphans,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) start_method: StartMethod,
    pub(crate) shared_data: SharedData,
}

impl Master {
    /// Makes a master. Each worker runs a group with the settings of `group`.
    pub fn new(group: LoopGroupBuilder) -> Self {
        Self {
            group,
            listen: Vec::new(),
            passed: Vec::new(),
            admin: Vec::new(),
            strategy: AcceptStrategy::default(),
            workers: 1,
            timeout: Duration::from_secs(30),
            start_timeout: Duration::from_secs(60),
            pre_drain: Duration::ZERO,
            drain_timeout: None,
            orphans: Orphans::default(),
            pid_file: None,
            start_method: StartMethod::default(),
            shared_data: SharedData::default(),
        }
    }

    /// Sets where to listen. After an upgrade the master uses the sockets of the previous master.
    pub fn listen(mut self, addrs: impl IntoIterator<Item = ListenAddr>) -> Self {
        self.listen = addrs.into_iter().collect();
        self
    }

    /// Sets listening sockets that a service manager has passed to this process. After an upgrade
    /// they come from the previous master.
    pub fn passed(mut self, sockets: impl IntoIterator<Item = SharedListener>) -> Self {
        self.passed = sockets.into_iter().collect();
        self
    }

    /// Sets where to listen for operators: see
    /// [`Worker::admin_listeners`](crate::Worker::admin_listeners). Unlike other sockets, these
    /// stay open until the last worker has drained.
    pub fn admin(mut self, addrs: impl IntoIterator<Item = ListenAddr>) -> Self {
        self.admin = addrs.into_iter().collect();
        self
    }

    /// Sets how connections reach the workers.
    ///
    /// With [`AcceptStrategy::ReusePort`] each loop of each worker has a socket of its own, on the
    /// same port. The kernel chooses a socket by a hash. So connections that wait for a worker that
    /// is stuck, stopped or being replaced do not go to another one. The replacement of a worker
    /// gets its sockets. A new worker gets connections as soon as it accepts. When a worker leaves,
    /// the connections that wait at its sockets are served before these close. The master makes all
    /// sockets: it needs a descriptor for each, and [`listen`](Self::listen) must have internet
    /// addresses only. An upgrade cannot change to this strategy or away from it.
    ///
    /// With the others the workers share one socket for each address.
    /// [`AcceptStrategy::Dispatch`] distributes connections among the loops of the worker that
    /// accepts them, and never to another worker. Sockets of [`passed`](Self::passed) and
    /// [`admin`](Self::admin) are always shared.
    pub fn strategy(mut self, strategy: AcceptStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the number of workers.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, MOST_WORKERS);
        self
    }

    /// Sets how long a loop may be in one turn before its worker is killed. A sleeping loop is not
    /// in a turn.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(SHORTEST_TIMEOUT);
        self
    }

    /// Sets how long a new worker may take until it accepts. In an upgrade the new master may take
    /// five seconds longer until all its workers accept. A worker or master that takes longer is
    /// killed, and the old ones stay.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout.max(SHORTEST_TIMEOUT);
        self
    }

    /// Sets how long the workers still accept after the master has told them to end, for example
    /// your program's own [`pre_drain`](https://docs.rs/wakeful-http). The master closes its
    /// sockets up to a quarter of a second earlier, so that no client connects that no worker
    /// accepts.
    pub fn pre_drain(mut self, time: Duration) -> Self {
        self.pre_drain = time;
        self
    }

    /// Sets how long a worker may live after the master has told it to end. Then it is killed.
    /// `None` disables the limit. Choose more than your program's own limit: this is for workers
    /// that cannot end, because they are stopped or stuck.
    pub fn drain_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.drain_timeout = timeout.into();
        self
    }

    /// Sets what workers do when the master is gone.
    pub fn orphans(mut self, orphans: Orphans) -> Self {
        self.orphans = orphans;
        self
    }

    /// Sets the pid file, which contains the process id of the master in charge. It is written when
    /// the first workers accept. In an upgrade it changes when the new master takes over.
    pub fn pid_file(mut self, path: impl Into<Option<PathBuf>>) -> Self {
        self.pid_file = path.into();
        self
    }

    /// Sets how workers are started.
    pub fn start_method(mut self, method: StartMethod) -> Self {
        self.start_method = method;
        self
    }

    /// Sets bytes that each worker gets from [`Worker::shared_data`](crate::Worker::shared_data),
    /// also one that is executed: for what all workers must have in common, for example the secret
    /// of session tickets. They are in neither the environment nor the command line, which others
    /// can read.
    pub fn shared_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.shared_data = SharedData(data.into());
        self
    }
}
