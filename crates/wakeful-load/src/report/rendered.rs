//! Text that a template produces.

use askama::Template;

use super::error::ReportError;
use crate::format;

/// What a template says, without characters that XML and terminals must not get. Templates escape
/// all text but what they mark as `safe`.
pub(super) fn rendered(template: &impl Template) -> Result<String, ReportError> {
    let text = template.render().map_err(|error| ReportError::Page(error.to_string()))?;
    Ok(format::printable(&text))
}
