//! systemd understands the units, those in files and those on pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use doc_pages::{blocks, is_installed, root};

/// What a page's lines without a name change.
const UNIT: &str = "packaging/systemd/wakeful.service";

/// Units that belong together, by name.
type Units = BTreeMap<String, String>;

/// By what holds them: a folder, or a block.
fn all() -> BTreeMap<String, Units> {
    let mut all = BTreeMap::<String, Units>::new();
    for block in blocks("ini") {
        let file = Path::new(&block.place.file);
        if file.extension().is_none_or(|end| end != "md") {
            let folder = file.parent().unwrap().display().to_string();
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            all.entry(folder).or_default().insert(name, block.text);
            continue;
        }
        let units = all.entry(block.place.to_string()).or_default();
        if !block.text.starts_with("# /") {
            units.insert("changed.service".to_owned(), changed(&block.text));
            continue;
        }
        for text in block.text.split("# /").skip(1) {
            let (path, text) = text.split_once('\n').unwrap();
            let name = path.rsplit('/').next().unwrap();
            units.insert(name.to_owned(), text.to_owned());
        }
    }
    all
}

/// The unit of the package, with these lines instead of its own.
fn changed(lines: &str) -> String {
    let unit = fs::read_to_string(root().join(UNIT)).unwrap();
    let key = |line: &str| line.split_once('=').map(|(key, _)| key.to_owned());
    let keys: Vec<_> = lines.lines().filter_map(key).collect();
    let kept = unit.lines().filter(|line| key(line).is_none_or(|key| !keys.contains(&key)));
    kept.chain(lines.lines()).map(|line| format!("{line}\n")).collect()
}

/// Before version 253 nobody knows notify-reload.
fn kind() -> &'static str {
    let output = Command::new("systemctl").arg("--version").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let version: u32 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    if version >= 253 { "notify-reload" } else { "notify" }
}

/// The programs are not installed here.
fn with_a_program(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix("ExecStart=/usr/local/bin/") {
        Some(words) => format!("ExecStart=/bin/true {words}\n"),
        None => format!("{}\n", line.replace("Type=notify-reload", &format!("Type={}", kind()))),
    };
    text.lines().map(line).collect()
}

#[test]
fn systemd_understands_all_units() {
    let all = all();
    assert!(all.len() >= 4, "only {:?} found", all.keys());
    if !is_installed("systemd-analyze") {
        return;
    }
    for (place, units) in all {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no"]);
        for (name, text) in units {
            fs::write(folder.path().join(&name), with_a_program(&text)).unwrap();
            command.arg(folder.path().join(name));
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // What is wrong with other units of this machine does not count.
        let wrong: Vec<_> = said
            .lines()
            .filter(|line| !line.starts_with("/lib") && !line.starts_with("/usr/lib"))
            .collect();
        assert!(wrong.is_empty(), "{place}: {wrong:#?}");
        assert!(output.status.success(), "{place}: {said}");
    }
}
