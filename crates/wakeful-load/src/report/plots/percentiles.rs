//! Percentile curves. On their axis each further nine takes the same room.

use super::series::{FLOOR, Group, Servers, mark, valid};
use super::{axis, axis::Axis, lines};
use crate::{
    format,
    report::{
        ReportError,
        html::{self, Figure, Ids},
        look::Look,
    },
    results::{Floor, Percentiles},
};

/// A quantile is shown only if it has this many samples beyond it.
const BEYOND: f64 = 100.0;

pub(super) fn figures(
    groups: &[Group<'_>],
    servers: &Servers<'_>,
    floor: Option<&Floor>,
    ids: &mut Ids,
) -> Result<String, ReportError> {
    let mut out = String::new();
    for group in groups {
        let mut lines: Vec<_> = group
            .runs
            .iter()
            .map(|run| lines::Line {
                look: servers.look(&run.server),
                key: servers.key(&run.server),
                name: run.server.clone(),
                mark: mark(valid(run)),
                points: curve(&run.response),
                invalid: Vec::new(),
            })
            .collect();
        let furthest = lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x);
        let furthest = furthest.fold(0.0, f64::max);
        // The floor is drawn only as far as there is a server's line to compare it with.
        lines.extend(floor.map(|floor| lines::Line {
            look: Look::Floor,
            key: String::new(),
            name: FLOOR.to_owned(),
            mark: "",
            points: curve(&floor.response).into_iter().filter(|(x, _)| *x <= furthest).collect(),
            invalid: Vec::new(),
        }));
        let points = || lines.iter().flat_map(|line| line.points.iter());
        if points().next().is_none() {
            continue;
        }
        let y = Axis::times(points().map(|(_, y)| 10f64.powf(*y)), "response time (log)");
        let x = Axis::quantiles(furthest);
        let shown: Vec<_> =
            group.runs.iter().map(|run| (run.server.as_str(), valid(run))).collect();
        let rows: Vec<Vec<String>> = group
            .runs
            .iter()
            .map(|run| {
                let mut row = vec![format!("{} {}", servers.key(&run.server), run.server)];
                row.extend(row_of(&run.response));
                row
            })
            .collect();
        let header = ["server", "samples", "p50", "p90", "p99", "p99.9", "p99.99", "max", "mean"];
        let figure = Figure {
            title: &group.title,
            description: "Response time at each percentile; lower is better. A line ends where \
                          fewer than 100 samples lie beyond; ✗ is not valid; dotted is the floor.",
            legend: &servers.legend(&shown)?,
            table: &html::table(&group.title, &header, &rows)?,
            small: false,
        };
        let plot = lines::Plot { x, y, lines };
        out.push_str(&figure.html(ids, |window, caption| plot.draw(window, caption))?);
    }
    Ok(out)
}

/// Returns the cells of a distribution: samples, percentiles, maximum and mean.
pub(in crate::report) fn row_of(times: &Percentiles) -> Vec<String> {
    let mut row = vec![format::count(times.count)];
    row.extend([times.p50, times.p90, times.p99, times.p999, times.p9999].map(format::maybe_time));
    row.push(format::time(times.max as f64));
    row.push(format::time(times.mean));
    row
}

/// Returns the points from the median on that have enough samples beyond them.
fn curve(times: &Percentiles) -> Vec<(f64, f64)> {
    let named = [
        (0.5, times.p50),
        (0.9, times.p90),
        (0.99, times.p99),
        (0.999, times.p999),
        (0.9999, times.p9999),
    ];
    let named = named.iter().filter_map(|(quantile, value)| Some((*quantile, (*value)?)));
    let mut points: Vec<(f64, u64)> = times.curve.iter().copied().chain(named).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    points.dedup_by_key(|(quantile, _)| *quantile);
    points
        .into_iter()
        .filter(|(quantile, _)| (0.5..1.0).contains(quantile))
        .filter(|(quantile, _)| (1.0 - quantile) * times.count as f64 >= BEYOND - 1e-6)
        .map(|(quantile, value)| (axis::nines(quantile), axis::log(value as f64)))
        .collect()
}
