//! Comparisons: the ratio of each figure with its interval, drawn over the noise of A against A.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axis::Axis;
use crate::{
    format,
    report::{
        ReportError,
        html::{self, Figure, Ids, Window},
        role::Role,
        svg::{self, Area, Caption},
    },
    results::{Comparison, Metric, Results},
};

pub(super) fn figures(results: &Results, ids: &mut Ids) -> Result<String, ReportError> {
    let mut out = String::new();
    for comparison in results.comparisons.iter().filter(|one| !one.metrics.is_empty()) {
        let Comparison { a, b, .. } = comparison;
        let title = format!("{b} (B) against {a} (A), {}", format::asked(comparison.rate));
        let description = format!(
            "B / A of {} interleaved pairs with its interval. Left of 1, B's figure is the lower \
             one. The grey band is what A against A shows: noise.",
            comparison.pairs
        );
        let interval = |low, high| format!("{} to {}", format::number(low), format::number(high));
        let rows: Vec<Vec<String>> = comparison
            .metrics
            .iter()
            .map(|metric| {
                vec![
                    metric.name.clone(),
                    format::metric(&metric.name, metric.a),
                    format::metric(&metric.name, metric.b),
                    format::number(metric.ratio),
                    interval(metric.low, metric.high),
                    metric.noise.map_or_else(
                        || "not measured".to_owned(),
                        |(_, low, high)| interval(low, high),
                    ),
                    format::metric_verdict(metric),
                ]
            })
            .collect();
        let header = ["figure", "A", "B", "B / A", "interval", "A / A", "verdict"];
        let figure = Figure {
            title: &title,
            description: &description,
            legend: "",
            table: &html::table(&title, &header, &rows)?,
            small: false,
        };
        out.push_str(&figure.html(ids, |window, caption| draw(comparison, window, caption))?);
    }
    Ok(out)
}

/// The height of a figure's row, with its words above and its interval below.
const ROW: i32 = 44;

fn draw(
    comparison: &Comparison,
    window: Window,
    caption: Caption<'_>,
) -> Result<String, ReportError> {
    let width: i32 = if window == Window::Wide { 860 } else { 360 };
    let metrics = &comparison.metrics;
    let bottom = 6 + ROW * i32::try_from(metrics.len()).unwrap_or(1);
    let values = metrics.iter().flat_map(|metric| {
        let noise = metric.noise.map_or([1.0, 1.0], |(_, low, high)| [low, high]);
        [metric.ratio, metric.low, metric.high, noise[0], noise[1]]
    });
    let axis = Axis::ratios(values, "B / A (log)");
    let size = (width, bottom + 44);
    svg::draw(caption, size, |area| {
        let (left, right) = (14, width - 14);
        let inside = f64::from(right - left);
        let place = |position: f64| {
            let share = (position - axis.low) / (axis.high - axis.low);
            left + (share.clamp(0.0, 1.0) * inside).round() as i32
        };
        for (at, label) in axis.thinned(right - left, svg::LETTER_WIDTH) {
            let x = place(at);
            svg::path(area, vec![(x, 4), (x, bottom)], Role::Grid.stroke(1))?;
            svg::text(area, &label, (x, bottom + 14), Role::Text, HPos::Center)?;
        }
        let x = |ratio: f64| place(ratio.max(1e-12).log10());
        for (metric, top) in metrics.iter().zip((6..).step_by(44)) {
            row(area, metric, top, &x)?;
        }
        svg::path(area, vec![(x(1.0), 4), (x(1.0), bottom)], Role::Axis.stroke(2))?;
        svg::path(area, vec![(left, bottom), (right, bottom)], Role::Axis.stroke(1))?;
        // The words are drawn over the line at 1.
        for (metric, top) in metrics.iter().zip((6..).step_by(44)) {
            let words = words(metric, window);
            svg::text(area, &words, (left, top + 8), Role::Text, HPos::Left)?;
        }
        svg::text(area, axis.title, (width / 2, bottom + 34), Role::Muted, HPos::Center)
    })
}

fn words(metric: &Metric, window: Window) -> String {
    let ratio = format::number(metric.ratio);
    let verdict = format::metric_verdict(metric);
    if window == Window::Narrow {
        return format!("{} × {ratio} {verdict}", metric.name);
    }
    let (low, high) = (format::number(metric.low), format::number(metric.high));
    format!("{} × {ratio} ({low} to {high}) {verdict}", metric.name)
}

fn row(
    area: &Area<'_>,
    metric: &Metric,
    top: i32,
    x: &impl Fn(f64) -> i32,
) -> Result<(), ReportError> {
    if let Some((_, low, high)) = metric.noise {
        let band = [(x(low), top + 16), (x(high).max(x(low) + 1), top + ROW - 4)];
        svg::draw_on(area, &Rectangle::new(band, Role::Band.fill()))?;
    }
    let middle = top + 28;
    let (low, high) = (x(metric.low), x(metric.high));
    let stroke = Role::Mark(0).stroke(2);
    svg::path(area, vec![(low, middle), (high, middle)], stroke)?;
    for end in [low, high] {
        svg::path(area, vec![(end, middle - 5), (end, middle + 5)], stroke)?;
    }
    svg::marker(area, 0, (x(metric.ratio), middle))
}
