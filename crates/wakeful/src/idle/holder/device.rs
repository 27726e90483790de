//! `/dev/cpu_dma_latency`, by which a loop holds all CPUs of the machine.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use wakeful_awake::latency_device::{self, OpenError};

use super::leash::Release;
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
pub(super) struct Device(Option<Arc<Descriptor>>);

/// Open until the last owner is gone. The hold ends with it.
#[derive(Debug)]
pub(super) struct Descriptor(Option<ClosedInChild<OwnedFd>>);

impl Device {
    pub(super) fn open() -> Result<Self, DeviceError> {
        Self::open_by(latency_device::open)
    }

    pub(super) fn open_by(
        open: impl FnMut() -> Result<OwnedFd, OpenError>,
    ) -> Result<Self, DeviceError> {
        let opened = ClosedInChild::open(open)?;
        Ok(Self(opened.map(|fd| Arc::new(Descriptor(Some(fd))))))
    }

    /// Holds all CPUs. `false`: not now, because the process is being forked.
    pub(super) fn hold(&mut self, tolerated: Duration) -> Result<bool, DeviceError> {
        if self.0.is_none() {
            *self = Self::open()?;
        }
        let Some(fd) = self.0.as_ref().and_then(|descriptor| descriptor.get()) else {
            return Ok(false);
        };
        latency_device::hold(fd, tolerated)?;
        Ok(true)
    }

    pub(super) fn release(&self) {
        if let Some(descriptor) = &self.0 {
            descriptor.release();
        }
    }

    /// Shared with a thread that may end the hold.
    pub(super) fn descriptor(&self) -> Option<&Arc<Descriptor>> {
        self.0.as_ref()
    }
}

impl Descriptor {
    fn get(&self) -> Option<&OwnedFd> {
        self.0.as_ref().and_then(ClosedInChild::get)
    }
}

impl Release for Descriptor {
    fn release(&self) {
        if let Some(fd) = self.get() {
            // The kernel never refuses to end a hold.
            let _ = latency_device::release(fd);
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(fd) = self.0.take() {
            fd.close_after(|fd| _ = latency_device::release(fd));
        }
    }
}
