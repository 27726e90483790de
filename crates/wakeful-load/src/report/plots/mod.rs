//! The plots, a file for each, and what they share.

use self::series::{Servers, groups};
use super::{error::ReportError, html::Ids};
use crate::results::Results;

mod axis;
mod cpu;
mod forest;
mod frame;
mod lines;
mod percentiles;
pub(super) use percentiles::row_of;
mod rates;
mod readme;
mod series;
pub(super) use readme::readme;
mod timeline;
mod tradeoff;
pub(super) use tradeoff::{frontier, setting as setting_plot};

/// A section of the page: its heading and its figures. The text is empty if there is nothing to
/// show.
pub(super) type Section = (&'static str, String);

/// Draws all plots.
pub(super) fn sections(results: &Results, ids: &mut Ids) -> Result<Vec<Section>, ReportError> {
    let servers = Servers::of(results);
    let groups = groups(results);
    Ok(vec![
        (
            "Response time by percentile",
            percentiles::figures(&groups, &servers, results.floor.as_ref(), ids)?,
        ),
        ("Response time against rate", rates::figures(results, &servers, ids)?),
        ("CPU", cpu::figures(results, &servers, ids)?),
        ("Response time against CPU", tradeoff::figures(results, &servers, ids)?),
        ("Comparisons", forest::figures(results, ids)?),
        ("Response over time", timeline::figures(&groups, ids)?),
    ])
}
