//! Where results go: tables or JSON on stdout, a report, a log.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use wakeful_load::Recording;
use wakeful_load::internals::intervals::Log;
use wakeful_load::internals::results::Results;
use wakeful_load::internals::table::{self, Style};
use wakeful_load::internals::{format, report, summary};

use super::arguments::Output;

/// The largest log to merge, in bytes: a thousand runs, at about 65 kB for each.
const LARGEST_LOG: u64 = 64 << 20;

/// Files that are open, and what goes to stdout.
pub(crate) struct Outputs {
    stdout: Stdout,
    report: Option<(PathBuf, File)>,
    log: Option<(PathBuf, File)>,
    started: SystemTime,
}

enum Stdout {
    Nothing,
    Json,
    Text(Style),
}

impl Outputs {
    /// Opens the files now, so that a path that cannot be written is an error at the beginning and
    /// not at the end. Nothing goes to stdout.
    pub(crate) fn open_files(report: Option<&Path>, log: Option<&Path>) -> Result<Self, String> {
        let create = |path: &Path| {
            let file =
                File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>((path.to_owned(), file))
        };
        let report = report.map(create).transpose()?;
        let log = log.map(create).transpose()?;
        if let (Some((path, one)), Some((_, other))) = (&report, &log)
            && is_same_file(one, other).map_err(|error| format!("{}: {error}", path.display()))?
        {
            return Err(format!(
                "{}: the report and the log cannot both be this file",
                path.display()
            ));
        }
        Ok(Self { stdout: Stdout::Nothing, report, log, started: SystemTime::now() })
    }

    /// Opens what the flags say.
    pub(super) fn open(output: &Output) -> Result<Self, String> {
        let outputs = Self::open_files(output.report.as_deref(), output.log.as_deref())?;
        Ok(match (output.json, output.markdown) {
            (true, _) => Self { stdout: Stdout::Json, ..outputs },
            (_, true) => outputs.with_text(Style::Markdown),
            _ => outputs.with_text(Style::Terminal),
        })
    }

    /// Tables go to stdout.
    pub(crate) fn with_text(self, style: Style) -> Self {
        Self { stdout: Stdout::Text(style), ..self }
    }

    pub(crate) fn write(
        self,
        results: &Results,
        recordings: Vec<(String, Recording)>,
    ) -> Result<(), String> {
        let text = match self.stdout {
            Stdout::Nothing => String::new(),
            Stdout::Json => {
                serde_json::to_string_pretty(results).map_err(|error| error.to_string())? + "\n"
            }
            Stdout::Text(style) => text(results, style),
        };
        // If one output fails, the others are still written.
        let printed = print(&text);
        let reported = self.report.map_or(Ok(()), |(path, mut file)| {
            let html = report::html(results).map_err(std::io::Error::other);
            let written = html.and_then(|html| file.write_all(html.as_bytes()));
            written.map_err(|error| format!("{}: {error}", path.display()))
        });
        let logged = self.log.map_or(Ok(()), |(path, file)| {
            let written = write_log(&Log::of_runs(recordings), file, self.started);
            written.map_err(|error| format!("{}: {error}", path.display()))
        });
        printed.and(reported).and(logged)
    }
}

/// Writes to stdout. It is no error if a reader, such as `head`, closes it early.
pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to stdout: {error}"))
        }
        _ => Ok(()),
    }
}

/// All results as text.
pub(crate) fn text(results: &Results, style: Style) -> String {
    // An experiment may have no runs, but its own tables.
    let mut text = table::tables(results, style);
    if !results.runs.is_empty() || results.tables.is_empty() {
        let apart = if text.is_empty() { "" } else { "\n" };
        text = text + apart + &table::runs(results, style);
    }
    if !results.comparisons.is_empty() {
        text = text + "\n" + &table::comparisons(results, style);
    }
    if !results.claims.is_empty() {
        text = text + "\n" + &table::claims(results, style);
    }
    text.push('\n');
    let apart = if style == Style::Markdown { "\n" } else { "" };
    for note in &results.notes {
        text = text + apart + note + "\n";
    }
    text
}

pub(super) fn merge_logs(logs: &[PathBuf], out: Option<&Path>) -> Result<(), String> {
    let mut whole = Log::default();
    for path in logs {
        let log = read_log(path).map_err(|error| format!("{}: {error}", path.display()))?;
        whole.add(log);
    }
    let all = summary::percentiles(&whole.sum()?);
    let mut text = format!("{} requests in {} logs\n", format::count(all.count), logs.len());
    let named = [
        ("p50", all.p50),
        ("p90", all.p90),
        ("p99", all.p99),
        ("p99.9", all.p999),
        ("p99.99", all.p9999),
    ];
    for (name, value) in named.into_iter().chain([("max", Some(all.max))]) {
        text += &format!("{name:>7} {:>10}\n", format::maybe_time(value));
    }
    print(&text)?;
    if let Some(path) = out {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        write_log(&whole, file, SystemTime::now())
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn read_log(path: &Path) -> Result<Log, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    // One byte more distinguishes a file that is too long from one that just fits. The size is not
    // asked for, because a pipe has none.
    file.take(LARGEST_LOG + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LARGEST_LOG {
        return Err(format!(
            "it has more than {} MiB, the most that a log may have: is it one?",
            LARGEST_LOG >> 20
        ));
    }
    Log::read(&text)
}

/// Are both the same regular file, whatever their names are? A device such as /dev/null may be
/// written twice.
fn is_same_file(one: &File, other: &File) -> std::io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok(one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

fn write_log(log: &Log, file: File, started: SystemTime) -> std::io::Result<()> {
    let mut out = BufWriter::new(file);
    log.write(&mut out, started)?;
    out.flush()
}
