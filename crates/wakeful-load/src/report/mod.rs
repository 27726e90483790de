//! Writes results as one HTML file without scripts, network or fonts.
//!
//! Every plot is drawn for wide and for narrow windows, and a media query shows one of the two.
//! Lines differ by colour, dashes, markers and the letter at their ends, so no reader depends on
//! colour. Each plot has a table with the same figures. The page is also well-formed XML, which the
//! tests read.

use crate::results::{Results, Tradeoff};

mod error;
mod html;
mod look;
mod page;
mod plots;
mod readme;
mod rendered;
mod role;
mod svg;

pub use error::ReportError;

/// Returns the report as the text of one HTML file. Equal results give equal files.
///
/// # Errors
///
/// A plot cannot be drawn, or the page cannot be written.
pub fn html(results: &Results) -> Result<String, ReportError> {
    page::page(results)
}

/// Returns a plot for a README: one SVG of the median against the rate. Equal results give equal
/// files.
///
/// # Errors
///
/// The plot cannot be drawn.
pub fn readme_plot(results: &Results) -> Result<String, ReportError> {
    readme::plot(results)
}

/// Returns a plot for a README of the median against CPU at each rate, with a point for each
/// server. Returns `None` if no rate has three servers with a valid median and known CPU. Equal
/// results give equal files.
///
/// # Errors
///
/// The plot cannot be drawn.
pub fn frontier_plot(results: &Results) -> Result<Option<String>, ReportError> {
    readme::frontier(results)
}

/// Returns a plot for a README of what a setting costs and brings. Equal results give equal files.
///
/// # Errors
///
/// The plot cannot be drawn.
pub fn tradeoff_plot(tradeoff: &Tradeoff) -> Result<String, ReportError> {
    readme::setting(tradeoff)
}
