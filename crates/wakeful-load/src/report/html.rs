//! Pieces of HTML: escaped text, tables, figures.

use super::{
    error::ReportError,
    escape::escape,
    look::Look,
    svg::{self, Caption},
};

/// A table of percentiles: [`plain_table`], with the dashes explained where they stand.
pub(super) fn table(label: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = plain_table(label, header, rows);
    if rows.iter().flatten().any(|cell| cell == crate::format::ABSENT) {
        let note = crate::format::ABSENT_NOTE;
        out.push_str(&format!("<p class=\"note\">{note}</p>\n"));
    }
    out
}

/// A table: the first column names the row, the others are figures. It scrolls in its own box.
pub(super) fn plain_table(label: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    let label = escape(label);
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\"><table><thead><tr>"
    );
    for cell in header {
        out.push_str(&format!("<th scope=\"col\">{}</th>", escape(cell)));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            let cell = escape(cell);
            if index == 0 {
                out.push_str(&format!("<th scope=\"row\"><span>{cell}</span></th>"));
            } else {
                out.push_str(&format!("<td>{cell}</td>"));
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
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

impl Figure<'_> {
    /// The figure, with `plot` called for each window.
    pub(super) fn html(
        &self,
        ids: &mut Ids,
        plot: impl Fn(Window, Caption<'_>) -> Result<String, ReportError>,
    ) -> Result<String, ReportError> {
        let Self { title, description, legend, table, small } = *self;
        let mut out = format!(
            "<figure>\n<figcaption><strong>{}</strong> {}</figcaption>\n{legend}",
            escape(title),
            escape(description)
        );
        let windows: &[(Window, &str)] = if small {
            &[(Window::Narrow, "plot")]
        } else {
            &[(Window::Wide, "plot wide"), (Window::Narrow, "plot narrow")]
        };
        for (window, class) in windows {
            let id = ids.next();
            out.push_str(&plot(*window, Caption { id: &id, class, title, description })?);
        }
        out.push_str(&format!(
            "<details><summary>The same figures as a table</summary>\n{table}</details>\n</figure>\n"
        ));
        Ok(out)
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

/// A legend: for each line its look, its key and its name.
pub(super) fn legend(entries: &[Entry]) -> Result<String, ReportError> {
    let mut out = String::from("<ul class=\"legend\">\n");
    for Entry { look, key, name, said } in entries {
        let (sample, key, name) = (svg::sample(*look)?, escape(key), escape(name));
        let class = match (matches!(look, Look::Strong(_)), said) {
            (false, false) => "",
            (true, false) => " class=\"w\"",
            (false, true) => " class=\"said\"",
            (true, true) => " class=\"w said\"",
        };
        out.push_str(&format!("<li{class}>{sample}<span><b>{key}</b> {name}</span></li>\n"));
    }
    out.push_str("</ul>\n");
    Ok(out)
}
