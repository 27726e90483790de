//! The check can fail: crates of a few lines, in order and not.

use std::fs;
use std::process::Command;

/// Runs the program on a crate of these files, with `top` above `bottom`. Returns its exit code and
/// what it printed.
fn check(files: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let layers = "[example]\nroot = \"lib.rs\"\nlayers = [\"top\", \"bottom\"]\n";
    fs::write(folder.path().join("layers.toml"), layers).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_module-graph"));
    let output = program.arg("layers.toml").current_dir(folder.path()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

const ROOT: (&str, &str) = ("lib.rs", "mod bottom;\nmod top;\npub use top::Top;\n");
const TOP: (&str, &str) = ("top.rs", "use crate::bottom::Bottom;\npub struct Top(Bottom);\n");

#[test]
fn imports_that_run_down_are_in_order_and_tests_do_not_count() {
    let bottom = "pub struct Bottom;\n#[cfg(test)]\nmod tests {\n    use crate::top::Top;\n}\n";
    let (code, said) = check(&[ROOT, TOP, ("bottom.rs", bottom)]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("top (1 files, 2 lines) -> bottom"), "{said}");
}

#[test]
fn an_import_that_runs_up_is_refused_also_by_a_path_in_the_code_or_in_a_macro() {
    for body in ["crate::top::go()", "assert!(crate::top::go())", "crate::Top::go()"] {
        let top =
            ("top.rs", "pub struct Top;\nimpl Top {\n    pub fn go() {}\n}\npub fn go() {}\n");
        let bottom = format!("pub fn run() {{\n    {body}\n}}\n");
        let (code, said) = check(&[ROOT, top, ("bottom.rs", &bottom)]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("UP bottom.rs -> top.rs"), "{said}");
    }
}

#[test]
fn a_circle_within_a_room_is_refused_whatever_re_exports_it_goes_by() {
    let top = "mod one;\nmod two;\npub use one::One as Top;\npub use two::Two;\n";
    let one = "use super::Two;\npub struct One(Two);\n";
    let two = "pub struct Two(Option<Box<super::Top>>);\n";
    let (code, said) = check(&[
        ROOT,
        ("bottom.rs", ""),
        ("top/mod.rs", top),
        ("top/one.rs", one),
        ("top/two.rs", two),
    ]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("CIRCLE"), "{said}");
}

#[test]
fn a_room_without_a_layer_is_an_error() {
    let root = ("lib.rs", "mod bottom;\nmod other;\nmod top;\n");
    let other = ("other.rs", "use crate::bottom::Bottom;\n");
    let (code, _) = check(&[root, TOP, ("bottom.rs", "pub struct Bottom;\n"), other]);
    assert_eq!(code, Some(2));
}
