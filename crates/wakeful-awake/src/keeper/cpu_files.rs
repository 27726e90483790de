//! The kernel's file of each CPU, `cpuN/power/pm_qos_resume_latency_us`: how long the CPU may take
//! to come back from its idle state.
//!
//! Its value is `0` for no limit, a number of microseconds, or `n/a` for no idle state at all
//! (`drivers/base/power/sysfs.c`). All programs of the machine share the value, and it stays when
//! its writer dies.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::descriptors;

/// The value of a CPU's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// Any idle state is allowed.
    None,
    /// Only idle states are allowed from which the CPU returns within this time.
    Microseconds(u32),
}

impl Limit {
    /// The one of two values that allows less.
    pub(super) fn tighter(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, limit) | (limit, Self::None) => limit,
            (Self::Microseconds(one), Self::Microseconds(two)) => Self::Microseconds(one.min(two)),
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "n/a" => Some(Self::Microseconds(0)),
            "0" => Some(Self::None),
            number => Some(Self::Microseconds(number.parse().ok()?)),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("0"),
            Self::Microseconds(0) => f.write_str("n/a"),
            Self::Microseconds(number) => number.fmt(f),
        }
    }
}

/// The files of all CPUs, below `/sys/devices/system/cpu`.
#[derive(Debug)]
pub(super) struct CpuFiles {
    root: PathBuf,
}

impl CpuFiles {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The CPUs that have a file, in ascending order.
    ///
    /// # Errors
    /// There is no such directory.
    pub(super) fn all(&self) -> io::Result<Vec<usize>> {
        let mut cpus = Vec::new();
        for entry in self.root.read_dir()? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
            let number = number.and_then(|number| number.parse().ok());
            cpus.extend(number.filter(|cpu| self.path(*cpu).exists()));
        }
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Checks that the file may be written, without writing.
    ///
    /// # Errors
    /// It may not be written.
    pub(super) fn check_write(&self, cpu: usize) -> io::Result<()> {
        self.open_to_write(cpu).map(drop)
    }

    /// # Errors
    /// There is no such CPU, it is offline, or its file is not as expected.
    pub(super) fn read(&self, cpu: usize) -> io::Result<Limit> {
        let text = read(&self.path(cpu))?;
        let line = text.lines().next().unwrap_or_default();
        Limit::parse(line).ok_or_else(|| io::Error::other(format!("not understood: {line:?}")))
    }

    /// # Errors
    /// There is no such CPU, or the kernel refuses.
    pub(super) fn write(&self, cpu: usize, limit: Limit) -> io::Result<()> {
        // The value is written in one call, because the kernel takes each write as a value.
        self.open_to_write(cpu)?.write_all(format!("{limit}\n").as_bytes())
    }

    /// Is the CPU online? A CPU that is offline keeps its files. The first CPU often has no file
    /// that says so.
    pub(super) fn is_offline(&self, cpu: usize) -> bool {
        let online = read(&self.root.join(format!("cpu{cpu}/online")));
        online.is_ok_and(|text| text.trim() == "0")
    }

    /// The file is not truncated, so that a regular file in its place (in tests) is never seen
    /// empty.
    fn open_to_write(&self, cpu: usize) -> io::Result<File> {
        open(File::options().write(true), &self.path(cpu))
    }

    pub(super) fn path(&self, cpu: usize) -> PathBuf {
        self.root.join(format!("cpu{cpu}/power/pm_qos_resume_latency_us"))
    }
}

/// Opens a file. If the limit of descriptors was lowered below the number of open ones, it tries to
/// raise the limit.
fn open(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let is_short = |error: &_| Errno::from_io_error(error) == Some(Errno::MFILE);
    let opened = match options.open(path) {
        Err(error) if is_short(&error) && descriptors::raise() => options.open(path),
        opened => opened,
    };
    opened.map_err(descriptors::explain)
}

/// Reads the whole of a sysfs file, which has a few bytes, in three system calls.
fn read(path: &Path) -> io::Result<String> {
    let mut bytes = [0; 64];
    let length = open(File::options().read(true), path)?.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written() {
        for (text, limit) in
            [("0", Limit::None), ("n/a", Limit::Microseconds(0)), ("17", Limit::Microseconds(17))]
        {
            assert_eq!(Limit::parse(text), Some(limit));
            assert_eq!(limit.to_string(), text);
        }
        assert_eq!(Limit::parse("-1"), None);
        assert_eq!(Limit::parse(""), None);
    }

    #[test]
    fn the_tighter_limit_allows_less() {
        let micros = Limit::Microseconds;
        assert_eq!(Limit::None.tighter(micros(5)), micros(5));
        assert_eq!(micros(0).tighter(Limit::None), micros(0));
        assert_eq!(micros(3).tighter(micros(5)), micros(3));
        assert_eq!(Limit::None.tighter(Limit::None), Limit::None);
    }
}
