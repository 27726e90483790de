//! Text that a template produces.

use askama::Template;

use super::error::ReportError;
use crate::format;

/// Renders a template, without characters that XML and terminals must not get. Templates escape all
/// text except what they mark as `safe`.
pub(super) fn rendered(template: &impl Template) -> Result<String, ReportError> {
    let text = template.render().map_err(|error| ReportError::Page(error.to_string()))?;
    Ok(format::printable(&text))
}
