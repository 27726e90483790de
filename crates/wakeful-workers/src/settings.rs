//! The settings of a master.

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

/// The settings of a master. The [crate's documentation](crate) explains what a master does.
///
/// | setting | default | range |
/// |---|---|---|
/// | [`listen`](Self::listen), [`passed`](Self::passed) | nowhere | |
/// | [`strategy`](Self::strategy) | [`AcceptStrategy::Exclusive`] | [`AcceptStrategy`] |
/// | [`workers`](Self::workers) | 1 | 1 to 4,096; a number out of range becomes the nearest one in the range |
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
    /// Makes a master. `group` has the settings of the group of loops that each worker runs. The
    /// master does not start that group. It only takes from `group` the number of loops.
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

    /// Sets the addresses to listen on. After an upgrade the master uses the sockets of the
    /// previous master.
    pub fn listen(mut self, addrs: impl IntoIterator<Item = ListenAddr>) -> Self {
        self.listen = addrs.into_iter().collect();
        self
    }

    /// Sets listening sockets that a service manager has passed to this process. After an upgrade
    /// the master uses those of the previous master instead.
    pub fn passed(mut self, sockets: impl IntoIterator<Item = SharedListener>) -> Self {
        self.passed = sockets.into_iter().collect();
        self
    }

    /// Sets the addresses to listen on for operators: see
    /// [`Worker::admin_listeners`](crate::Worker::admin_listeners). Unlike the sockets for clients,
    /// these stay open until the last worker has drained.
    pub fn admin(mut self, addrs: impl IntoIterator<Item = ListenAddr>) -> Self {
        self.admin = addrs.into_iter().collect();
        self
    }

    /// Sets how connections reach the workers.
    ///
    /// With [`AcceptStrategy::ReusePort`] each loop of each worker has its own socket, on the same
    /// port. The kernel chooses a socket by a hash. So connections that wait for a worker that is
    /// stuck, stopped or being replaced do not go to another worker. The replacement of a worker
    /// gets the sockets of the old one. An additional worker gets connections as soon as it
    /// accepts. When a worker leaves, the connections that wait at its sockets are served before
    /// the sockets close.
    ///
    /// With this strategy the master makes all sockets, so it needs a descriptor for each, and
    /// [`listen`](Self::listen) must have only internet addresses. If the workers have a loop for
    /// each CPU, their number stays what it is when the master starts. An upgrade cannot change to
    /// this strategy or away from it.
    ///
    /// With the other strategies the workers share one socket for each address.
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

    /// Sets how long a new worker may take until it accepts. In an upgrade, all workers of the new
    /// master must accept within this time plus five seconds. A worker or master that takes longer
    /// is killed, and the old ones stay. A pause of the master (beyond a quarter of a second) does
    /// not count.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout.max(SHORTEST_TIMEOUT);
        self
    }

    /// Sets how long the workers still accept after the master has told them to end. Set it to the
    /// same time as in your program, for example wakeful-http's
    /// [`DrainPlan::pre_drain`](https://docs.rs/wakeful-http). The master closes its sockets a
    /// quarter of a second before the end of this time (at once if the time is shorter), so that no
    /// client connects when no worker accepts any more.
    pub fn pre_drain(mut self, time: Duration) -> Self {
        self.pre_drain = time;
        self
    }

    /// Sets how long a worker may live after the master has told it to end. After that the master
    /// kills it. `None` disables the limit. Choose a longer time than your program's own limit:
    /// this one is for workers that cannot end, because they are stopped or stuck. A pause of the
    /// master (beyond a quarter of a second) does not count.
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
    /// even if it is executed. Use this for what all workers must have in common, for example the
    /// secret of session tickets. The bytes are not in the environment or the command line, which
    /// other processes can read.
    pub fn shared_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.shared_data = SharedData(data.into());
        self
    }
}
