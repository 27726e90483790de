//! A command that spins before it sleeps: it is started with `libwakeful_spin.so` in `LD_PRELOAD`.
//!
//! The library is a file next to this program or in `../lib`, where a package installs it. It is
//! not embedded in this program, because a build script would have to run Cargo within Cargo. That
//! fails after `cargo package` and `cargo install`, which leave no workspace. It builds the runtime
//! twice for each profile, including clippy's. And it would have to pass on the flags of cross
//! builds and sanitizers. `LD_PRELOAD` needs a file anyway, because child processes must find it by
//! its path after this program has ended.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::param::linux_execfn;

use super::elf::{Loaded, find};

const LIBRARY: &str = "libwakeful_spin.so";
/// The variable with the library's path, if it is elsewhere.
const ELSEWHERE: &str = "WAKEFUL_SPIN_LIBRARY";
const PRELOAD: &str = "LD_PRELOAD";

/// Makes the command spin. If it can be known that the command will not spin, returns the reason.
///
/// # Errors
/// A line for the user: no library can be preloaded.
pub(super) fn prepare(
    command: &mut Command,
    max_cpu: Option<f64>,
) -> Result<Option<String>, String> {
    let library = library()?;
    command.env(PRELOAD, appended(env::var_os(PRELOAD), &library)).env("WAKEFUL_SPIN", "1");
    match max_cpu {
        Some(share) => command.env("WAKEFUL_SPIN_MAX_CPU", share.to_string()),
        None => command.env_remove("WAKEFUL_SPIN_MAX_CPU"),
    };
    Ok(why_not(command.get_program()))
}

fn library() -> Result<PathBuf, String> {
    let places = match env::var_os(ELSEWHERE) {
        Some(file) => vec![PathBuf::from(file)],
        None => places(&this_program()),
    };
    let Some(library) = places.iter().find(|file| file.is_file()) else {
        let looked: Vec<_> = places.iter().map(|file| file.display().to_string()).collect();
        return Err(format!(
            "--spin: there is no {LIBRARY}: looked for {}. `cargo build --release -p wakeful-spin` builds it, as target/release/{LIBRARY}. \
             Put it there, or name its file: {ELSEWHERE}=FILE. Without it, CPUs may be held instead: leave --spin out",
            looked.join(" and ")
        ));
    };
    // The path must be absolute, because the command may run in another directory.
    let library = library.canonicalize();
    let library = library.map_err(|error| format!("--spin: {LIBRARY}: {error}"))?;
    // ld.so(8) has no quotes, so such a path cannot be given.
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" \t\n:$".contains(byte)) {
        return Err(format!(
            "--spin: {} cannot be preloaded, since its path has a blank, a colon or a dollar: move it",
            library.display()
        ));
    }
    Ok(library)
}

/// The path of this program. Without `/proc` it is the path by which the kernel was told to start
/// it.
fn this_program() -> PathBuf {
    env::current_exe().unwrap_or_else(|_| {
        let path = PathBuf::from(OsStr::from_bytes(linux_execfn().to_bytes()));
        // If the path is a link, the library is next to the file that it leads to.
        path.canonicalize().unwrap_or(path)
    })
}

/// The possible folders: that of the program, and the one where a package has libraries.
fn places(program: &Path) -> Vec<PathBuf> {
    let Some(folder) = program.parent() else { return Vec::new() };
    let lib = folder.parent().map(|above| above.join("lib").join(LIBRARY));
    [Some(folder.join(LIBRARY)), lib].into_iter().flatten().collect()
}

/// Appends the library to `preload`, unless it is there already.
fn appended(preload: Option<OsString>, library: &Path) -> OsString {
    let Some(mut preload) = preload.filter(|preload| !preload.is_empty()) else {
        return library.into();
    };
    let mut present = preload.as_encoded_bytes().split(|byte| b" :".contains(byte));
    if !present.any(|file| file == library.as_os_str().as_encoded_bytes()) {
        preload.push(":");
        preload.push(library);
    }
    preload
}

/// Why the loader will not load the library into this program. It may still load it into the
/// program's children.
fn why_not(program: &OsStr) -> Option<String> {
    let file = find(program)?;
    let is_set_id = file.metadata().is_ok_and(|data| data.permissions().mode() & 0o6000 != 0);
    let own = Loaded::of(Path::new("/proc/self/exe")).ok();
    let why = match Loaded::of(&file).ok()? {
        _ if is_set_id => {
            "it is set-user-ID or set-group-ID, and the loader preloads nothing".into()
        }
        Loaded::Statically => "it is linked statically, and nothing can be preloaded".into(),
        Loaded::Foreign => "it is of another architecture than the library".into(),
        Loaded::By(loader) => match own? {
            Loaded::By(own) if !is_same(&own, &loader) => {
                format!(
                    "its loader is {}, and the library's is {}",
                    loader.display(),
                    own.display()
                )
            }
            _ => return None,
        },
        Loaded::ByAnother => return None,
    };
    Some(format!("{} does not spin: {why}", program.display()))
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || one.canonicalize().ok().is_some_and(|one| other.canonicalize().ok() == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_stays_in_front() {
        let library = Path::new("/usr/lib/libwakeful_spin.so");
        let after = |preload: Option<&str>| appended(preload.map(OsString::from), library);
        assert_eq!(after(None), library);
        assert_eq!(after(Some("")), library);
        assert_eq!(after(Some("a.so")), "a.so:/usr/lib/libwakeful_spin.so");
        let twice = "a.so /usr/lib/libwakeful_spin.so:b.so";
        assert_eq!(after(Some(twice)), twice);
    }

    #[test]
    fn it_is_looked_for_beside_the_program_and_among_libraries() {
        let places = places(Path::new("/usr/bin/wakeful"));
        assert_eq!(
            places,
            ["/usr/bin/libwakeful_spin.so", "/usr/lib/libwakeful_spin.so"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_program_of_this_loader_spins() {
        assert_eq!(why_not(OsStr::new("/proc/self/exe")), None);
        assert_eq!(why_not(OsStr::new("/nonexistent")), None, "the start says so");
    }
}
