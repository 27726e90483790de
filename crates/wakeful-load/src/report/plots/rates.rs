//! Latency against rate: one plot for the median, and one for the 99th percentile.

use super::series::{FLOOR, Servers, mark, median_stands, setting, valid};
use super::{axis, axis::Axis, lines};
use crate::{
    format,
    report::{
        ReportError,
        html::{self, Figure, Ids},
        look::Look,
    },
    results::{Percentiles, Results, Run},
};

/// Open-loop runs that differ only by server and rate.
pub(super) struct Sweep<'a> {
    pub(super) title: String,
    pub(super) rates: Vec<f64>,
    pub(super) runs: Vec<&'a Run>,
    /// Whether the figure that is shown of a run is valid.
    pub(super) stands: fn(&Run) -> bool,
}

pub(super) fn sweeps(results: &Results) -> Vec<Sweep<'_>> {
    let mut sweeps = all(results);
    sweeps.retain(|sweep| sweep.rates.len() > 1);
    sweeps
}

/// Like [`sweeps`], but includes those with only one rate.
pub(super) fn all(results: &Results) -> Vec<Sweep<'_>> {
    let mut sweeps: Vec<Sweep<'_>> = Vec::new();
    for run in &results.runs {
        let Some(rate) = run.rate.filter(|rate| rate.is_finite()) else { continue };
        let title = setting(run);
        let at = sweeps.iter().position(|sweep| sweep.title == title).unwrap_or_else(|| {
            sweeps.push(Sweep {
                title,
                rates: Vec::new(),
                runs: Vec::new(),
                stands: median_stands,
            });
            sweeps.len() - 1
        });
        let sweep = &mut sweeps[at];
        if !sweep.rates.contains(&rate) {
            sweep.rates.push(rate);
        }
        sweep.runs.push(run);
    }
    for sweep in &mut sweeps {
        sweep.rates.sort_by(f64::total_cmp);
    }
    sweeps
}

impl<'a> Sweep<'a> {
    /// Returns the servers, and whether the figures of all their runs are valid, apart from
    /// saturated runs.
    pub(super) fn shown(&self) -> Vec<(&'a str, bool)> {
        let mut shown: Vec<(&str, bool)> = Vec::new();
        for run in &self.runs {
            let stands = run.saturated || (self.stands)(run);
            match shown.iter_mut().find(|(server, _)| *server == run.server) {
                Some((_, all)) => *all &= stands,
                None => shown.push((&run.server, stands)),
            }
        }
        shown
    }

    /// Returns a line for each server, with the values that `value` finds.
    pub(super) fn lines(
        &self,
        servers: &Servers<'_>,
        value: impl Fn(&Run) -> Option<f64>,
    ) -> Vec<lines::Line> {
        let line = |(server, all): (&str, bool)| {
            let mut points: Vec<(f64, f64)> =
                self.points(server, &value).map(|(_, point)| point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            lines::Line {
                look: servers.look(server),
                key: servers.key(server),
                name: server.to_owned(),
                mark: mark(all),
                points,
                invalid: self
                    .points(server, &value)
                    .filter(|(run, _)| !(self.stands)(run))
                    .map(|(_, point)| point)
                    .collect(),
            }
        };
        self.shown().into_iter().map(line).collect()
    }

    fn points(
        &self,
        server: &str,
        value: &impl Fn(&Run) -> Option<f64>,
    ) -> impl Iterator<Item = (&'a Run, (f64, f64))> {
        let runs = self.runs.iter().copied();
        // The response time of a saturated run means nothing.
        let runs = runs.filter(move |run| run.server == server && !run.saturated);
        runs.filter_map(move |run| Some((run, (axis::log(run.rate?), value(run)?))))
            .filter(|(_, (x, y))| x.is_finite() && y.is_finite())
    }

    /// Makes a table with a row for each server and a column for each rate.
    pub(super) fn table(
        &self,
        label: &str,
        cell: impl Fn(&Run) -> String,
    ) -> Result<String, ReportError> {
        let rates: Vec<String> = self.rates.iter().map(|rate| format::rate(*rate)).collect();
        let header: Vec<&str> =
            std::iter::once("server").chain(rates.iter().map(String::as_str)).collect();
        let row = |(server, _): (&str, bool)| {
            let cells = self.rates.iter().map(|rate| {
                let run =
                    self.runs.iter().find(|run| run.server == server && run.rate == Some(*rate));
                run.map_or_else(
                    || "not measured".to_owned(),
                    |run| match run.saturated {
                        true => format!("saturated at {}", format::rate(run.throughput)),
                        false => format!("{}{}", cell(run), mark((self.stands)(run))),
                    },
                )
            });
            std::iter::once(server.to_owned()).chain(cells).collect()
        };
        let rows: Vec<Vec<String>> = self.shown().into_iter().map(row).collect();
        html::table(label, &header, &rows)
    }
}

pub(super) fn figures(
    results: &Results,
    servers: &Servers<'_>,
    ids: &mut Ids,
) -> Result<String, ReportError> {
    type Quantile = fn(&Percentiles) -> Option<u64>;
    type Stands = fn(&Run) -> bool;
    let quantiles: [(&str, Quantile, Stands); 2] = [
        ("Median", |times| times.p50, median_stands),
        ("99th percentile", |times| times.p99, valid),
    ];
    let mut out = String::new();
    for mut sweep in sweeps(results) {
        for (name, quantile, stands) in quantiles {
            sweep.stands = stands;
            let value = |times: &Percentiles| quantile(times).map(|t| axis::log(t as f64));
            let mut lines = sweep.lines(servers, |run| value(&run.response));
            let x = Axis::rates(&sweep.rates);
            if let Some(at) = results.floor.as_ref().and_then(|floor| value(&floor.response)) {
                lines.push(floor(at, &x));
            }
            let values = lines.iter().flat_map(|line| &line.points);
            let y = Axis::times(values.map(|(_, y)| 10f64.powf(*y)), "response time (log)");
            let title = format!("{name}, {}", sweep.title);
            let figure = Figure {
                title: &title,
                description: "Response time at each rate offered; lower is better. A cross is on what is \
                              not valid; dotted is the floor, which was measured at one rate.",
                legend: &servers.legend(&sweep.shown())?,
                table: &sweep.table(&title, |run| format::maybe_time(quantile(&run.response)))?,
                small: false,
            };
            let plot = lines::Plot { x, y, lines };
            out.push_str(&figure.html(ids, |window, caption| plot.draw(window, caption))?);
        }
    }
    Ok(out)
}

/// Makes the line of the floor. It is level, because the floor was measured at one rate.
fn floor(at: f64, x: &Axis) -> lines::Line {
    lines::Line {
        look: Look::Floor,
        key: String::new(),
        name: FLOOR.to_owned(),
        mark: "",
        points: vec![(x.low, at), (x.high, at)],
        invalid: Vec::new(),
    }
}
