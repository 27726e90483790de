//! Why a keeper does not start.

use std::io;
use std::path::PathBuf;

/// Why a keeper does not start. The text says what permits it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperStartError {
    /// There is one already.
    #[error("another keeper{} has the lock {}: one is enough for a machine", pid.map_or_else(String::new, |pid| format!(" (process {pid})")), lock.display())]
    Running {
        /// Its lock file.
        lock: PathBuf,
        /// Its process, if the lock file says so.
        pid: Option<u32>,
    },
    /// This process may have fewer descriptors open than a keeper needs.
    #[error(
        "the limit of open descriptors (RLIMIT_NOFILE, ulimit -n){} leaves {free} free, and a keeper needs {needed}: raise it", limit.map_or_else(String::new, |limit| format!(" is {limit}, which"))
    )]
    Descriptors {
        /// The soft limit, if there is one.
        limit: Option<u64>,
        /// How many could be opened.
        free: usize,
        /// How many it needs.
        needed: usize,
    },
    /// The lock file cannot be used.
    #[error("the lock {0}: {1}")]
    Lock(PathBuf, #[source] io::Error),
    /// The kernel has no such files.
    #[error(
        "{0} has no cpuN/power/pm_qos_resume_latency_us: a kernel with CONFIG_PM and CONFIG_CPU_IDLE has them"
    )]
    NoFiles(PathBuf),
    /// They may not be written.
    #[error(
        "{0} may not be written: {1}. It takes root, and /sys mounted for writing (systemd: ReadWritePaths=/sys/devices/system/cpu)"
    )]
    NotWritable(PathBuf, #[source] io::Error),
    /// Another process listens on the socket, and does not have the lock.
    #[error("somebody listens on {0} already")]
    SocketInUse(PathBuf),
    /// A file that is not ours is in the socket's place.
    #[error("{0} is no socket: it is left alone")]
    NotASocket(PathBuf),
    /// The socket cannot be made.
    #[error("the socket {0}: {1}")]
    Socket(PathBuf, #[source] io::Error),
    /// The descriptor that was passed is not what a keeper listens on.
    #[error(
        "the socket that was passed is no listening SOCK_SEQPACKET Unix socket (systemd: ListenSequentialPacket=)"
    )]
    Listener,
}
