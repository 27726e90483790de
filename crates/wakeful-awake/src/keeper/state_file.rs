//! What a successor must undo if this keeper is killed: for each CPU the value before the first
//! hold, and the values that the keeper may have written since.
//!
//! It is written before the CPU's file, under another name, and then renamed. So whenever the
//! keeper dies, the file is complete, and names every value of ours that stands in a CPU's file. A
//! value that is not named there belongs to another program.
//!
//! ```text
//! wakeful-keeper 2
//! boot 5f0c…
//! cpu 0 before 0 wrote n/a holds 1
//! cpu 1 before 0 wrote n/a,5 holds 0
//! end
//! ```
//!
//! A line with `holds 0` belongs to a CPU that was released. Its file has the previous value again.
//! Any other value belongs to another program, even if it is one that the keeper wrote earlier. The
//! line stays for a while, so that a CPU that is held again gets its `1` by one write of one byte,
//! in place. Such a write is either done or not done, whenever the keeper dies.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::cpu_files::Limit;

const HEADER: &str = "wakeful-keeper 2";
/// The first line of the old format. Its lines have no `holds`, so all CPUs count as held.
const HEADER_BEFORE: &str = "wakeful-keeper 1";
const END: &str = "end";

/// The changes to one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) before: Limit,
    /// The values that the keeper has written. The last one is the intended value. Earlier ones may
    /// still be in the file.
    pub(super) wrote: Vec<Limit>,
    /// `true`: one of these values may be in the file. `false`: the file has the value `before`, or
    /// one of another program.
    pub(super) holds: bool,
}

impl Changed {
    /// Nothing yet.
    pub(super) fn nothing(before: Limit) -> Self {
        Self { before, wrote: Vec::new(), holds: false }
    }

    fn is_same_line(&self, other: &Self) -> bool {
        self.before == other.before && self.wrote == other.wrote
    }
}

pub(super) type Changes = BTreeMap<usize, Changed>;

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateError {
    #[error("{0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    #[error(
        "the state file {0} is damaged, and ignored: CPUs that an earlier keeper held may still \
         be held (where a CPU's pm_qos_resume_latency_us says n/a, write 0 to it)"
    )]
    Damaged(PathBuf),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    new: PathBuf,
    boot: String,
    /// What was written last.
    written: Option<Written>,
}

#[derive(Debug)]
struct Written {
    file: File,
    /// The position of each CPU's `holds`.
    marks: BTreeMap<usize, u64>,
}

/// If more marks than this change, writing the whole file takes fewer system calls.
const MOST_MARKS: usize = 4;

/// More than the lines of all CPUs that Linux supports.
const MOST_BYTES: u64 = 4 << 20;

impl StateFile {
    pub(super) fn new(path: &Path) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        Self { path: path.to_owned(), new: new.into(), boot: boot.trim().to_owned(), written: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what an earlier keeper has changed and not restored since the machine booted.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(super) fn read(&self) -> Result<Changes, StateError> {
        let text = match self.bytes() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Changes::new()),
            Err(error) => return Err(StateError::Read(self.path.clone(), error)),
            Ok(bytes) => String::from_utf8(bytes).ok(),
        };
        let parsed = text.and_then(|text| parse(&text, &self.boot));
        parsed.ok_or_else(|| StateError::Damaged(self.path.clone()))
    }

    /// Opens the file so that something else at its path, for example a FIFO or an endless device,
    /// cannot block the keeper.
    fn bytes(&self) -> io::Result<Vec<u8>> {
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(nonblocking).open(&self.path)?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Stores `changes`. If nothing must be undone, the file is removed. `stored` is always the
    /// file's content, even after an error.
    ///
    /// # Errors
    /// The directory is missing, full, or may not be written.
    pub(super) fn update(&mut self, stored: &mut Changes, changes: &Changes) -> io::Result<()> {
        if !matches!(self.mark(stored, changes), Ok(true)) {
            self.write(changes)?;
            stored.clone_from(changes);
        }
        Ok(())
    }

    /// Marks single CPUs in place. `false`: the whole file must be written.
    fn mark(&self, stored: &mut Changes, changes: &Changes) -> io::Result<bool> {
        let Some(Written { file, marks }) = &self.written else { return Ok(false) };
        let is_same =
            |((cpu, one), (other_cpu, other)): ((&usize, &Changed), (&usize, &Changed))| {
                cpu == other_cpu && one.is_same_line(other)
            };
        if stored.len() != changes.len() || !stored.iter().zip(changes).all(is_same) {
            return Ok(false);
        }
        let differ = || stored.values().zip(changes.values()).filter(|(one, other)| one != other);
        // The file may have been removed, and then a successor would not find it.
        if differ().count() > MOST_MARKS || file.metadata()?.nlink() == 0 {
            return Ok(false);
        }
        for ((cpu, stored), changed) in stored.iter_mut().zip(changes.values()) {
            if stored.holds != changed.holds {
                let Some(at) = marks.get(cpu) else { return Ok(false) };
                file.write_all_at(mark(changed.holds).as_bytes(), *at)?;
                stored.holds = changed.holds;
            }
        }
        Ok(true)
    }

    fn write(&mut self, changes: &Changes) -> io::Result<()> {
        if changes.is_empty() {
            self.written = None;
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let (text, marks) = text(changes, &self.boot);
        // The file need not be flushed, because a crash of the machine also undoes the values in
        // sysfs.
        let written = File::create(&self.new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            fs::rename(&self.new, &self.path)?;
            Ok(Written { file, marks })
        });
        match written {
            Ok(written) => {
                self.written = Some(written);
                Ok(())
            }
            Err(error) => {
                // A part of the file may exist, and takes room. An error means that it does not
                // exist.
                let _ = fs::remove_file(&self.new);
                Err(error)
            }
        }
    }
}

fn mark(holds: bool) -> &'static str {
    if holds { "1" } else { "0" }
}

/// The text, and the position of each CPU's mark in it.
fn text(changes: &Changes, boot: &str) -> (String, BTreeMap<usize, u64>) {
    let mut text = format!("{HEADER}\nboot {boot}\n");
    let mut marks = BTreeMap::new();
    for (cpu, Changed { before, wrote, holds }) in changes {
        let wrote: Vec<_> = wrote.iter().map(ToString::to_string).collect();
        // A string takes everything.
        let _ = write!(text, "cpu {cpu} before {before} wrote {} holds ", wrote.join(","));
        marks.insert(*cpu, text.len() as u64);
        text += mark(*holds);
        text += "\n";
    }
    (text + END + "\n", marks)
}

/// `None` if it is damaged.
fn parse(text: &str, boot: &str) -> Option<Changes> {
    let mut lines = text.strip_suffix('\n')?.lines();
    let marks = match lines.next()? {
        HEADER => true,
        HEADER_BEFORE => false,
        _ => return None,
    };
    if lines.next_back() != Some(END) {
        return None;
    }
    let is_of_this_boot = lines.next()?.strip_prefix("boot ")? == boot;
    let changes = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let (words, holds) = match words[..] {
            [.., "holds", "1"] if marks => (&words[..words.len() - 2], true),
            [.., "holds", "0"] if marks => (&words[..words.len() - 2], false),
            _ if marks => return None,
            _ => (&words[..], true),
        };
        let ["cpu", cpu, "before", before, "wrote", wrote] = *words else { return None };
        let wrote = wrote.split(',').map(Limit::parse).collect::<Option<Vec<_>>>()?;
        Some((cpu.parse().ok()?, Changed { before: Limit::parse(before)?, wrote, holds }))
    });
    let changes: Changes = changes.collect::<Option<_>>()?;
    // Since the last boot the CPUs have their initial values.
    Some(if is_of_this_boot { changes } else { Changes::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Changes {
        let held = Limit::Microseconds(0);
        let one = Changed { before: Limit::None, wrote: vec![held], holds: true };
        let wrote = vec![held, Limit::Microseconds(5)];
        let two = Changed { before: Limit::Microseconds(100), wrote, holds: false };
        Changes::from([(0, one), (17, two)])
    }

    #[test]
    fn what_is_written_is_read() {
        let (text, marks) = text(&changes(), "b");
        assert_eq!(parse(&text, "b"), Some(changes()));
        assert_eq!(
            text,
            "wakeful-keeper 2\nboot b\ncpu 0 before 0 wrote n/a holds 1\ncpu 17 before 100 wrote n/a,5 holds 0\nend\n"
        );
        let at = |cpu: usize| &text[usize::try_from(marks[&cpu]).unwrap()..][..2];
        assert_eq!((at(0), at(17)), ("1\n", "0\n"));
    }

    #[test]
    fn in_what_an_earlier_version_wrote_all_cpus_may_be_held() {
        let text = "wakeful-keeper 1\nboot b\ncpu 17 before 100 wrote n/a,5\nend\n";
        let changed = &parse(text, "b").unwrap()[&17];
        assert!(changed.holds && changed.is_same_line(&changes()[&17]));
    }

    #[test]
    fn another_boot_has_other_values() {
        assert_eq!(parse(&text(&changes(), "b").0, "c"), Some(Changes::new()));
    }

    #[test]
    fn a_file_that_is_not_whole_is_damaged() {
        let (whole, _) = text(&changes(), "b");
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length], "b"), None, "{length}");
        }
        for (from, to) in
            [("wrote n/a", "wrote x"), ("cpu 0", "cpu -1"), ("before 0", "before"), ("holds 1", "")]
        {
            assert_eq!(parse(&whole.replacen(from, to, 1), "b"), None, "{from}");
        }
    }

    #[test]
    fn nothing_to_undo_is_no_file_and_a_missing_directory_is_an_error() {
        let path = std::env::temp_dir().join(format!("wakeful-state-{}", std::process::id()));
        let mut file = StateFile::new(&path);
        let none = Changes::new;
        assert_eq!(file.read().unwrap(), none());
        file.update(&mut none(), &changes()).unwrap();
        assert_eq!(file.read().unwrap(), changes());
        file.update(&mut changes(), &none()).unwrap();
        assert!(!path.exists());
        file.update(&mut none(), &none()).unwrap();
        fs::write(&path, "\0").unwrap();
        assert!(file.read().unwrap_err().to_string().contains("is damaged"));
        fs::remove_file(&path).unwrap();
        assert!(
            StateFile::new(Path::new("/nonexistent/state"))
                .update(&mut none(), &changes())
                .is_err()
        );
    }

    #[test]
    fn what_is_no_state_file_is_damaged_and_holds_nobody_up() {
        let fifo = std::env::temp_dir().join(format!("wakeful-fifo-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        for path in [&fifo, Path::new("/dev/zero")] {
            let error = StateFile::new(path).read().unwrap_err();
            assert!(error.to_string().contains("is damaged"), "{error}");
        }
        fs::remove_file(&fifo).unwrap();
    }

    #[test]
    fn a_mark_is_written_in_place_while_the_file_is_there() {
        let path = std::env::temp_dir().join(format!("wakeful-marks-{}", std::process::id()));
        let mut file = StateFile::new(&path);
        file.update(&mut Changes::new(), &changes()).unwrap();
        let number = || fs::metadata(&path).unwrap().ino();
        let first = number();
        let mut stored = changes();
        let mut says = |holds: bool, wrote: Limit| {
            let mut wanted = stored.clone();
            let changed = wanted.get_mut(&17).unwrap();
            changed.holds = holds;
            changed.wrote = vec![wrote];
            file.update(&mut stored, &wanted).unwrap();
            assert_eq!((file.read().unwrap(), &stored), (wanted.clone(), &wanted));
        };
        let (five, six) = (Limit::Microseconds(5), Limit::Microseconds(6));
        says(true, five);
        let second = number();
        assert_ne!(second, first, "another line is another file");
        for holds in [false, true, false] {
            says(holds, five);
            assert_eq!(number(), second, "written in place");
        }
        says(true, six);
        let _held_open = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        says(false, six);
        fs::remove_file(&path).unwrap();
    }
}
