//! Plots for a README. Each is one SVG that needs no page.

use askama::Template;

use super::{error::ReportError, plots, rendered::rendered};
use crate::results::{Results, Tradeoff};

const STYLE: &str = include_str!("readme.css");

/// The size of a plot, which fits into a README's column.
const SIZE: (i32, i32) = (900, 480);

pub(super) fn plot(results: &Results) -> Result<String, ReportError> {
    let (description, body) = plots::readme(results, SIZE)?;
    svg(&results.title, &description, SIZE, &body)
}

pub(super) fn frontier(results: &Results) -> Result<Option<String>, ReportError> {
    let drawn = plots::frontier(results, SIZE.0)?;
    drawn
        .map(|(description, height, body)| {
            svg(&results.title, &description, (SIZE.0, height), &body)
        })
        .transpose()
}

pub(super) fn setting(tradeoff: &Tradeoff) -> Result<String, ReportError> {
    let body = plots::setting_plot(tradeoff, SIZE)?;
    let description = "Median response time against CPU for each value of the setting.";
    svg(&tradeoff.title, description, SIZE, &body)
}

#[derive(Template)]
#[template(path = "report/readme.svg")]
struct Readme<'a> {
    title: &'a str,
    description: &'a str,
    width: i32,
    height: i32,
    style: &'static str,
    /// The shapes, and the end tag of the SVG.
    body: &'a str,
}

fn svg(
    title: &str,
    description: &str,
    (width, height): (i32, i32),
    body: &str,
) -> Result<String, ReportError> {
    rendered(&Readme { title, description, width, height, style: STYLE, body })
}
