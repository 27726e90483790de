//! What a successor has to undo if this keeper is killed: for each CPU what stood there before the
//! first hold, and what the keeper may have written since.
//!
//! It is written before the CPU, under another name, and renamed: whenever the keeper dies, the
//! file is whole, and names every value of ours that stands in a CPU's file. A value that is not
//! named there is somebody else's.
//!
//! ```text
//! wakeful-keeper 1
//! boot 5f0c…
//! cpu 0 before 0 wrote n/a
//! cpu 1 before 0 wrote n/a,5
//! end
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::cpu_files::Limit;

const HEADER: &str = "wakeful-keeper 1";
const END: &str = "end";

/// What was done to a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) before: Limit,
    /// The last one is what the keeper means to stand there. Those before it may still stand.
    pub(super) wrote: Vec<Limit>,
}

pub(super) type Changes = BTreeMap<usize, Changed>;

/// Why a state file says nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    #[error("{0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    #[error(
        "{0} is damaged, and ignored: CPUs that an earlier keeper held may still be held (write 0 to pm_qos_resume_latency_us of each that says n/a)"
    )]
    Damaged(PathBuf),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    new: PathBuf,
    boot: String,
}

impl StateFile {
    pub(super) fn new(path: &Path) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        Self { path: path.to_owned(), new: new.into(), boot: boot.trim().to_owned() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What an earlier keeper has changed and not restored since the machine booted.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(super) fn read(&self) -> Result<Changes, StateError> {
        let text = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Changes::new()),
            Err(error) => return Err(StateError::Read(self.path.clone(), error)),
            Ok(bytes) => String::from_utf8(bytes).ok(),
        };
        let parsed = text.and_then(|text| parse(&text, &self.boot));
        parsed.ok_or_else(|| StateError::Damaged(self.path.clone()))
    }

    /// Says it, or that nothing has to be undone: then there is no file.
    ///
    /// # Errors
    /// The directory is missing, full, or may not be written. What was said before stands.
    pub(super) fn write(&self, changes: &Changes) -> io::Result<()> {
        if changes.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        // A crash of the machine undoes what is in sysfs too: there is nothing to flush.
        let written = fs::write(&self.new, text(changes, &self.boot));
        let renamed = written.and_then(|()| fs::rename(&self.new, &self.path));
        if renamed.is_err() {
            // A part of it takes room that is wanted. It may not be there.
            let _ = fs::remove_file(&self.new);
        }
        renamed
    }
}

fn text(changes: &Changes, boot: &str) -> String {
    let mut text = format!("{HEADER}\nboot {boot}\n");
    for (cpu, Changed { before, wrote }) in changes {
        let wrote: Vec<_> = wrote.iter().map(ToString::to_string).collect();
        // A string takes everything.
        let _ = writeln!(text, "cpu {cpu} before {before} wrote {}", wrote.join(","));
    }
    text + END + "\n"
}

/// `None` if it is damaged.
fn parse(text: &str, boot: &str) -> Option<Changes> {
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next() != Some(HEADER) || lines.next_back() != Some(END) {
        return None;
    }
    let is_of_this_boot = lines.next()?.strip_prefix("boot ")? == boot;
    let changes = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let ["cpu", cpu, "before", before, "wrote", wrote] = words[..] else { return None };
        let wrote = wrote.split(',').map(Limit::parse).collect::<Option<Vec<_>>>()?;
        Some((cpu.parse().ok()?, Changed { before: Limit::parse(before)?, wrote }))
    });
    let changes: Changes = changes.collect::<Option<_>>()?;
    // The machine's values are as it booted with them.
    Some(if is_of_this_boot { changes } else { Changes::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Changes {
        let held = Limit::Microseconds(0);
        let one = Changed { before: Limit::None, wrote: vec![held] };
        let two =
            Changed { before: Limit::Microseconds(100), wrote: vec![held, Limit::Microseconds(5)] };
        Changes::from([(0, one), (17, two)])
    }

    #[test]
    fn what_is_written_is_read() {
        let text = text(&changes(), "b");
        assert_eq!(parse(&text, "b"), Some(changes()));
        assert_eq!(
            text,
            "wakeful-keeper 1\nboot b\ncpu 0 before 0 wrote n/a\ncpu 17 before 100 wrote n/a,5\nend\n"
        );
    }

    #[test]
    fn another_boot_has_other_values() {
        assert_eq!(parse(&text(&changes(), "b"), "c"), Some(Changes::new()));
    }

    #[test]
    fn a_file_that_is_not_whole_is_damaged() {
        let whole = text(&changes(), "b");
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length], "b"), None, "{length}");
        }
        for (from, to) in [("wrote n/a", "wrote x"), ("cpu 0", "cpu -1"), ("before 0", "before")] {
            assert_eq!(parse(&whole.replacen(from, to, 1), "b"), None, "{from}");
        }
    }

    #[test]
    fn nothing_to_undo_is_no_file_and_a_missing_directory_is_an_error() {
        let path = std::env::temp_dir().join(format!("wakeful-state-{}", std::process::id()));
        let file = StateFile::new(&path);
        assert_eq!(file.read().unwrap(), Changes::new());
        file.write(&changes()).unwrap();
        assert_eq!(file.read().unwrap(), changes());
        file.write(&Changes::new()).unwrap();
        assert!(!path.exists());
        file.write(&Changes::new()).unwrap();
        fs::write(&path, "\0").unwrap();
        assert!(file.read().unwrap_err().to_string().contains("is damaged"));
        fs::remove_file(&path).unwrap();
        assert!(StateFile::new(Path::new("/nonexistent/state")).write(&changes()).is_err());
    }
}
