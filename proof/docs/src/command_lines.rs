//! The command lines of the pages.

use crate::pages::{Block, Page, Place, pages};
use crate::shell;

/// The commands of `wakeful`, which pages name without it as well: `serve kv`.
const SUBCOMMANDS: [&str; 7] = ["awake", "config", "keeper", "lab", "load", "serve", "upgrade"];

/// What a program is started with somewhere in the documentation.
#[derive(Debug)]
pub struct CommandLine {
    /// Where it begins.
    pub place: Place,
    /// The program's name first, without its folder. Where a page says that there may be more
    /// (`…`), that is left out.
    pub words: Vec<String>,
    /// It stands in a block, and not as a mention in a sentence: one could run it as it is.
    pub is_whole: bool,
}

/// All command lines of a program, in all pages; for `""`, of all programs. They stand in blocks of
/// `sh`, `bash` and `console`, in `ExecStart=` of units, in code within sentences, behind
/// `cargo run … --`, and as words of another command line, as of `wakeful load --compare`.
#[must_use]
pub fn command_lines(program: &str) -> Vec<CommandLine> {
    let mut all = Vec::new();
    for page in pages() {
        page.blocks().iter().for_each(|block| of_block(block, program, &mut all));
        of_sentences(&page, program, &mut all);
    }
    all
}

/// The options that sentences name, as `--grace`, on the pages whose names begin in one of these
/// ways: without dashes and values.
#[must_use]
pub fn options(pages_of: &[&str]) -> Vec<(Place, String)> {
    let mut options = Vec::new();
    for page in pages().iter().filter(|page| pages_of.iter().any(|of| page.file.starts_with(of))) {
        for (place, span) in page.spans() {
            for word in span.split_whitespace().map_while(|word| word.strip_prefix("--")) {
                let name = word.split('=').next().unwrap_or_default();
                options.push((place.clone(), name.to_owned()));
            }
        }
    }
    options
}

fn of_block(block: &Block, program: &str, all: &mut Vec<CommandLine>) {
    let text: String = match block.language.as_str() {
        "sh" | "bash" => block.text.clone(),
        "console" => of_lines(&block.text, |line| {
            // Continued lines, and those of loops, have no prompt. Root's is a `#`.
            let command = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
            command.unwrap_or(line)
        }),
        "ini" => of_lines(&block.text, |line| {
            line.trim_start_matches("# ").strip_prefix("ExecStart=").unwrap_or_default()
        }),
        _ => return,
    };
    for (line, words) in shell::commands(&text) {
        let place = Place { line: block.place.line + line, ..block.place.clone() };
        of_words(&place, words, true, program, all);
    }
}

fn of_lines(text: &str, each: impl Fn(&str) -> &str) -> String {
    text.lines().map(|line| format!("{}\n", each(line))).collect()
}

fn of_sentences(page: &Page, program: &str, all: &mut Vec<CommandLine>) {
    for (place, text) in page.spans() {
        for (_, mut words) in shell::commands(&text) {
            if words.len() > 1 && SUBCOMMANDS.contains(&words[0].as_str()) {
                words.insert(0, "wakeful".to_owned());
            }
            // A name in backticks is not a command line, and neither is `wakeful = { … }`.
            let is_word = |word: &String| {
                word.starts_with(|char: char| char.is_alphanumeric() || char == '-')
            };
            if words.get(1).is_some_and(is_word) {
                of_words(&place, words, false, program, all);
            }
        }
    }
}

fn of_words(
    place: &Place,
    words: Vec<String>,
    is_whole: bool,
    program: &str,
    all: &mut Vec<CommandLine>,
) {
    // The commands of `--compare` and `--server`, with or without a name before them.
    for word in words.iter().filter(|word| word.contains(' ')) {
        let behind_name = word.split_once('=').map_or(&word[..], |(_, command)| command);
        for (_, words) in shell::commands(behind_name) {
            let is_ours = words[0].rsplit('/').next() == Some(program);
            if is_ours {
                of_words(place, words, is_whole, program, all);
            }
        }
    }
    let Some(mut words) = started_with(words, program) else { return };
    words.retain(|word| word != "…");
    for word in &mut words {
        if word.ends_with('…') {
            word.pop();
        }
    }
    all.push(CommandLine { place: place.clone(), words, is_whole });
}

/// The words of `program`, if it is what is started.
fn started_with(mut words: Vec<String>, program: &str) -> Option<Vec<String>> {
    if program.is_empty() {
        return Some(words);
    }
    if words[0].rsplit('/').next() == Some(program) {
        program.clone_into(&mut words[0]);
        return Some(words);
    }
    let rest = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let behind = |option: &str| {
        let at = words[..rest].iter().position(|word| word == option)?;
        words.get(at + 1).map(String::as_str)
    };
    let is_cargo_run = words[0] == "cargo" && words.get(1).is_some_and(|word| word == "run");
    let is_of_workspace = behind("--manifest-path").is_none() && behind("--example").is_none();
    // The workspace's default member is the package of `wakeful`.
    let package = behind("-p").unwrap_or("wakeful-cli");
    let of_package = if package == "wakeful-cli" { "wakeful" } else { package };
    if !is_cargo_run || !is_of_workspace || of_package != program {
        return None;
    }
    let arguments = words.drain(rest..).skip(1);
    Some([program.to_owned()].into_iter().chain(arguments).collect())
}
