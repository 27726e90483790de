//! Each command line of a peer in the documentation is valid: the program reads it, and then prints
//! its help.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use doc_pages::command_lines;
use peer_tests::{Language, program};

/// The programs that pages start.
const STARTED: [&str; 8] = [
    "axum-tokio",
    "axum-wakeful",
    "epoll",
    "herd",
    "ready-list",
    "tokio-current-thread",
    "tokio-multi-thread",
    "tokio-on-wakeful",
];

#[test]
fn each_program_takes_its_command_lines() -> Result<()> {
    for name in STARTED {
        let mut count = 0;
        for line in command_lines(name).iter().filter(|line| line.is_whole) {
            count += 1;
            let words = line.words[1..].iter().map(|word| word.replace("{addr}", "127.0.0.1:0"));
            let mut command = Command::new(program(Language::Rust, name)?);
            // `--help` is the last word, so that all words before it have been read.
            command.args(words).arg("--help").stdin(Stdio::null());
            let output = command.output().context(name)?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{}: {name}: {said}", line.place);
        }
        ensure!(count > 0, "no page starts {name} any more");
    }
    Ok(())
}
