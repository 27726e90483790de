//! Plots for a README: each one SVG that needs no page around it.

use super::{error::ReportError, escape::escape, plots};
use crate::results::{Results, Tradeoff};

const STYLE: &str = include_str!("readme.css");

/// The size, which is what fits a README's column.
const SIZE: (i32, i32) = (900, 480);

pub(super) fn plot(results: &Results) -> Result<String, ReportError> {
    let (description, body) = plots::readme(results, SIZE)?;
    Ok(svg(&results.title, &description, SIZE, &body))
}

pub(super) fn frontier(results: &Results) -> Result<Option<String>, ReportError> {
    let drawn = plots::frontier(results, SIZE.0)?;
    Ok(drawn.map(|(description, height, body)| {
        svg(&results.title, &description, (SIZE.0, height), &body)
    }))
}

pub(super) fn setting(tradeoff: &Tradeoff) -> Result<String, ReportError> {
    let body = plots::setting_plot(tradeoff, SIZE)?;
    let description = "Median response time against CPU for each value of the setting.";
    Ok(svg(&tradeoff.title, description, SIZE, &body))
}

/// `body` has the end of the SVG.
fn svg(title: &str, description: &str, (width, height): (i32, i32), body: &str) -> String {
    let (title, description) = (escape(title), escape(description));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"title desc\">\
         <title id=\"title\">{title}</title><desc id=\"desc\">{description}</desc>\n\
         <style>\n{STYLE}</style>\n\
         <rect class=\"p\" width=\"{width}\" height=\"{height}\"/>\n{body}"
    )
}
