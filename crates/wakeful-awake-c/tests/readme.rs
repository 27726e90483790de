//! The README's program is compiled by the README's command, and runs.

use std::fs;
use std::process::Command;

use doc_pages::{blocks, command_lines, is_installed, root};

#[test]
fn the_readme_s_program_is_compiled_and_runs() {
    if !is_installed("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("server.c");
    let program = folder.path().join("server");
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let (blocks, lines) = (blocks("c"), command_lines("cc"));
    assert!(!blocks.is_empty() && !lines.is_empty());
    for (block, line) in blocks.iter().flat_map(|block| lines.iter().map(move |line| (block, line)))
    {
        fs::write(&source, &block.text).unwrap();
        let words = line.words[1..].iter().map(|word| match word.strip_prefix("target/release/") {
            Some(library) => libraries.join(library),
            None if word == "server.c" => source.clone(),
            None => word.into(),
        });
        let mut cc = Command::new("cc");
        cc.current_dir(root()).args(words).args(["-Wall", "-Wextra", "-Werror", "-o"]);
        let output = cc.arg(&program).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} by {}: {said}", block.place, line.place);
        assert!(Command::new(&program).status().unwrap().success());
    }
}
