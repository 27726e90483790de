//! The errors of a keeper's start.

use std::io;
use std::path::PathBuf;

/// The reason why a keeper does not start. The message says what would permit it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperStartError {
    /// A keeper already runs.
    #[error("another keeper{} has the lock {}: a machine can have only one", pid.map_or_else(String::new, |pid| format!(" (process {pid})")), lock.display())]
    Running {
        /// Its lock file.
        lock: PathBuf,
        /// Its process id, if the lock file has it.
        pid: Option<u32>,
    },
    /// This process may open fewer descriptors than a keeper needs.
    #[error(
        "the limit of open descriptors (RLIMIT_NOFILE, ulimit -n){} leaves {free} free, and a keeper needs {needed}: raise it", limit.map_or_else(String::new, |limit| format!(" is {limit}, which"))
    )]
    Descriptors {
        /// The soft limit of descriptors, if there is one.
        limit: Option<u64>,
        /// How many more descriptors this process may open.
        free: usize,
        /// How many descriptors a keeper needs.
        needed: usize,
    },
    /// The lock file cannot be used.
    #[error("the lock {0}: {1}")]
    Lock(PathBuf, #[source] io::Error),
    /// The kernel has no files to hold single CPUs.
    #[error(
        "{0} has no cpuN/power/pm_qos_resume_latency_us: a kernel with CONFIG_PM and CONFIG_CPU_IDLE has them"
    )]
    NoFiles(PathBuf),
    /// The machine has none of the CPUs that clients may hold.
    #[error("clients may hold only CPU {asked}, and this machine has only {there}")]
    NoSuchCpus {
        /// The CPUs of the settings, for example `4-7`.
        asked: String,
        /// The CPUs of the machine.
        there: String,
    },
    /// These files may not be written.
    #[error(
        "cannot write {0}: {1}. The keeper needs root, and /sys mounted for writing (systemd: \
         ReadWritePaths=/sys/devices/system/cpu)"
    )]
    NotWritable(PathBuf, #[source] io::Error),
    /// Another process, which does not hold the lock, listens on the socket.
    #[error("another process already listens on {0}")]
    SocketInUse(PathBuf),
    /// Another file is at the path of the socket.
    #[error(
        "{0} is not a socket, so the keeper does not replace it: remove it, or choose another path"
    )]
    NotASocket(PathBuf),
    /// The socket cannot be made.
    #[error("the socket {0}: {1}")]
    Socket(PathBuf, #[source] io::Error),
    /// The passed descriptor is not a socket on which a keeper can listen.
    #[error(
        "the socket that was passed is not a listening SOCK_SEQPACKET Unix socket (systemd: ListenSequentialPacket=)"
    )]
    Listener,
}
