//! Finds out how a program is loaded: whether it loads libraries, and by which loader.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PROGRAM_HEADER_INTERPRETER: u32 = 3;
const CLASS_64: u8 = 2;
const DATA_NATIVE: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };
/// A loader with a longer path is not examined.
const LONGEST: u64 = 4096;

/// How a file that can be run is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Loaded {
    /// By the loader that the file names.
    By(PathBuf),
    /// By the kernel alone, because it is linked statically.
    Statically,
    /// The program has another word size or byte order than this one.
    Foreign,
    /// The file is not an ELF file, but a script.
    ByAnother,
}

impl Loaded {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut header = [0; 64];
        match file.read_exact(&mut header) {
            Ok(()) if header.starts_with(b"\x7fELF") => {}
            Ok(()) => return Ok(Self::ByAnother),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(Self::ByAnother);
            }
            Err(error) => return Err(error),
        }
        if (header[4], header[5]) != (CLASS_64, DATA_NATIVE) {
            return Ok(Self::Foreign);
        }
        let (table, size, count) = (long(&header, 32), short(&header, 54), short(&header, 56));
        for number in 0..u64::from(count) {
            let mut entry = [0; 56];
            file.read_exact_at(&mut entry, table.saturating_add(number * u64::from(size)))?;
            if word(&entry, 0) == PROGRAM_HEADER_INTERPRETER {
                let mut text = vec![0; long(&entry, 32).min(LONGEST) as usize];
                file.read_exact_at(&mut text, long(&entry, 8))?;
                text.retain(|byte| *byte != 0);
                return Ok(Self::By(OsString::from_vec(text).into()));
            }
        }
        Ok(Self::Statically)
    }
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// The file of a command, as `execvp(3)` finds it.
pub(super) fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = env::var_os("PATH")?;
    let is_program = |file: &PathBuf| {
        let data = file.metadata();
        data.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_names_its_loader_and_a_script_is_none() {
        let own = Loaded::of(Path::new("/proc/self/exe")).unwrap();
        assert!(matches!(own, Loaded::By(_) | Loaded::Statically), "{own:?}");
        assert_eq!(Loaded::of(Path::new("/proc/self/comm")).unwrap(), Loaded::ByAnother);
        assert!(Loaded::of(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn a_command_without_a_slash_is_looked_for() {
        assert!(find(OsStr::new("sh")).is_some_and(|file| file.ends_with("sh") && file.is_file()));
        assert_eq!(find(OsStr::new("no such command")), None);
        assert_eq!(find(OsStr::new("./x")), Some("./x".into()));
    }
}
