//! `/dev/cpu_dma_latency`, by which a loop holds all CPUs of the machine.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use wakeful_awake::latency_device::{self, OpenError};

use crate::metrics::HoldState;
use crate::sys::closed_in_child::ClosedInChild;

/// Why CPUs cannot be held by the device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Other(#[from] io::Error),
}

impl DeviceError {
    pub(super) fn shown(&self) -> HoldState {
        match self {
            Self::Open(_) => HoldState::NoPermission,
            Self::Other(_) => HoldState::Failed,
        }
    }
}

/// A descriptor of the device, which no child of this process keeps.
#[derive(Debug)]
pub(super) struct Device(Option<ClosedInChild<OwnedFd>>);

impl Device {
    pub(super) fn open() -> Result<Self, DeviceError> {
        Self::open_by(latency_device::open)
    }

    pub(super) fn open_by(
        open: impl FnMut() -> Result<OwnedFd, OpenError>,
    ) -> Result<Self, DeviceError> {
        Ok(Self(ClosedInChild::open(open)?))
    }

    /// Holds. `false`: not now, since the process forks.
    pub(super) fn hold(&mut self, tolerated: Duration) -> Result<bool, DeviceError> {
        if self.0.is_none() {
            *self = Self::open()?;
        }
        let Some(fd) = self.0.as_ref().and_then(ClosedInChild::get) else { return Ok(false) };
        latency_device::hold(fd, tolerated)?;
        Ok(true)
    }

    pub(super) fn release(&self) {
        if let Some(fd) = self.0.as_ref().and_then(ClosedInChild::get) {
            // The kernel refuses no such wish.
            let _ = latency_device::release(fd);
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(fd) = self.0.take() {
            fd.close_after(|fd| _ = latency_device::release(fd));
        }
    }
}
