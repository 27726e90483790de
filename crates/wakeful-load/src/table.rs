//! Results as text tables, for a terminal or as Markdown.

use comfy_table::{CellAlignment, Table, presets};

use crate::{
    format,
    results::{Floor, KindOfRequest, Percentiles, Results, Run, Unit, Validity},
};

/// The format in which a table is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Columns for a terminal.
    Terminal,
    /// A Markdown table.
    Markdown,
}

/// Returns the table of the runs: one line for each server and rate, and below them the notes.
///
/// The table is 100 columns wide, if no server's name is longer than 16 letters.
pub fn runs(results: &Results, style: Style) -> String {
    let header = [
        "server", "rate/s", "p50", "p90", "p99", "p99.9", "max", "done/s", "CPU", "µs/req", "valid",
    ];
    let mut table = Sheet::new(&header, &[0, 10], style);
    for run in &results.runs {
        table.row(&row(run, results.floor.as_ref()));
        for kind in &run.kinds {
            table.row(&row_of_kind(kind));
        }
    }
    let mut text = table.finish();
    for note in notes(results) {
        // The note is a paragraph of its own. Otherwise Markdown would take it for a line of the
        // table.
        text.push_str(if style == Style::Markdown { "\n" } else { "" });
        text.push_str(&escaped(&note, style));
        text.push('\n');
    }
    text
}

fn row(run: &Run, floor: Option<&Floor>) -> Vec<String> {
    let times = &run.response;
    let floor = floor_for(run, floor);
    let absent = || format::ABSENT.to_owned();
    let mut row = vec![
        run.server.clone(),
        run.rate.map_or_else(|| "closed".to_owned(), |rate| bare(&format::rate(rate))),
    ];
    let quantiles = [
        (times.p50, floor.p50),
        (times.p90, floor.p90),
        (times.p99, floor.p99),
        (times.p999, floor.p999),
    ];
    row.extend(quantiles.map(|(time, floor)| packed(&format::marked_time(time, floor))));
    let max = if times.count == 0 { absent() } else { packed(&format::time(times.max as f64)) };
    row.extend([
        max,
        bare(&format::rate(run.throughput)),
        run.cpu.map_or_else(absent, |cpu| packed(&format::percent(cpu.share))),
        format::cpu_a_request(run).map_or_else(absent, |seconds| format::number(seconds * 1e6)),
        match &run.validity {
            _ if run.saturated => "saturated".to_owned(),
            Validity::Valid => "yes".to_owned(),
            Validity::Invalid { up_to: Some(up_to), .. } => format!("to {up_to}"),
            Validity::Invalid { .. } => "INVALID".to_owned(),
        },
    ]);
    row
}

/// Makes the row of one kind of request, which stands below the row of all requests.
fn row_of_kind(kind: &KindOfRequest) -> Vec<String> {
    let times = &kind.response;
    let mut row = vec![format!("- {}", kind.name), String::new()];
    let quantiles = [times.p50, times.p90, times.p99, times.p999];
    row.extend(quantiles.map(|time| packed(&format::maybe_time(time))));
    let max = (times.count > 0).then_some(times.max);
    row.push(packed(&format::maybe_time(max)));
    row.push(bare(&format::rate(kind.throughput)));
    row.extend([const { String::new() }; 3]);
    row
}

/// Returns a table with one line for each server: the medians at each rate, the CPU use at the rate
/// `cpu_at`, and the throughput in a closed loop if there was one. An `!` follows the figures of a
/// run that is invalid as a whole. A saturated run shows its throughput in parentheses.
pub fn by_rate(results: &Results, cpu_at: f64, style: Style) -> String {
    let mut servers: Vec<&str> = Vec::new();
    let mut rates: Vec<f64> = Vec::new();
    for run in &results.runs {
        if !servers.contains(&run.server.as_str()) {
            servers.push(&run.server);
        }
        rates.extend(run.rate);
    }
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let mut header = vec!["server".to_owned()];
    header.extend(rates.iter().map(|rate| format!("p50 at {}", format::short_rate(*rate))));
    header.push(format!("CPU at {}", format::short_rate(cpu_at)));
    let is_closed = results.runs.iter().any(|run| run.rate.is_none());
    if is_closed {
        header.push("saturated".to_owned());
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Sheet::new(&header, &[0], style);
    for server in servers {
        let of = |rate: Option<f64>| {
            results.runs.iter().find(|run| run.server == server && run.rate == rate)
        };
        let cell = |rate, figure: &dyn Fn(&Run) -> String| {
            of(rate).map_or_else(|| format::ABSENT.to_owned(), |run| figure(run) + doubt(run))
        };
        let mut row = vec![server.to_owned()];
        row.extend(rates.iter().map(|rate| {
            cell(Some(*rate), &|run| match run.saturated {
                true => format!("({})", format::rate(run.throughput)),
                false => format::maybe_time(run.response.p50),
            })
        }));
        let cpu = |run: &Run| {
            run.cpu.map_or_else(|| format::ABSENT.to_owned(), |cpu| format::percent(cpu.share))
        };
        row.push(cell(Some(cpu_at), &cpu));
        if is_closed {
            row.push(cell(None, &|run| format::rate(run.throughput)));
        }
        table.row(&row);
    }
    table.finish()
}

/// Returns the mark of a run that is invalid as a whole. A run whose lower percentiles are valid
/// has none.
fn doubt(run: &Run) -> &'static str {
    match run.validity {
        Validity::Invalid { up_to: None, .. } if !run.saturated => "!",
        _ => "",
    }
}

/// Returns the floor's percentiles to compare a run with. In a closed loop there are none, because
/// the response times follow from the number of connections.
pub(crate) fn floor_for(run: &Run, floor: Option<&Floor>) -> Percentiles {
    let floor = floor.filter(|_| run.rate.is_some());
    floor.map(|floor| floor.response.clone()).unwrap_or_default()
}

/// Removes the space before the unit, because a row has to fit a terminal.
fn packed(figure: &str) -> String {
    figure.replace(' ', "")
}

/// Removes the unit, because the header has it.
fn bare(rate: &str) -> String {
    rate.trim_end_matches("/s").to_owned()
}

fn notes(results: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    let absent = |run: &Run| {
        let times = &run.response;
        [times.p50, times.p90, times.p99, times.p999].iter().any(Option::is_none)
    };
    if results.runs.iter().any(absent) {
        notes.push(format::ABSENT_NOTE.to_owned());
    }
    if let Some(floor) = &results.floor {
        let time = format::maybe_time;
        let disturbed = if floor.validity == Validity::Valid { "" } else { " (it was disturbed)" };
        notes.push(format!(
            "Floor, of the generator and the kernel alone, at {}{disturbed}: p50 {}, p99 {}; send lag p99 {}. {}",
            format::rate(floor.rate),
            time(floor.response.p50),
            time(floor.response.p99),
            time(floor.send_lag.p99),
            format::FLOOR_NOTE
        ));
        if let Some(gaps) = floor.gaps {
            notes.push(format!(
                "The machine: a thread that only reads the clock there is kept from it {:.0} times a second for more than \
                 10 µs, {} of the time, at most {}; what is due at a random time is {} late at p99, whoever sends it.",
                gaps.over_10us_a_second,
                format::percent(gaps.lost),
                time(Some(gaps.longest)),
                time(Some(gaps.lag_p99))
            ));
        }
    }
    if results.runs.iter().any(|run| run.saturated) {
        notes.push(format::SATURATED_NOTE.to_owned());
    }
    for run in results.runs.iter().filter(|run| !run.saturated) {
        if let Validity::Invalid { reasons, up_to } = &run.validity {
            let (server, rate) = (&run.server, format::asked(run.rate));
            let beyond = up_to.as_ref().map_or(String::new(), |up_to| format!(" beyond {up_to}"));
            notes.push(format!("INVALID{beyond}: {server} at {rate}: {}", reasons.join("; ")));
        }
    }
    notes
}

/// Returns text in which neither a terminal nor Markdown finds commands.
fn escaped(text: &str, style: Style) -> String {
    let text = format::plain(text);
    if style == Style::Terminal {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// Returns the table of the paired comparisons, with one line for each figure compared.
pub fn comparisons(results: &Results, style: Style) -> String {
    let header = [
        "A", "B", "rate", "pairs", "figure", "A's", "B's", "B / A", "interval", "A / A", "verdict",
    ];
    let mut table = Sheet::new(&header, &[0, 1, 4, 10], style);
    for comparison in &results.comparisons {
        for metric in &comparison.metrics {
            table.row(&[
                comparison.a.clone(),
                comparison.b.clone(),
                format::asked(comparison.rate),
                comparison.pairs.to_string(),
                metric.name.clone(),
                format::metric(&metric.name, metric.a),
                format::metric(&metric.name, metric.b),
                format::number(metric.ratio),
                format!("{} to {}", format::number(metric.low), format::number(metric.high)),
                metric.noise.map_or_else(
                    || format::ABSENT.to_owned(),
                    |(_, low, high)| format!("{} to {}", format::number(low), format::number(high)),
                ),
                format::metric_verdict(metric),
            ]);
        }
    }
    table.finish()
}

/// Returns the tables of an experiment, each with its title above it and its note below.
pub fn tables(results: &Results, style: Style) -> String {
    let mut out = Vec::new();
    for table in &results.tables {
        let header: Vec<&str> = table.columns.iter().map(|column| column.head.as_str()).collect();
        let words = table.columns.iter().enumerate();
        let words = words.filter(|(_, column)| column.unit == Unit::Text).map(|(index, _)| index);
        let mut sheet = Sheet::new(&header, &words.collect::<Vec<_>>(), style);
        for row in &table.rows {
            let cells = row.iter().zip(&table.columns);
            let cells = cells.map(|(cell, column)| format::cell(cell, column.unit));
            sheet.row(&cells.collect::<Vec<_>>());
        }
        let title = escaped(&table.title, style);
        let title = if style == Style::Markdown { format!("**{title}**") } else { title };
        let mut text = format!("{title}\n\n{}", sheet.finish());
        if !table.note.is_empty() {
            text = format!("{text}\n{}\n", escaped(&table.note, style));
        }
        out.push(text);
    }
    out.join("\n")
}

/// Returns the table of the claims and their verdicts.
pub fn claims(results: &Results, style: Style) -> String {
    let mut table = Sheet::new(&["verdict", "claim", "measured"], &[0, 1, 2], style);
    for claim in &results.claims {
        table.row(&[
            format::verdict(claim.verdict).to_owned(),
            claim.claim.clone(),
            claim.measured.clone(),
        ]);
    }
    table.finish()
}

/// A table that is being made.
struct Sheet {
    table: Table,
    style: Style,
    left: Vec<usize>,
}

impl Sheet {
    /// `left` has the columns of words. The others are figures, which align on the right.
    fn new(header: &[&str], left: &[usize], style: Style) -> Self {
        let mut table = Table::new();
        table.load_style(match style {
            Style::Terminal => presets::NOTHING,
            Style::Markdown => presets::ASCII_MARKDOWN,
        });
        table.set_header(header.iter().copied());
        Self { table, style, left: left.to_vec() }
    }

    fn row(&mut self, cells: &[String]) {
        self.table.add_row(cells.iter().map(|cell| escaped(cell, self.style)));
    }

    fn finish(mut self) -> String {
        let last = self.table.column_count().saturating_sub(1);
        for (index, column) in self.table.column_iter_mut().enumerate() {
            if !self.left.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if self.style == Style::Terminal {
                column.set_padding((0, if index == last { 0 } else { 2 }));
            }
        }
        let mut lines: Vec<String> =
            self.table.lines().map(|line| line.trim_end().to_owned()).collect();
        if self.style == Style::Terminal {
            let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
            lines.insert(1.min(lines.len()), "─".repeat(width));
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }
}
