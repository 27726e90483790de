//! How often a CPU has been idle, as the kernel counts it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The kernel's counters of one CPU: one for each of its idle states.
pub(crate) struct IdleCount(Vec<File>);

impl IdleCount {
    /// `None`: there is no idle driver, or sysfs does not show it.
    pub(crate) fn of(cpu: usize) -> Option<Self> {
        Self::at(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle")))
    }

    fn at(states: &Path) -> Option<Self> {
        let open = |number| File::open(states.join(format!("state{number}/usage"))).ok();
        let files: Vec<_> = (0..16).map_while(open).collect();
        (!files.is_empty()).then_some(Self(files))
    }

    /// How often the CPU was idle until now, in any state. A stay counts when it is over.
    pub(crate) fn read(&self) -> Option<u64> {
        self.0.iter().map(number_in).sum()
    }
}

fn number_in(file: &File) -> Option<u64> {
    let mut text = [0; 24];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn all_states_count_and_what_is_no_number_is_not_known() {
        let root = std::env::temp_dir().join(format!("wakeful-idle-count-{}", std::process::id()));
        let put = |number: usize, text: &str| {
            let state = root.join(format!("state{number}"));
            fs::create_dir_all(&state).unwrap();
            fs::write(state.join("usage"), text).unwrap();
        };
        assert!(IdleCount::at(&root).is_none());
        put(0, "40\n");
        put(1, "2\n");
        let count = IdleCount::at(&root).unwrap();
        assert_eq!(count.read(), Some(42));
        put(1, "3\n");
        assert_eq!(count.read(), Some(43));
        put(1, "many\n");
        assert_eq!(count.read(), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
