//! No example slips by: of each block's language, and of each program that a block starts, it is
//! said here what checks it, or why nothing does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use doc_pages::{CommandLine, blocks, command_lines, pages, root};

const LANGUAGES: [(&str, &str); 13] = [
    ("", "a drawing, or what a program prints: nothing to run"),
    ("c", "compiled: crates/wakeful-awake-c/tests/readme.rs"),
    ("console", "its command lines, below"),
    ("diff", "compiled as what is there afterwards: proof/docs/tests/fragments.rs"),
    ("dockerfile", "compared: proof/docs/tests/container.rs"),
    ("ini", "read by systemd: proof/docs/tests/systemd.rs"),
    ("json", "compared: crates/wakeful-cli/tests/access_log_page.rs"),
    ("proto", "compiled: proof/docs/build.rs; compared: proof/docs/tests/fragments/grpc_pod.rs"),
    ("rust", "a doctest; or compiled: proof/docs/tests/fragments.rs"),
    ("sh", "its command lines, below"),
    ("text", "what a program prints: nothing to run"),
    ("toml", "dependencies: proof/docs/tests/cargo.rs; settings: crates/wakeful-cli/src/docs.rs"),
    ("yaml", "read as Prometheus and Kubernetes do: proof/docs/tests/yaml.rs"),
];

const CARGO: &str = "what it names exists: proof/docs/tests/cargo.rs";
const FILES: &str = "the files of this repository exist: proof/docs/tests/cargo.rs";
const OPTIONS: &str = "its options are compared with its help: proof/docs/tests/others.rs";
const PEERS: &str = "parsed by itself: proof/peers/peer-tests/tests/docs.rs";
const SHELL: &str = "of the shell, which reads each block: here";

const PROGRAMS: [(&str, &str); 44] = [
    ("[", SHELL),
    ("apt-get", "not run: it changes the machine; the names are Debian's"),
    ("axum-tokio", PEERS),
    ("axum-wakeful", PEERS),
    ("break", SHELL),
    ("cargo", CARGO),
    ("cc", "run: crates/wakeful-awake-c/tests/readme.rs"),
    ("cd", FILES),
    ("cp", FILES),
    ("curl", OPTIONS),
    ("docker", "not run: CI has no Docker. .ci/container takes the file's steps"),
    ("done", SHELL),
    ("echo", SHELL),
    ("epoll", PEERS),
    ("export", SHELL),
    ("for", SHELL),
    ("gdb", "not run: large, and it needs a process that hangs"),
    ("grep", SHELL),
    ("grpcurl", "not run here: .ci/tls-clients and .ci/grpc-clients call services with it"),
    ("h2load", OPTIONS),
    ("hello_axum", "not run: the script that starts it gives it what it needs"),
    ("herd", PEERS),
    ("install", OPTIONS),
    ("jq", "run: crates/wakeful-cli/tests/access_log_page.rs"),
    ("kill", SHELL),
    ("kubectl", "not run: CI has no cluster. .ci/packaging checks the manifest"),
    ("my-service", "not run: the reader's own"),
    ("openssl", OPTIONS),
    ("perf", "not run: it belongs to a kernel, and needs its permission"),
    ("ps", "run: proof/docs/tests/others.rs"),
    ("psql", "not run: it needs the reader's database"),
    ("ready-list", PEERS),
    ("redis-server", "not run here: the documentation's options are settings of its own file"),
    ("sleep", SHELL),
    ("small_echo", "not run: the script that starts it gives it what it needs"),
    ("systemctl", OPTIONS),
    ("systemd-sysusers", "not run: it changes the machine, and has no options here"),
    ("tokio-current-thread", PEERS),
    ("tokio-multi-thread", PEERS),
    ("tokio-on-wakeful", PEERS),
    ("trap", SHELL),
    ("usermod", OPTIONS),
    ("wakeful", "parsed by itself: crates/wakeful-cli/src/docs.rs"),
    ("wakeful-sim", "parsed by itself: proof/sim/src/bin/wakeful-sim"),
];

/// What is known is used, what is used is known, and the files that check are there.
fn compare(used: &BTreeMap<String, String>, known: &[(&str, &str)]) {
    let names: BTreeSet<_> = known.iter().map(|(name, _)| (*name).to_owned()).collect();
    let unknown: Vec<_> = used.iter().filter(|(name, _)| !names.contains(*name)).collect();
    assert!(unknown.is_empty(), "no check knows these: {unknown:#?}");
    let unused: Vec<_> = names.iter().filter(|name| !used.contains_key(*name)).collect();
    assert!(unused.is_empty(), "no page has these any more: {unused:?}");
    let words = known.iter().flat_map(|(_, how)| how.split([' ', ';']));
    for file in words.filter(|word| word.contains('/')) {
        assert!(root().join(file.trim_end_matches('.')).exists(), "there is no {file}");
    }
}

#[test]
fn each_language_is_known() {
    let blocks = pages().into_iter().flat_map(|page| page.blocks());
    let used = blocks.map(|block| (block.language, block.place.to_string())).collect();
    compare(&used, &LANGUAGES);
}

/// The program; and those of the commands that another program gets, as `NAME=COMMAND`, and behind
/// `--`.
fn programs(line: &CommandLine) -> Vec<String> {
    let is_command = |word: &&String| ["{addr}", "{port}"].iter().any(|name| word.contains(name));
    let commands = line.words.iter().filter(is_command);
    let inner = commands.map(|word| word.split_once('=').map_or(&word[..], |(_, command)| command));
    let is_wakeful = line.words[0].ends_with("wakeful");
    let behind = line.words.iter().skip_while(|word| is_wakeful && *word != "--").nth(1);
    let behind = behind.filter(|_| is_wakeful).map(String::as_str);
    let paths = inner.chain(behind).chain([line.words[0].as_str()]);
    paths.map(|path| path.split(' ').next().unwrap_or_default().to_owned()).collect()
}

/// A script of this repository, as the folder of the page or the root has it.
fn script(line: &CommandLine, program: &str) -> Option<String> {
    let folder = root().join(&line.place.file).parent()?.to_owned();
    let is_path = program.contains('/') && !program.contains("target/");
    let mut files = [root().join(program), folder.join(program)].into_iter();
    files.find_map(|file| fs::read_to_string(file).ok()).filter(|_| is_path)
}

#[test]
fn each_program_is_known() {
    let mut used = BTreeMap::new();
    for line in command_lines("").iter().filter(|line| line.is_whole) {
        for program in programs(line) {
            let Some(script) = script(line, &program) else {
                let name = program.rsplit('/').next().unwrap_or_default();
                used.insert(name.to_owned(), line.place.to_string());
                continue;
            };
            for option in line.words.iter().filter(|word| word.starts_with("--")) {
                assert!(script.contains(option), "{}: {program} has no {option}", line.place);
            }
        }
    }
    compare(&used, &PROGRAMS);
}

#[test]
fn the_shell_reads_each_block() {
    let mut count = 0;
    for block in blocks("console").into_iter().chain(blocks("sh")) {
        let lines = block.text.lines().map(|line| {
            line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")).unwrap_or(line)
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let output = Command::new("bash").args(["-n", "-c", &text]).output().expect("bash");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", block.place);
        count += 1;
    }
    assert!(count >= 40, "only {count} found");
}

#[test]
fn commands_stand_only_where_they_are_found() {
    for block in blocks("").into_iter().chain(blocks("text")) {
        let is_command = |line: &str| line.starts_with("$ ");
        assert!(!block.text.lines().any(is_command), "{}: say console", block.place);
    }
}

#[test]
fn settings_and_dependencies_are_told_apart() {
    for block in blocks("toml") {
        let is_settings = block.text.starts_with("# /");
        let is_known = is_settings || block.text.contains("dependencies]");
        assert!(is_known, "{}: neither a named file nor dependencies", block.place);
    }
}
