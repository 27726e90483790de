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

/// Makes a table of percentiles: a [`plain_table`] with a note that explains dashes, if it has any.
pub(super) fn table(
    label: &str,
    header: &[&str],
    rows: &[Vec<String>],
) -> Result<String, ReportError> {
    let has_dashes = rows.iter().flatten().any(|cell| cell == format::ABSENT);
    let note = has_dashes.then_some(format::ABSENT_NOTE);
    rendered(&Table { label, header, rows, note })
}

/// Makes a table. The first column names the row, and the others have figures. The table scrolls in
/// its own box.
pub(super) fn plain_table(
    label: &str,
    header: &[&str],
    rows: &[Vec<String>],
) -> Result<String, ReportError> {
    rendered(&Table { label, header, rows, note: None })
}

/// Makes the ids of elements by counting.
#[derive(Debug, Default)]
pub(super) struct Ids(usize);

impl Ids {
    /// Returns the next id.
    pub(super) fn next(&mut self) -> String {
        self.0 += 1;
        format!("p{}", self.0)
    }
}

/// The kind of window that a plot is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Window {
    /// A window at least as wide as a tablet.
    Wide,
    /// A telephone's window, or the place of one of several plots in a row.
    Narrow,
}

/// A plot with its caption, its legend and a table of its figures.
pub(super) struct Figure<'a> {
    /// What the plot shows, in one line.
    pub(super) title: &'a str,
    /// A description of the plot in words.
    pub(super) description: &'a str,
    /// The output of [`legend`], or nothing.
    pub(super) legend: &'a str,
    /// The output of [`table`] for the same figures.
    pub(super) table: &'a str,
    /// Whether this is one of several plots in a row, and is drawn only for narrow windows.
    pub(super) small: bool,
}

#[derive(Template)]
#[template(path = "report/figure.html")]
struct Drawn<'a> {
    figure: &'a Figure<'a>,
    plots: Vec<String>,
}

impl Figure<'_> {
    /// Renders the figure. Calls `plot` for each kind of window.
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

/// An entry of a legend.
pub(super) struct Entry {
    pub(super) look: Look,
    pub(super) key: String,
    pub(super) name: String,
    /// Whether a wide plot has the name at the line's end, so that the legend need not show it.
    pub(super) said: bool,
}

#[derive(Template)]
#[template(path = "report/legend.html")]
struct Legend<'a> {
    /// The class and the sample of each entry, and the entry.
    lines: Vec<(&'static str, String, &'a Entry)>,
}

/// Makes a legend with the look, the key and the name of each line.
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
