//! The place that a master has in a container.

use std::fs;

use rustix::process::getppid;

/// Small programs that run as process 1 of a container (`docker run --init`). They start one
/// program, pass their signals on to it, and end with it.
const INITS: [&str; 6] =
    ["docker-init", "podman-init", "catatonit", "tini", "tini-static", "dumb-init"];

/// Which process of a container a master is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Process 1.
    First,
    /// The one program of a small process 1.
    BelowInit,
    /// It was started from outside, and is not process 1 (pods with `shareProcessNamespace`).
    Outside,
    /// There is no container, or it does not end with this process.
    Other,
}

impl Place {
    /// Call this at the start. Later a process may get another parent. A successor is in a place
    /// where an upgrade is possible.
    pub(crate) fn of_this(is_successor: bool) -> Self {
        match getppid() {
            _ if is_successor => Self::Other,
            _ if std::process::id() == 1 => Self::First,
            None => Self::Outside,
            Some(parent) if parent.as_raw_pid() == 1 && is_small_init() => Self::BelowInit,
            Some(_) => Self::Other,
        }
    }

    /// Why the container would end with this process.
    pub(crate) fn ends_container(self) -> Option<&'static str> {
        match self {
            Self::First => Some("is process 1"),
            Self::BelowInit => Some("is the program of its container's init"),
            Self::Outside => Some("was started from outside of its container"),
            Self::Other => None,
        }
    }

    /// Does a signal from this process come from outside of the container, as those that `docker
    /// run` passes on? A process of another PID namespace has the number 0.
    pub(crate) fn is_outside(self, sender: u32) -> bool {
        match self {
            Self::First | Self::Outside => sender == 0,
            Self::BelowInit => sender == 1,
            Self::Other => false,
        }
    }
}

fn is_small_init() -> bool {
    fs::read_to_string("/proc/1/comm").is_ok_and(|name| INITS.contains(&name.trim_end()))
}
