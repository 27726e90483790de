//! `/dev/cpu_dma_latency`: a process sets how long CPUs may take to leave their idle state, and the
//! kernel uses the shortest time of all processes.
//!
//! The setting lasts as long as the descriptor is open, so it ends however the process dies. A
//! forked child has a copy of the descriptor: release before a fork, or close it in the child.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

/// The path of the device.
pub const PATH: &str = "/dev/cpu_dma_latency";

/// The value that the kernel reads as "no request" (`PM_QOS_DEFAULT_VALUE`).
const NO_WISH: i32 = -1;
/// The value that the kernel reports when there is no request, in microseconds
/// (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const NOBODY: i32 = 2_000_000_000;

/// The reason why CPUs cannot be held with this device. The message says what would permit it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device does not exist, usually because this is a container.
    #[error(
        "there is no {PATH} here. In a container, pass it on: docker run --device {PATH}; Kubernetes: a device plugin, or a hostPath \
         volume of type CharDevice in a privileged pod. On the machine itself: a kernel with CONFIG_CPU_IDLE"
    )]
    Missing,
    /// The file's mode does not allow it.
    #[error(
        "{PATH} may not be opened by this user. A udev rule permits it to a group: KERNEL==\"cpu_dma_latency\", GROUP=\"wakeful\", \
         MODE=\"0660\" in /etc/udev/rules.d/60-cpu-dma-latency.rules, then: udevadm trigger --name-match=cpu_dma_latency"
    )]
    Permission,
    /// A device cgroup or a security module does not allow it.
    #[error(
        "{PATH} is refused by the device cgroup, or by a security module. systemd: DeviceAllow={PATH} rw in the unit; Docker: --device {PATH}"
    )]
    Refused,
    /// Anything else.
    #[error("{PATH}: {0}")]
    Other(#[source] io::Error),
}

/// Opens the device, close-on-exec. It holds no CPU yet.
///
/// # Errors
/// The device does not exist, or may not be used.
pub fn open() -> Result<OwnedFd, OpenError> {
    // The standard library opens files close-on-exec.
    let opened = File::options().read(true).write(true).open(PATH);
    opened.map(OwnedFd::from).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => OpenError::Missing,
        Some(Errno::ACCESS) => OpenError::Permission,
        Some(Errno::PERM | Errno::ROFS) => OpenError::Refused,
        _ => OpenError::Other(error),
    })
}

/// Keeps all CPUs out of idle states that take longer than `tolerated` to leave. With zero, idle
/// CPUs only poll. The time is rounded down to whole microseconds. 2,000 s or more hold nothing.
///
/// The hold replaces the previous hold of this descriptor. It ends with [`release`], or when the
/// last duplicate of the descriptor is closed. The call makes one system call.
///
/// # Errors
/// The kernel refuses the call.
pub fn hold(device: impl AsFd, tolerated: Duration) -> io::Result<()> {
    let most = u128::from(NOBODY.unsigned_abs());
    let wish = i32::try_from(tolerated.as_micros().min(most)).unwrap_or(NOBODY);
    say(device, wish)
}

/// Ends the hold of this descriptor.
///
/// # Errors
/// The kernel refuses the call.
pub fn release(device: impl AsFd) -> io::Result<()> {
    say(device, NO_WISH)
}

fn say(device: impl AsFd, wish: i32) -> io::Result<()> {
    let bytes = wish.to_ne_bytes();
    let written = rustix::io::retry_on_intr(|| rustix::io::write(&device, &bytes))?;
    if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Returns the shortest of the times that all processes now tolerate, or `None` if no process holds
/// CPUs with this device.
///
/// # Errors
/// The kernel refuses the call.
pub fn in_force(device: impl AsFd) -> io::Result<Option<Duration>> {
    let mut bytes = [0; 4];
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(&device, &mut bytes, 0))?;
    if read != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let micros = i32::from_ne_bytes(bytes);
    let wish = u64::try_from(micros).ok().filter(|_| micros < NOBODY);
    Ok(wish.map(Duration::from_micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regular file in the device's place: what is written is seen.
    fn file() -> File {
        let path = std::env::temp_dir().join(format!(
            "wakeful-awake-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    fn written(file: &File) -> i32 {
        use std::os::unix::fs::FileExt;
        let mut bytes = [0; 4];
        let length = file.metadata().unwrap().len();
        file.read_exact_at(&mut bytes, length - 4).unwrap();
        i32::from_ne_bytes(bytes)
    }

    #[test]
    fn a_wish_is_in_whole_microseconds_and_none_is_minus_one() {
        let device = file();
        for (tolerated, wish) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(2_999), 2),
            (Duration::from_secs(1), 1_000_000),
            (Duration::MAX, NOBODY),
        ] {
            hold(&device, tolerated).unwrap();
            assert_eq!(written(&device), wish, "{tolerated:?}");
        }
        release(&device).unwrap();
        assert_eq!(written(&device), -1);
    }

    /// If the device may be used, the kernel must report the requested value, and forget it
    /// afterwards.
    #[test]
    fn the_kernel_keeps_to_a_wish_for_as_long_as_its_descriptor_is_open() {
        let Ok(reader) = open() else {
            eprintln!("skipped: {PATH} may not be used here");
            return;
        };
        // Other programs may hold at the same time, so the value is never more than this.
        let wish = Duration::from_micros(1_234_567);
        let in_force = || super::in_force(&reader).unwrap();
        let is_kept = || in_force().is_some_and(|latency| latency <= wish);
        let device = open().unwrap();
        hold(&device, wish).unwrap();
        assert!(is_kept());
        release(&device).unwrap();
        assert_ne!(in_force(), Some(wish));
        hold(&device, wish).unwrap();
        assert!(is_kept());
        drop(device);
        assert_ne!(in_force(), Some(wish));
    }
}
