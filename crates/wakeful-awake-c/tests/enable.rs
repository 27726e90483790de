//! A C program, compiled against the header and each of the libraries.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// May not use the device.
const USER: u32 = 54_323;
const EACCES: i32 = 13;
const ENOENT: i32 = 2;

/// The program, or `None` where there is no compiler.
fn compiled(folder: &Path, library: &str) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no C compiler (cc)");
        return None;
    }
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(library);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-std=c99", "-pedantic", "-I"]);
    cc.arg(package.join("include")).arg(package.join("tests/enable.c"));
    cc.arg("-o").arg(&program).arg(libraries.join(library));
    cc.args(["-lpthread", "-ldl", "-lm"]);
    cc.arg(format!("-Wl,-rpath,{}", libraries.display()));
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// The code and the text that it prints.
fn said(command: &mut Command) -> Option<(i32, String)> {
    let output = command.output().ok()?;
    assert!(output.status.success(), "{}", output.status);
    let said = String::from_utf8(output.stdout).unwrap();
    let (code, text) = said.trim_end_matches('\n').split_once(' ').unwrap();
    Some((code.parse().unwrap(), text.to_owned()))
}

fn check(library: &str) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled(folder.path(), library) else { return };
    let (code, text) = said(&mut Command::new(&program)).unwrap();
    assert_eq!(code == 0, text.is_empty(), "{code} {text}");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let mut as_user = Command::new(&program);
    as_user.uid(USER).gid(USER).current_dir("/");
    let Some((code, text)) = said(&mut as_user) else {
        eprintln!("skipped: the program cannot be run as another user");
        return;
    };
    assert!([EACCES, ENOENT].contains(&code), "{code} {text}");
    assert!(text.contains("/dev/cpu_dma_latency"), "{text}");
}

#[test]
fn a_c_program_links_the_static_library() {
    check("libwakeful_awake_c.a");
}

#[test]
fn a_c_program_links_the_shared_library() {
    check("libwakeful_awake_c.so");
}
