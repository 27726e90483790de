//! The median against the rate, as a single plot with large letters.

use plotters::style::text_anchor::HPos;

use super::series::Servers;
use super::{axis, axis::Axis, frame::Frame, lines, rates};
use crate::{
    report::{ReportError, look::Look, role::Role, svg},
    results::Results,
};

/// The smallest and the largest height of a label's letters.
const LABELS: (i32, i32) = (12, 18);

/// Returns a description of the plot in words, and its shapes.
pub(in crate::report) fn readme(
    results: &Results,
    size: (i32, i32),
) -> Result<(String, String), ReportError> {
    let servers = Servers::of(results);
    let sweeps = rates::all(results);
    // The first of the sweeps that have the most rates.
    let most = sweeps.iter().map(|sweep| sweep.rates.len()).max().unwrap_or(0);
    let Some(sweep) = sweeps.iter().find(|sweep| sweep.rates.len() == most) else {
        let nothing = "Nothing was measured at a given rate.".to_owned();
        let body = svg::body(size, |area| {
            let middle = (size.0 / 2, size.1 / 2);
            svg::sized(area, &nothing, middle, Role::Text, HPos::Center, LABELS.1)
        })?;
        return Ok((nothing, body));
    };
    let lines = sweep.lines(&servers, |run| run.response.p50.map(|time| axis::log(time as f64)));
    let times = lines.iter().flat_map(|line| &line.points).map(|(_, y)| 10f64.powf(*y));
    let y = Axis::times(times, "median response time (log); lower is better");
    let x = Axis::rates(&sweep.rates);
    let mut plot = lines::Plot { x, y, lines };
    let frame = frame(size, plot.lines.len());
    let room = (size.1 - frame.top() - frame.bottom()) / frame.line_height() + 1;
    unlabelled(&mut plot.lines, usize::try_from(room).unwrap_or(0));
    let labels = plot.labels(&frame);
    let body = svg::body(size, |area| plot.shapes(area, &frame, size.1, &labels))?;
    Ok((format!("Median response time at each rate offered, {}.", sweep.title), body))
}

/// Makes a frame with letters as large as the number of labels permits.
fn frame((width, height): (i32, i32), labels: usize) -> Frame {
    let mut frame = Frame {
        width,
        least: height,
        letters: LABELS.1,
        labels: LABELS.1,
        names: 26,
        keys: false,
        bare: true,
    };
    let room = height - frame.top() - frame.bottom();
    let each = room / i32::try_from(labels).unwrap_or(i32::MAX).max(1);
    frame.labels = (each * 5 / 6).clamp(LABELS.0, LABELS.1);
    frame
}

/// Removes labels of grey lines, the last ones first, until there is room for the others.
fn unlabelled(lines: &mut [lines::Line], room: usize) {
    let mut over = lines.len().saturating_sub(room);
    for line in lines.iter_mut().rev() {
        if over > 0 && matches!(line.look, Look::Quiet(_)) {
            line.name.clear();
            line.mark = "";
            over -= 1;
        }
    }
}
