//! `wakeful serve --config FILE`: options from a TOML file. What the command line says wins.
//!
//! The file's settings become words after those of the command line, so that each is parsed, and
//! refused, as if it stood there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::Command;
use clap::builder::Arg;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use toml::{Spanned, Value};

/// The setting that names the service, unless the command line does.
const SERVICE: &str = "service";

/// A command line, with what a settings file adds to it.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) words: Vec<OsString>,
    from: Option<File>,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    /// The options that only the file has, each with its line.
    options: BTreeMap<String, usize>,
}

/// The largest file, in bytes. (A device may have no end.)
const LARGEST: u64 = 1 << 20;

fn read(path: &Path) -> io::Result<String> {
    let text = wakeful::fs::read_small(path, LARGEST)?;
    if text.is_empty() && fs::metadata(path)?.file_type().is_fifo() {
        // The pipe of a shell's `<(command)` cannot be read twice.
        return Err(io::Error::other(
            "nothing was in this pipe. With --workers each worker reads the settings again, so they \
             have to be in a file",
        ));
    }
    if text.len() as u64 > LARGEST {
        return Err(io::Error::other("the file is larger than 1 MiB, which no settings file is"));
    }
    String::from_utf8(text).map_err(|_| io::Error::other("it is not valid UTF-8"))
}

impl CommandLine {
    /// Reads the settings file. `words` are those of the process, with its name first.
    ///
    /// # Errors
    /// Lines for the user: the settings file cannot be read, or contains something that is no
    /// setting.
    pub(crate) fn new(program: &Command, words: Vec<OsString>) -> Result<Self, String> {
        let serve = program.find_subcommand("serve").filter(|_| is(words.get(1), "serve"));
        let (Some(serve), Some(path)) = (serve, named(&words)) else {
            return Ok(Self { words, from: None });
        };
        let text = read(&path).map_err(|error| {
            format!("{}: cannot read the settings file: {error}", path.display())
        })?;
        Self::with(serve, words, &text, &path)
            .map_err(|problem| format!("{}: {problem}", path.display()))
    }

    fn with(
        serve: &Command,
        mut words: Vec<OsString>,
        text: &str,
        path: &Path,
    ) -> Result<Self, String> {
        let mut settings: BTreeMap<Spanned<String>, Value> =
            toml::from_str(text).map_err(|error| error.to_string())?;
        let service = settings.remove(SERVICE);
        let on_line = words.get(2).and_then(|word| word.to_str());
        let on_line = on_line.and_then(|word| serve.find_subcommand(word));
        let service = match (service, on_line) {
            (None, None) => serve,
            (None, Some(service)) => service,
            (Some(Value::String(name)), on_line) => {
                let known = serve.find_subcommand(&name);
                let service = known.ok_or_else(|| {
                    format!("there is no {SERVICE} {name:?}: use http, rpc, proxy, echo or kv")
                })?;
                match on_line {
                    Some(other) if other.get_name() != name => {
                        return Err(format!(
                            "the file says {SERVICE} = {name:?}, and the command line says {other}"
                        ));
                    }
                    Some(_) => {}
                    None => words.insert(2, name.into()),
                }
                service
            }
            (Some(_), _) => return Err(format!("{SERVICE} must be a string, as \"http\"")),
        };
        let given = options_of(&words);
        let mut options = BTreeMap::new();
        for (key, value) in &settings {
            let (name, line) = (key.get_ref(), line_of(text, key.span().start));
            let at_line = |problem| format!("line {line}: {problem}");
            let option = setting(service, name).ok_or_else(|| no_setting(serve, service, name));
            let of_setting = option.and_then(|option| words_of(option, name, value));
            let of_setting = of_setting.map_err(at_line)?;
            if !given.contains(name) {
                words.extend(of_setting);
                options.insert(name.clone(), line);
            }
        }
        Ok(Self { words, from: Some(File { path: path.to_owned(), options }) })
    }

    /// The file and the line, if clap's error is about one of its settings.
    pub(crate) fn blamed(&self, error: &clap::Error) -> Option<(&Path, usize)> {
        let file = self.from.as_ref()?;
        let line = named_by(error).iter().find_map(|option| file.options.get(option));
        line.map(|line| (&*file.path, *line))
    }

    /// The option that clap misses could also be in the settings file. If a running server reads
    /// the file again, it must be there, because the command line stays the same.
    pub(crate) fn missed(&self, error: &clap::Error) -> Option<String> {
        let file = self.from.as_ref()?;
        let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
            return None;
        };
        let names = missing.iter().filter_map(|one| one.strip_prefix("--")?.split(' ').next());
        let names = names.collect::<Vec<_>>().join(", ");
        (error.kind() == ErrorKind::MissingRequiredArgument && !names.is_empty()).then(|| {
            format!(
                "{}: {} is needed, and stands neither on the command line nor in this file: add \
                 {names} to this file",
                file.path.display(),
                missing.join(", ")
            )
        })
    }
}

/// Returns the option that this setting sets.
fn setting<'a>(service: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut options = service.get_arguments();
    let option = options.find(|option| option.get_long() == Some(name));
    option.filter(|_| !matches!(name, "config" | "help" | "version"))
}

/// Says that the service has no such setting, and which other services have one.
fn no_setting(serve: &Command, service: &Command, name: &str) -> String {
    let of = match service.get_name() {
        own if own == serve.get_name() => "serve".to_owned(),
        own => format!("serve {own}"),
    };
    let others = serve.get_subcommands().filter(|other| setting(other, name).is_some());
    let others: Vec<_> =
        others.map(|other| format!("`wakeful serve {}`", other.get_name())).collect();
    if others.is_empty() {
        format!("{name} is not a setting of `wakeful {of}`: `wakeful {of} --help` lists them")
    } else {
        format!("{name} is not a setting of `wakeful {of}`, but of {}", others.join(" and "))
    }
}

/// Returns the names of the options that clap's error is about.
fn named_by(error: &clap::Error) -> Vec<String> {
    let of_kind = |kind| match error.get(kind) {
        Some(ContextValue::String(one)) => vec![one.as_str()],
        Some(ContextValue::Strings(several)) => several.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let named = [ContextKind::InvalidArg, ContextKind::PriorArg].into_iter().flat_map(of_kind);
    let names = named.filter_map(|one| one.strip_prefix("--")?.split([' ', '=', '[']).next());
    names.map(str::to_owned).collect()
}

/// Returns the number of the line with this byte.
fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn is(word: Option<&OsString>, text: &str) -> bool {
    word.is_some_and(|word| word == text)
}

/// The options before `--`.
fn options(words: &[OsString]) -> impl Iterator<Item = (usize, &str)> {
    let before = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let texts = words[..before].iter().map(|word| word.to_str().unwrap_or_default());
    texts.enumerate().filter_map(|(at, word)| Some((at, word.strip_prefix("--")?)))
}

/// The settings file that the command line names.
fn named(words: &[OsString]) -> Option<PathBuf> {
    options(words).find_map(|(at, option)| match option.split_once('=') {
        Some(("config", path)) => Some(path.into()),
        None if option == "config" => Some(words.get(at + 1)?.into()),
        _ => None,
    })
}

fn options_of(words: &[OsString]) -> BTreeSet<String> {
    let name = |(_, option): (usize, &str)| option.split('=').next().map(str::to_owned);
    options(words).filter_map(name).collect()
}

/// The words for one setting, as they would stand on the command line.
///
/// # Errors
/// The value is a table, a date, or an empty list (which would silently mean the default). Or it is
/// true or false although the option takes a value, or something else although the option takes
/// none.
fn words_of(option: &Arg, name: &str, value: &Value) -> Result<Vec<OsString>, String> {
    match (option.get_action().takes_values(), value) {
        (true, Value::Boolean(_)) => {
            return Err(format!("{name} needs a value, not true or false"));
        }
        (false, Value::Boolean(_)) | (true, _) => {}
        (false, _) => return Err(format!("{name} must be true or false")),
    }
    let word = |text: &dyn AsRef<OsStr>| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(text);
        vec![word]
    };
    match value {
        Value::String(text) if text.contains('\0') => {
            Err(format!("{name} must not have a NUL character in it"))
        }
        Value::String(text) => Ok(word(text)),
        Value::Integer(number) => Ok(word(&number.to_string())),
        Value::Float(number) => Ok(word(&number.to_string())),
        Value::Boolean(true) => Ok(vec![format!("--{name}").into()]),
        Value::Boolean(false) => Ok(Vec::new()),
        Value::Array(several) if several.is_empty() => Err(format!(
            "{name} is an empty list: it needs at least one value (without the line, the default applies)"
        )),
        Value::Array(several) => {
            let several = several.iter().map(|one| words_of(option, name, one));
            Ok(several.collect::<Result<Vec<_>, _>>()?.concat())
        }
        Value::Table(_) | Value::Datetime(_) => {
            Err(format!("{name} must be a string, a number, true, false, or a list of these"))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(Into::into).collect()
    }

    fn with(line: &str, settings: &str) -> Result<String, String> {
        let program = crate::Arguments::command();
        let serve = program.find_subcommand("serve").unwrap();
        let line = CommandLine::with(serve, words(line), settings, Path::new("file"))?;
        Ok(line.words.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn settings_are_words_and_the_line_wins() {
        let settings =
            "grace = 20\npin = true\nspread = false\nlisten = ['a:1', 'b:2']\nmax-cpu = 0.5\n";
        let line = with("wakeful serve --config f", settings).unwrap();
        assert_eq!(
            line,
            "wakeful serve --config f --grace=20 --listen=a:1 --listen=b:2 --max-cpu=0.5 --pin"
        );
        let line = with("wakeful serve http --grace 5 --listen=c:3 --max-cpu=1 --pin", settings);
        assert_eq!(line.unwrap(), "wakeful serve http --grace 5 --listen=c:3 --max-cpu=1 --pin");
    }

    #[test]
    fn the_service_may_be_a_setting() {
        let settings = "service = 'proxy'\nto = '127.0.0.1:81'\n";
        let line = with("wakeful serve --config f", settings).unwrap();
        assert_eq!(line, "wakeful serve proxy --config f --to=127.0.0.1:81");
        let line = with("wakeful serve proxy --config f", settings).unwrap();
        assert_eq!(line, "wakeful serve proxy --config f --to=127.0.0.1:81");
        let error = with("wakeful serve http --config f", settings).unwrap_err();
        assert_eq!(error, "the file says service = \"proxy\", and the command line says http");
    }

    #[test]
    fn what_is_no_setting_is_named() {
        for (settings, expected) in [
            ("nonsense = 1", "nonsense is not a setting of `wakeful serve http`"),
            ("config = 'other'", "config is not a setting"),
            ("to = 'a:1'", "to is not a setting of `wakeful serve http`"),
            ("service = 'mail'", "there is no service \"mail\": use"),
            ("service = 1", "service must be a string"),
            ("[grace]\nseconds = 1", "grace must be a string, a number"),
            ("grace = 1979-05-27", "grace must be a string, a number"),
            ("grace = \"\\u0000\"", "grace must not have a NUL character"),
            ("listen = []", "listen is an empty list: it needs at least one value"),
            ("admin = []", "admin is an empty list"),
            ("tls-cert = []", "tls-cert is an empty list"),
            ("listen = [[]]", "listen is an empty list"),
            ("grace = []", "grace is an empty list"),
            ("grace =", "line 1"),
            ("\n# a comment\nnonsense = 1", "line 3: nonsense is not a setting"),
            ("grace = 1\nspread = 'yes'", "line 2: spread must be true or false"),
            ("grace = true", "grace needs a value, not true or false"),
            ("max-value = 1", "of `wakeful serve http`, but of `wakeful serve kv`"),
        ] {
            let error = with("wakeful serve http --config f", settings).unwrap_err();
            assert!(error.contains(expected), "{settings}: {error}");
        }
        let error = with("wakeful serve --config f", "nonsense = 1").unwrap_err();
        assert!(error.contains("of `wakeful serve`"), "{error}");
        let error = with("wakeful serve proxy --config f", "to = []").unwrap_err();
        assert!(error.contains("to is an empty list"), "{error}");
    }

    #[test]
    fn the_file_is_named_in_either_way() {
        for line in ["wakeful serve --config f", "wakeful serve http --pin --config=f --pin"] {
            assert_eq!(named(&words(line)), Some("f".into()), "{line}");
        }
        for line in ["wakeful serve", "wakeful serve --config", "wakeful serve -- --config f"] {
            assert_eq!(named(&words(line)), None, "{line}");
        }
    }
}
