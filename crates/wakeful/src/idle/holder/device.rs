//! `/dev/cpu_dma_latency`, by which a loop holds all CPUs of the machine.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use wakeful_awake::latency_device::{self, OpenError};

use crate::sys::before_fork::{self, ForkCount};
use crate::sys::fork_check::Process;

/// Why CPUs cannot be held by the device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Other(#[from] io::Error),
}

/// A descriptor of the device. No child of this process has a wish by it.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) forks: ForkCount,
}

impl Device {
    pub(super) fn open() -> Result<Self, DeviceError> {
        // First the count: behind a fork in between the device is opened anew.
        let forks = Process::fork_count()?;
        Ok(Self { fd: Arc::new(latency_device::open()?), forks })
    }

    /// Holds until the next fork. During one, on the thread that forks, it does not hold:
    /// [`is_released`](Self::is_released) says so.
    pub(super) fn hold(&mut self, tolerated: Duration) -> Result<(), DeviceError> {
        let undo = |fd: &OwnedFd| _ = latency_device::release(fd);
        loop {
            let hold = |fd: &OwnedFd| latency_device::hold(fd, tolerated);
            if before_fork::change_until_fork(self.forks, &self.fd, hold, undo)? {
                return Ok(());
            }
            if before_fork::is_forking() {
                return Ok(());
            }
            // A child may have a copy of the descriptor, and what is said by it is said for both.
            *self = Self::open()?;
        }
    }

    /// A fork has ended the hold.
    #[inline]
    pub(super) fn is_released(&self) -> bool {
        self.forks.is_past()
    }

    pub(super) fn release(&self) {
        before_fork::undo(&Arc::downgrade(&self.fd));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.release();
    }
}
