//! What the documentation has `cargo` do, and the dependencies that it shows: packages, targets and
//! features exist.

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts::ARCH;
use std::path::Path;
use std::process::Command;

use doc_pages::{CommandLine, command_lines, pages, root};
use serde_json::Value;

/// Folders with a workspace. Command lines on a page of such a folder are for it.
const WORKSPACES: [&str; 5] = ["", "ports", "proof/benches", "proof/fuzz", "proof/peers"];

struct Package {
    name: String,
    folder: String,
    version: String,
    features: BTreeSet<String>,
    /// Kind and name, as `example` and `echo`, with the features that it needs.
    targets: BTreeMap<(String, String), Vec<String>>,
}

fn texts(values: &Value) -> impl Iterator<Item = String> {
    values.as_array().into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned))
}

/// The packages of a workspace; `others`: and all that they depend on.
fn packages(folder: &str, others: bool) -> Vec<Package> {
    let mut command = Command::new(env!("CARGO"));
    let manifest = root().join(folder).join("Cargo.toml");
    command.args(["metadata", "--format-version", "1", "--offline", "--manifest-path"]);
    command.arg(manifest);
    if others {
        // What only other systems need may not be there.
        command.args(["--filter-platform", &format!("{ARCH}-unknown-linux-gnu")]);
    } else {
        command.arg("--no-deps");
    }
    let output = command.output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let package = |package: &Value| {
        let text = |key: &str| package[key].as_str().expect("a text").to_owned();
        let targets = package["targets"].as_array().expect("targets").iter().map(|target| {
            let kind = target["kind"][0].as_str().expect("a kind").to_owned();
            let name = target["name"].as_str().expect("a name").to_owned();
            ((kind, name), texts(&target["required-features"]).collect())
        });
        let manifest = text("manifest_path");
        Package {
            name: text("name"),
            folder: manifest.trim_end_matches("/Cargo.toml").to_owned(),
            version: text("version"),
            features: package["features"].as_object().expect("features").keys().cloned().collect(),
            targets: targets.collect(),
        }
    };
    metadata["packages"].as_array().expect("packages").iter().map(package).collect()
}

/// The workspace that a command line is for.
fn workspace(line: &CommandLine) -> Result<&'static str, String> {
    let folder = Path::new(&line.place.file).parent().expect("a folder");
    let of_page = WORKSPACES.into_iter().rfind(|workspace| folder.starts_with(workspace));
    let of_page = of_page.expect("that of the root");
    let Some(manifest) = values(line, "--manifest-path").next() else { return Ok(of_page) };
    // From the root; or from the folder of the workspace, where its page says so.
    [root(), root().join(of_page)]
        .iter()
        .filter_map(|from| from.join(manifest).canonicalize().ok())
        .find_map(|file| {
            let is_its = |name: &&str| {
                root().join(name).join("Cargo.toml").canonicalize().is_ok_and(|its| its == file)
            };
            WORKSPACES.into_iter().find(is_its)
        })
        .ok_or_else(|| format!("there is no workspace {manifest}"))
}

/// What stands behind an option, before what cargo passes on.
fn values<'a>(line: &'a CommandLine, option: &str) -> impl Iterator<Item = &'a str> {
    let own = line.words.split(|word| word == "--").next().unwrap_or_default();
    own.windows(2).filter(move |pair| pair[0] == option).map(|pair| pair[1].as_str())
}

fn check(line: &CommandLine, all: &BTreeMap<&str, Vec<Package>>) -> Result<(), String> {
    let workspace = workspace(line)?;
    let packages = &all[workspace];
    let find = |name: &str| {
        let found = packages.iter().find(|package| package.name == name);
        found.ok_or_else(|| format!("there is no package {name}"))
    };
    values(line, "--exclude").try_for_each(|name| find(name).map(|_| ()))?;
    if let Some(path) = values(line, "--path").find(|path| !root().join(path).is_dir()) {
        return Err(format!("there is no folder {path}"));
    }
    let mut chosen = values(line, "-p").map(find).collect::<Result<Vec<_>, _>>()?;
    if chosen.is_empty() {
        chosen = packages.iter().collect();
    }
    let given: Vec<&str> =
        values(line, "--features").flat_map(|features| features.split(',')).collect();
    for feature in &given {
        if !chosen.iter().any(|package| package.features.contains(*feature)) {
            return Err(format!("there is no feature {feature}"));
        }
    }
    for kind in ["bench", "bin", "example", "test"] {
        for name in values(line, &format!("--{kind}")) {
            let key = (kind.to_owned(), name.to_owned());
            let needed = chosen.iter().find_map(|package| package.targets.get(&key));
            let needed = needed.ok_or_else(|| format!("there is no {kind} {name}"))?;
            let is_given = |feature: &String| given.contains(&feature.as_str());
            if let Some(missing) = needed.iter().find(|feature| !is_given(feature)) {
                return Err(format!("{kind} {name} needs --features {missing}"));
            }
        }
    }
    Ok(())
}

/// The program or script that a command line begins with, and the files of this repository that it
/// names. `cd` is a folder that the lines above it have gone to.
fn check_files(
    line: &CommandLine,
    cd: Option<&str>,
    all: &BTreeMap<&str, Vec<Package>>,
) -> Result<(), String> {
    let folder = root().join(Path::new(&line.place.file).parent().expect("a folder"));
    // Names without a folder are files of the one that was gone to.
    if let (Some(cd), "cp", [_, files @ .., _]) = (cd, &*line.words[0], &line.words[..])
        && let Some(file) = files.iter().find(|file| !root().join(cd).join(file).exists())
    {
        return Err(format!("there is no {file} in {cd}"));
    }
    for (index, word) in line.words.iter().enumerate() {
        if let Some((_, built)) = word.split_once("target/release/") {
            // It may be a command line within this one.
            let name = built.split(' ').next().unwrap_or_default().trim_start_matches("examples/");
            let name =
                name.strip_prefix("lib").and_then(|name| name.split('.').next()).unwrap_or(name);
            let mut targets = all.values().flatten().flat_map(|package| package.targets.keys());
            if !targets.any(|(_, target)| target == name) {
                return Err(format!("nothing is built as {word}"));
            }
            continue;
        }
        let first = word.split('/').next().unwrap_or_default();
        let is_ours = ["crates", "docs", "packaging", "ports", "proof", ".ci"].contains(&first)
            || (index == 0 && first == ".");
        // What is built is not there yet.
        let is_built = word.contains("/target/") || word.ends_with("/out");
        let is_folder = index == 1 && line.words[0] == "cd";
        let is_path = is_ours && word.contains('/') && !word.contains([' ', '*']);
        if (is_folder || (is_path && !is_built))
            && !root().join(word).exists()
            && !folder.join(word).exists()
        {
            return Err(format!("there is no {word}"));
        }
    }
    Ok(())
}

#[test]
fn what_command_lines_name_exists() {
    let all = WORKSPACES.into_iter().map(|folder| (folder, packages(folder, false))).collect();
    let lines = command_lines("cargo");
    let mut refused = Vec::new();
    let mut refuse = |line: &CommandLine, reason: String| {
        refused.push(format!("{}: {}\n  {reason}", line.place, line.words.join(" ")));
    };
    for line in &lines {
        if let Err(reason) = check(line, &all) {
            refuse(line, reason);
        }
    }
    let mut gone: Option<CommandLine> = None;
    for line in command_lines("") {
        // Each page begins at the root.
        gone.take_if(|gone| gone.place.file != line.place.file);
        let cd = gone.as_ref().map(|line| &*line.words[1]);
        if let Err(reason) = check_files(&line, cd, &all) {
            refuse(&line, reason);
        }
        if line.words[0] == "cd" {
            gone = Some(line);
        }
    }
    assert!(refused.is_empty(), "\n{}", refused.join("\n"));
    assert!(lines.len() >= 30, "only {} found", lines.len());
}

#[test]
fn what_does_not_exist_is_refused() {
    let all = WORKSPACES.into_iter().map(|folder| (folder, packages(folder, false))).collect();
    for (file, words) in [
        ("README.md", "cargo run -p wakeful-htt"),
        ("README.md", "cargo run -p wakeful-http --example axumm"),
        ("README.md", "cargo run -p wakeful-http --example websocket"),
        ("README.md", "cargo test -p wakeful-rt --features tea"),
        ("README.md", "cargo build --manifest-path proof/pears/Cargo.toml"),
        ("ports/README.md", "cargo run -p wakeful-http --example axum"),
        ("README.md", "cargo install --path crates/wakeful-clip"),
        ("README.md", "proof/sim/refreshed"),
        ("README.md", "cd peers"),
        ("README.md", "target/release/wakefull serve"),
        ("README.md", "x --compare a=target/release/wakefull --listen"),
        ("README.md", "cp wakeful.sockets /etc"),
    ] {
        let place = doc_pages::Place { file: file.to_owned(), line: 1 };
        let words = words.split(' ').map(str::to_owned).collect();
        let line = CommandLine { place, words, is_whole: true };
        let outcome =
            check(&line, &all).and_then(|()| check_files(&line, Some("packaging/systemd"), &all));
        assert!(outcome.is_err(), "{file}: {:?}", line.words);
    }
}

#[test]
fn dependencies_are_such() {
    let packages = packages("", true);
    let mut count = 0;
    for block in pages().iter().flat_map(doc_pages::Page::blocks) {
        if block.language != "toml" || !block.text.contains("dependencies]") {
            continue;
        }
        let table: toml::Table = block.text.parse().expect("TOML");
        let tables = table.values().filter_map(toml::Value::as_table);
        for (name, dependency) in tables.flatten() {
            let place = &block.place;
            let text = |key: &str| dependency.get(key).and_then(toml::Value::as_str);
            let name = text("package").unwrap_or(name);
            let version = dependency.as_str().or(text("version"));
            let found = packages.iter().find(|package| {
                let is_version = |version: &str| {
                    package.version.strip_prefix(version).is_some_and(|rest| rest.starts_with('.'))
                };
                package.name == name && version.is_none_or(is_version)
            });
            let package = found.unwrap_or_else(|| panic!("{place}: {name} has no such version"));
            if let Some(path) = text("path") {
                // The page that begins with a checkout says what it is called.
                let path = path.strip_prefix("…/").or(path.strip_prefix("../wakeful/"));
                let path = path.expect("a path from somewhere");
                let is_there = package.folder.ends_with(path) && root().join(path).is_dir();
                assert!(is_there, "{place}: {name} is not in {path}");
            }
            let features = dependency.get("features").and_then(toml::Value::as_array);
            for feature in features.into_iter().flatten().filter_map(toml::Value::as_str) {
                assert!(package.features.contains(feature), "{place}: {name} has no {feature}");
            }
            count += 1;
        }
    }
    assert!(count >= 10, "only {count} found");
}
