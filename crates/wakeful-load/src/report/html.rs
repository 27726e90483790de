//! Pieces of HTML: tables, figures, legends. `templates/report` has their text.

use askama::Template;

use super::{
    error::ReportError,
    look::Look,
    rendered::rendered,
    svg::{self, Caption},
};
use crate::format;

#[derive(Template)]
#[template(path = "report/table.html")]
struct Table<'a> {
    label: &'a str,
    header: &'a [&'a str],
    rows: &'a [Vec<String>],
    note: Option<&'a str>,
}

/// A table of percentiles: [`plain_table`], with the dashes explained where they stand.
pub(super) fn table(
    label: &str,
    header: &[&str],
    rows: &[Vec<String>],
) -> Result<String, ReportError> {
    let has_dashes = rows.iter().flatten().any(|cell| cell == format::ABSENT);
    let note = has_dashes.then_some(format::ABSENT_NOTE);
    rendered(&Table { label, header, rows, note })
}

/// A table: the first column names the row, the others are figures. It scrolls in its own box.
pub(super) fn plain_table(
    label: &str,
    header: &[&str],
    rows: &[Vec<String>],
) -> Result<String, ReportError> {
    rendered(&Table { label, header, rows, note: None })
}

/// Numbers what needs an id.
#[derive(Debug, Default)]
pub(super) struct Ids(usize);

impl Ids {
    /// The next one.
    pub(super) fn next(&mut self) -> String {
        self.0 += 1;
        format!("p{}", self.0)
    }
}

/// A window that a plot is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Window {
    /// From a tablet up.
    Wide,
    /// A telephone, or one of several plots in a row.
    Narrow,
}

/// A plot with its caption, its legend and the table behind it.
pub(super) struct Figure<'a> {
    /// What it shows, one line.
    pub(super) title: &'a str,
    /// What there is to see, in words.
    pub(super) description: &'a str,
    /// [`legend`], or nothing.
    pub(super) legend: &'a str,
    /// [`table`] with the same figures.
    pub(super) table: &'a str,
    /// Only narrow: one of several in a row.
    pub(super) small: bool,
}

#[derive(Template)]
#[template(path = "report/figure.html")]
struct Drawn<'a> {
    figure: &'a Figure<'a>,
    plots: Vec<String>,
}

impl Figure<'_> {
    /// The figure, with `plot` called for each window.
    pub(super) fn html(
        &self,
        ids: &mut Ids,
        plot: impl Fn(Window, Caption<'_>) -> Result<String, ReportError>,
    ) -> Result<String, ReportError> {
        let Self { title, description, small, .. } = *self;
        let windows: &[(Window, &str)] = if small {
            &[(Window::Narrow, "plot")]
        } else {
            &[(Window::Wide, "plot wide"), (Window::Narrow, "plot narrow")]
        };
        let plots = windows.iter().map(|(window, class)| {
            let id = ids.next();
            plot(*window, Caption { id: &id, class, title, description })
        });
        let plots = plots.collect::<Result<_, _>>()?;
        rendered(&Drawn { figure: self, plots })
    }
}

/// A line of a legend.
pub(super) struct Entry {
    pub(super) look: Look,
    pub(super) key: String,
    pub(super) name: String,
    /// Whether a wide plot says the same at the line's end, so that it need not stand here.
    pub(super) said: bool,
}

#[derive(Template)]
#[template(path = "report/legend.html")]
struct Legend<'a> {
    /// Each with its class and its sample.
    lines: Vec<(&'static str, String, &'a Entry)>,
}

/// A legend: for each line its look, its key and its name.
pub(super) fn legend(entries: &[Entry]) -> Result<String, ReportError> {
    let lines = entries.iter().map(|entry| {
        let class = match (matches!(entry.look, Look::Strong(_)), entry.said) {
            (false, false) => "",
            (true, false) => "w",
            (false, true) => "said",
            (true, true) => "w said",
        };
        Ok((class, svg::sample(entry.look)?, entry))
    });
    rendered(&Legend { lines: lines.collect::<Result<_, ReportError>>()? })
}
