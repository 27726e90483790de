//! The signals that are ignored, for example by `nohup`, or in a shell's background job. Catching
//! such a signal would end that.

use std::fs;

/// Those that are ignored when they are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IgnoredSignals(u64);

impl IgnoredSignals {
    /// The ignored signals of this process. If the kernel does not tell them, there are none.
    pub(crate) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    /// Whether this one is ignored.
    pub(crate) fn has(self, signal: i32) -> bool {
        self.0 & (1 << (signal - 1)) != 0
    }
}
