//! The plot for a README: one SVG that needs no page around it.

use super::{ReportError, html::escape, plots};
use crate::results::Results;

const STYLE: &str = include_str!("readme.css");

/// The size, which is what fits a README's column.
const SIZE: (i32, i32) = (900, 480);

pub(super) fn plot(results: &Results) -> Result<String, ReportError> {
    let (width, height) = SIZE;
    let (description, body) = plots::readme(results, SIZE)?;
    let (title, description) = (escape(&results.title), escape(&description));
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"title desc\">\
         <title id=\"title\">{title}</title><desc id=\"desc\">{description}</desc>\n\
         <style>\n{STYLE}</style>\n\
         <rect class=\"p\" width=\"{width}\" height=\"{height}\"/>\n{body}"
    ))
}
