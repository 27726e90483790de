//! Tests that the program understands the command lines and the settings files of the
//! documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use doc_pages::{CommandLine, command_lines, pages};
use tempfile::TempDir;

use crate::{Arguments, Command, Refusal, arguments, config, lab, serve, serve_arguments};

/// If fewer command lines are found, the search itself is broken.
const AT_LEAST: usize = 60;

/// The placeholders for addresses in the documentation.
const PLACES: [&str; 4] = ["ADDR", "{addr}", "A", "B"];

/// The directory of certificates in the documentation.
const CERTIFICATES: &str = "/etc/ssl/";

/// The settings files that documents show, each under the name in its first line, in a folder
/// beside certificates.
struct Settings {
    folder: TempDir,
    /// Where the test's copies of the files are.
    files: BTreeMap<String, PathBuf>,
}

impl Settings {
    fn of_the_docs() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(folder.path().join("site.pem"), made.cert.pem()).unwrap();
        fs::write(folder.path().join("site.key"), made.signing_key.serialize_pem()).unwrap();
        let mut files = BTreeMap::new();
        for block in pages().iter().flat_map(doc_pages::Page::blocks) {
            let name = block.text.lines().next().and_then(|line| line.strip_prefix("# "));
            let Some(name) = name.filter(|name| block.language == "toml" && name.starts_with('/'))
            else {
                continue;
            };
            let file = folder.path().join(format!("{}.toml", files.len()));
            let here = format!("{}/", folder.path().display());
            fs::write(&file, block.text.replace(CERTIFICATES, &here)).unwrap();
            files.insert(name.to_owned(), file);
        }
        Self { folder, files }
    }

    /// The words of a command line. Settings files are replaced by those of the folder, `FILE` by
    /// any of them, placeholders of addresses by an address, and what a shell would substitute
    /// (`$(pgrep …)`) by the id of a process.
    fn words(&self, line: &CommandLine) -> Vec<OsString> {
        let any = self.files.values().next().expect("a settings file");
        let replaced = line.words.iter().map(|word| match self.files.get(word) {
            Some(file) => file.into(),
            None if word == "FILE" => any.into(),
            None if PLACES.contains(&word.as_str()) => "127.0.0.1:0".into(),
            None if word == "dns:HOST:PORT" => "dns:host:80".into(),
            None if word.starts_with("$(") => "1".into(),
            None => word.into(),
        });
        replaced.collect()
    }
}

/// Is the command line only incomplete? A mention in a text does not contain all that is needed, as
/// in "`wakeful load --compare` does so"; or it has a placeholder (`FORMAT`, `PID`), or leaves a
/// value out (`…`).
fn is_only_incomplete(error: &clap::Error) -> bool {
    let is_without_value = || match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => {
            value.ends_with('=') || value.chars().all(|char| char.is_ascii_uppercase())
        }
        _ => true,
    };
    match error.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::WrongNumberOfValues => true,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => is_without_value(),
        _ => false,
    }
}

/// Checks the line as far as possible without a socket, and without measuring anything.
fn check(line: &CommandLine, words: Vec<OsString>) -> Result<(), String> {
    let arguments = match arguments(words) {
        Ok(arguments) => arguments,
        Err(Refusal::Words { error, .. })
            if error.exit_code() == 0 || (!line.is_whole && is_only_incomplete(&error)) =>
        {
            return Ok(());
        }
        Err(refusal) => return Err(refusal.text()),
    };
    match &arguments.command {
        Command::Serve(arguments) => serve::check(arguments),
        Command::Config(arguments) => config::run(arguments, serve_arguments).map(|_| ()),
        Command::Load(arguments) => arguments.check(),
        Command::Lab(arguments) => lab::check(arguments),
        Command::Upgrade(_) | Command::Awake(_) | Command::Keeper(_) => Ok(()),
    }
}

#[test]
fn every_command_line_is_one() {
    let settings = Settings::of_the_docs();
    let lines = command_lines("wakeful");
    let mut refused = Vec::new();
    for line in &lines {
        if let Err(reason) = check(line, settings.words(line)) {
            refused.push(format!("{}: {}\n{reason}", line.place, line.words.join(" ")));
        }
    }
    assert!(refused.is_empty(), "\n{}", refused.join("\n"));
    let whole = lines.iter().filter(|line| line.is_whole).count();
    assert!(whole >= AT_LEAST, "only {whole} found");
}

#[test]
fn a_server_would_start_with_every_settings_file() {
    let settings = Settings::of_the_docs();
    assert!(!settings.files.is_empty(), "none found in {}", settings.folder.path().display());
    for (name, file) in &settings.files {
        let words = ["wakeful", "serve", "--config"].map(OsString::from);
        let words = words.into_iter().chain([file.into()]).collect();
        let outcome = serve_arguments(words).and_then(|arguments| serve::try_out(&arguments));
        assert_eq!(outcome, Ok(()), "{name}");
    }
}

/// A container is started with the entry point and the arguments of its image, or with those of the
/// manifest.
#[test]
fn containers_start_with_a_command_line() {
    let read =
        |file: &str| fs::read_to_string(doc_pages::root().join("packaging").join(file)).unwrap();
    let image = read("container/Dockerfile");
    let of_image = |name: &str| -> Vec<String> {
        let list = image.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        serde_json::from_str(list).unwrap()
    };
    let manifest = read("kubernetes/wakeful.yaml");
    let (_, behind) = manifest.split_once(" args:\n").expect("arguments");
    let lines = behind.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let of_manifest = lines.map_while(|line| line.strip_prefix("- ")).map(str::to_owned);
    for arguments in [of_image("CMD "), of_manifest.collect()] {
        assert!(arguments.len() > 1, "{arguments:?}");
        let words = [of_image("ENTRYPOINT "), arguments].concat();
        let place = doc_pages::Place { file: "packaging".to_owned(), line: 1 };
        let line = CommandLine { place, words, is_whole: true };
        let given = line.words.iter().map(OsString::from).collect();
        assert_eq!(check(&line, given), Ok(()), "{:?}", line.words);
    }
}

#[test]
fn a_wrong_line_is_refused() {
    let line = |words: &str, is_whole| CommandLine {
        place: doc_pages::Place { file: "page.md".to_owned(), line: 1 },
        words: words.split(' ').map(str::to_owned).collect(),
        is_whole,
    };
    for words in [
        "wakeful serve --loop 1",
        "wakeful serve kv --listen 127.0.0.1:1 --listen 127.0.0.1:1",
        "wakeful serv",
        "wakeful load 127.0.0.1:1 --rate fast",
        "wakeful load 127.0.0.1:1 --mix 3:1",
        "wakeful lab heard",
        "wakeful lab sleepy-median --parts tea",
        "wakeful serve --config /no/such/file",
    ] {
        for is_whole in [true, false] {
            let line = line(words, is_whole);
            let given = line.words.iter().map(OsString::from).collect();
            assert!(check(&line, given).is_err(), "{words}");
        }
    }
    for words in ["wakeful load", "wakeful load --compare"] {
        for is_whole in [true, false] {
            let line = line(words, is_whole);
            let given = line.words.iter().map(OsString::from).collect();
            assert_eq!(check(&line, given).is_err(), is_whole, "{words}");
        }
    }
}

/// Options of other programs in sentences, and the only page that has each: of `ready-list`, oha,
/// systemctl, and servers to compare with.
const OF_OTHERS: [(&str, &str); 4] = [
    ("docs/lab/blocked-consumer.md", "minutes"),
    ("docs/load.md", "latency-correction"),
    ("docs/production.md", "kill-who"),
    ("docs/lab/shared-socket.md", "variant"),
];

fn known(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_long());
    let own = own.map(str::to_owned);
    own.chain(command.get_subcommands().flat_map(known)).collect()
}

#[test]
fn every_option_is_one() {
    let known = known(&Arguments::command());
    let mut options = doc_pages::options(&["ARCHITECTURE.md", "README.md", "crates/", "docs/"]);
    // This page is about another program of this project.
    options.retain(|(place, _)| place.file != "docs/simulator.md");
    assert!(options.len() >= 100, "only {} found", options.len());
    options.retain(|(_, name)| !known.contains(name));
    for (page, of_another) in OF_OTHERS {
        let before = options.len();
        options.retain(|(place, name)| place.file != page || name != of_another);
        assert!(options.len() < before, "{page} does not name --{of_another} any more");
    }
    let unknown: Vec<_> =
        options.iter().map(|(place, name)| format!("{place}: --{name}")).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}
