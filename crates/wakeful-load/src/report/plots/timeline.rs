//! Response times over the run: a small plot for each run.

use askama::Template;

use super::series::{Group, valid};
use super::{axis, axis::Axis, lines};
use crate::{
    format,
    report::{
        ReportError,
        html::{self, Figure, Ids},
        look::Look,
        rendered::rendered,
    },
    results::{Interval, Run},
};

/// The most points in a plot. It does not have enough pixels for more.
const MOST: usize = 150;

#[derive(Template)]
#[template(path = "report/timelines.html")]
struct Timelines<'a> {
    legend: String,
    is_open: bool,
    /// The title and the figures of each group.
    groups: Vec<(&'a str, String)>,
}

pub(super) fn figures(groups: &[Group<'_>], ids: &mut Ids) -> Result<String, ReportError> {
    let count =
        groups.iter().flat_map(|group| &group.runs).filter(|run| !run.timeline.is_empty()).count();
    let names = ["max", "p99, however few samples there are in an interval", "p50"];
    let entry = |(index, name): (usize, &str)| html::Entry {
        look: Look::Plain(index),
        key: String::new(),
        name: name.to_owned(),
        said: false,
    };
    let legend: Vec<_> = names.into_iter().enumerate().map(entry).collect();
    let legend = html::legend(&legend)?;
    let mut drawn = Vec::new();
    for group in groups {
        let runs: Vec<_> = group.runs.iter().filter(|run| !run.timeline.is_empty()).collect();
        if runs.is_empty() {
            continue;
        }
        // All plots of a group have the same scale, so that they can be compared.
        let all = runs.iter().flat_map(|run| &run.timeline);
        let y = Axis::times(
            all.flat_map(|interval| [interval.p50 as f64, interval.max as f64]),
            "response time (log)",
        );
        let figures = runs.iter().map(|run| figure(run, &group.title, &y, count > 1, ids));
        drawn.push((group.title.as_str(), figures.collect::<Result<String, _>>()?));
    }
    if drawn.is_empty() {
        return Ok(String::new());
    }
    rendered(&Timelines { legend, is_open: count <= 12, groups: drawn })
}

fn figure(
    run: &Run,
    title: &str,
    y: &Axis,
    small: bool,
    ids: &mut Ids,
) -> Result<String, ReportError> {
    let (intervals, merged) = thinned(&run.timeline);
    let line = |index: usize, name: &str, value: fn(&Interval) -> u64| lines::Line {
        look: Look::Plain(index),
        key: String::new(),
        name: name.to_owned(),
        mark: "",
        points: intervals
            .iter()
            .filter(|interval| interval.count > 0)
            .map(|interval| (interval.start, axis::log(value(interval) as f64)))
            .collect(),
        invalid: Vec::new(),
    };
    let last = intervals.last().map_or(1.0, |interval| interval.start);
    let x = Axis::linear(last, |seconds| format!("{seconds} s"), "time since the start");
    let plot = lines::Plot {
        x,
        y: y.clone(),
        lines: vec![
            line(0, "max", |interval| interval.max),
            line(1, "p99", |interval| interval.p99),
            line(2, "p50", |interval| interval.p50),
        ],
    };
    let rows: Vec<Vec<String>> = intervals
        .iter()
        .map(|interval| {
            let times = [interval.p50, interval.p99, interval.max].map(|t| format::time(t as f64));
            let start = format!("{} s", format::number(interval.start));
            [vec![start, format::count(interval.count)], times.to_vec()].concat()
        })
        .collect();
    let name = format!("{}{}", run.server, if valid(run) { "" } else { " ✗ INVALID" });
    let description = match merged {
        1 => title.to_owned(),
        merged => format!("{title}. Each point is the worst of {merged} intervals."),
    };
    Figure {
        title: &name,
        description: &description,
        legend: "",
        table: &html::table(&name, &["from", "answers", "p50", "p99", "max"], &rows)?,
        small,
    }
    .html(ids, |window, caption| plot.draw(window, caption))
}

/// Merges intervals, so that there are only as many points as can be seen. A merged interval has
/// the worst of the values. Also returns how many intervals a point stands for.
fn thinned(timeline: &[Interval]) -> (Vec<Interval>, usize) {
    let merged = timeline.len().div_ceil(MOST).max(1);
    let worst = |chunk: &[Interval]| {
        chunk.iter().copied().reduce(|one, other| Interval {
            start: one.start,
            count: one.count + other.count,
            p50: one.p50.max(other.p50),
            p99: one.p99.max(other.p99),
            max: one.max.max(other.max),
        })
    };
    (timeline.chunks(merged).filter_map(worst).collect(), merged)
}
