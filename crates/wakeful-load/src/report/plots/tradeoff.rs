//! The median against CPU time: what a server costs and brings. Each server at a rate is a point,
//! and so is each value of a setting.

use plotters::style::text_anchor::HPos;

use super::series::{Servers, median_stands};
use super::{axis, axis::Axis, rates};
use crate::{
    format,
    report::{
        ReportError,
        html::{self, Figure, Ids, Window},
        look::Look,
        role::Role,
        svg::{self, Area},
    },
    results::{Results, Run, Tradeoff, TradeoffPoint},
};

/// Fewer servers than this are no frontier.
const LEAST: usize = 3;

/// The height of letters.
const LETTERS: i32 = 12;

/// The place where shapes are drawn: the upper left corner, the width and the height.
type Place = (i32, i32, i32, i32);

/// A point of a plot.
struct Point {
    /// The text beside the point, if there is room for it.
    label: String,
    look: Look,
    cpu: f64,
    p50: f64,
}

/// One plot.
struct Panel {
    title: String,
    points: Vec<Point>,
    /// How many of the points, from the first one on, a line joins.
    joined: usize,
}

/// Draws the settings, and the servers at each rate. A server to the left of another one and below
/// it is better in both respects.
pub(super) fn figures(
    results: &Results,
    servers: &Servers<'_>,
    ids: &mut Ids,
) -> Result<String, ReportError> {
    let mut out = String::new();
    for panel in results.tradeoffs.iter().map(of_setting) {
        let rows: Vec<Vec<String>> = panel.points.iter().map(row).collect();
        out.push_str(&figure(&panel, "", &rows, ids)?);
    }
    for sweep in rates::all(results) {
        for panel in at_each_rate(&sweep, servers) {
            let named = |point: &Point| servers.named(&point.label);
            let rows: Vec<Vec<String>> = panel
                .points
                .iter()
                .map(|point| [vec![named(point)], row(point)[1..].to_vec()].concat())
                .collect();
            let legend = servers.legend(&shown(&panel, servers))?;
            out.push_str(&figure(&panel, &legend, &rows, ids)?);
        }
    }
    Ok(out)
}

/// Draws the sweep with the most panels. Returns a description in words, the height, and the
/// shapes.
pub(in crate::report) fn frontier(
    results: &Results,
    width: i32,
) -> Result<Option<(String, i32, String)>, ReportError> {
    const HEIGHT: i32 = 320;
    let servers = Servers::of(results);
    let sweeps = rates::all(results);
    let panels = |sweep| at_each_rate(sweep, &servers);
    let Some((title, panels)) =
        sweeps.iter().map(|sweep| (&sweep.title, panels(sweep))).max_by_key(|(_, all)| all.len())
    else {
        return Ok(None);
    };
    if panels.is_empty() {
        return Ok(None);
    }
    let mut names: Vec<&str> = Vec::new();
    for point in panels.iter().flat_map(|panel| &panel.points) {
        if !names.contains(&point.label.as_str()) {
            names.push(&point.label);
        }
    }
    names.sort_by_key(|key| (key.len(), *key));
    let (each, rows) = (width / 2, (panels.len() as i32 + 1) / 2);
    let line = LETTERS * 3 / 2;
    let keys = (names.len() as i32 + 2) / 3 * line + line;
    let size = (width, rows * HEIGHT + keys);
    let body = svg::body(size, |area| {
        for (index, panel) in (0..).zip(&panels) {
            let at = (index % 2 * each, index / 2 * HEIGHT, each, HEIGHT);
            draw(area, panel, at)?;
        }
        for (index, key) in (0..).zip(&names) {
            let (x, y) = (8 + index % 3 * (width / 3), rows * HEIGHT + index / 3 * line + line / 2);
            let name = servers.named(key);
            let look = servers.look(&name);
            mark(area, look, (x + 4, y))?;
            let text = format!("{key} {}", super::frame::cut(&name, 38));
            svg::sized(area, &text, (x + 16, y), look.letters(), HPos::Left, LETTERS)?;
        }
        Ok(())
    })?;
    Ok(Some((format!("Median response time against CPU at each rate, {title}."), size.1, body)))
}

/// Returns the shapes of a setting's plot.
pub(in crate::report) fn setting(
    tradeoff: &Tradeoff,
    (width, height): (i32, i32),
) -> Result<String, ReportError> {
    let panel = of_setting(tradeoff);
    svg::body((width, height), |area| draw(area, &panel, (0, 0, width, height)))
}

fn of_setting(tradeoff: &Tradeoff) -> Panel {
    let point = |look, at: &TradeoffPoint| Point {
        label: at.label.clone(),
        look,
        cpu: at.cpu,
        p50: at.p50,
    };
    let line = tradeoff.line.iter().map(|at| point(Look::Strong(0), at));
    let mut points: Vec<Point> = line.filter(is_finite).collect();
    let joined = points.len();
    let others = tradeoff.others.iter().zip(1..);
    points.extend(others.map(|(at, index)| point(Look::Plain(index), at)).filter(is_finite));
    Panel { title: tradeoff.title.clone(), points, joined }
}

fn is_finite(point: &Point) -> bool {
    point.cpu.is_finite() && point.p50.is_finite()
}

/// Makes a panel for each rate that has enough servers with a valid median. Saturated servers are
/// left out.
fn at_each_rate(sweep: &rates::Sweep<'_>, servers: &Servers<'_>) -> Vec<Panel> {
    let of = |rate: &f64| {
        let runs = sweep.runs.iter().filter(|run| run.rate == Some(*rate));
        let runs = runs.filter(|run| median_stands(run) && !run.saturated);
        let point = |run: &&Run| {
            Some(Point {
                label: servers.key(&run.server),
                look: servers.look(&run.server),
                cpu: run.cpu?.share,
                p50: run.response.p50? as f64,
            })
        };
        let mut points: Vec<Point> = runs.filter_map(point).filter(is_finite).collect();
        // The servers that the plot is about choose their places first.
        points.sort_by_key(|point| std::cmp::Reverse(point.look.layer()));
        let title = format!("p50 against CPU at {}", format::rate(*rate));
        Panel { title, points, joined: 0 }
    };
    let panels = sweep.rates.iter().map(of);
    panels.filter(|panel| panel.points.len() >= LEAST).collect()
}

fn shown<'a>(panel: &Panel, servers: &Servers<'a>) -> Vec<(&'a str, bool)> {
    panel
        .points
        .iter()
        .filter_map(|point| servers.by_key(&point.label))
        .map(|name| (name, true))
        .collect()
}

fn row(point: &Point) -> Vec<String> {
    vec![point.label.clone(), format::percent(point.cpu), format::time(point.p50)]
}

fn figure(
    panel: &Panel,
    legend: &str,
    rows: &[Vec<String>],
    ids: &mut Ids,
) -> Result<String, ReportError> {
    let figure = Figure {
        title: &panel.title,
        description: "Further left costs less, further down answers sooner.",
        legend,
        table: &html::table(&panel.title, &["", "CPU", "p50"], rows)?,
        small: false,
    };
    figure.html(ids, |window, caption| {
        let size = if window == Window::Wide { (860, 380) } else { (360, 290) };
        svg::draw(caption, size, |area| draw(area, panel, (0, 0, size.0, size.1)))
    })
}

fn draw(
    area: &Area<'_>,
    panel: &Panel,
    (left, top, width, height): Place,
) -> Result<(), ReportError> {
    let most = panel.points.iter().map(|point| point.cpu).fold(0.0, f64::max);
    let x = Axis::linear(
        if most > 0.9 { most.max(1.0) } else { most.max(0.1) },
        |share| format!("{:.0} %", share * 100.0),
        "share of one CPU",
    );
    let y = Axis::times(panel.points.iter().map(|point| point.p50), "median response time (log)");
    let (from, to) = (left + LETTERS * 29 / 6, left + width - 20);
    let (upper, lower) = (top + LETTERS * 4, top + height - LETTERS * 7 / 2);
    let share = |axis: &Axis, at: f64| (at - axis.low) / (axis.high - axis.low);
    let across = |at: f64| from + (share(&x, at) * f64::from(to - from)) as i32;
    let up = |at: f64| lower - (share(&y, at) * f64::from(lower - upper)) as i32;

    svg::sized(area, &panel.title, (left + 4, top + LETTERS), Role::Bold, HPos::Left, LETTERS)?;
    let title = (left + 4, upper - LETTERS - 2);
    svg::sized(area, y.title, title, Role::Muted, HPos::Left, LETTERS)?;
    for (at, label) in x.thinned(to - from, svg::LETTER_WIDTH) {
        svg::path(area, vec![(across(at), upper), (across(at), lower)], Role::Grid.stroke(1))?;
        let below = (across(at), lower + LETTERS);
        svg::sized(area, &label, below, Role::Text, HPos::Center, LETTERS)?;
    }
    for (at, label) in y.spaced(lower - upper, LETTERS + 4) {
        svg::path(area, vec![(from, up(at)), (to, up(at))], Role::Grid.stroke(1))?;
        svg::sized(area, &label, (from - 6, up(at)), Role::Text, HPos::Right, LETTERS)?;
    }
    svg::path(area, vec![(from, upper), (from, lower), (to, lower)], Role::Axis.stroke(1))?;
    let below = ((from + to) / 2, top + height - LETTERS * 3 / 4);
    svg::sized(area, x.title, below, Role::Muted, HPos::Center, LETTERS)?;

    let at = |point: &Point| (across(point.cpu), up(axis::log(point.p50)));
    if panel.joined > 1 {
        let line = panel.points.iter().take(panel.joined).map(at).collect();
        svg::path(area, line, Role::Line(0).stroke(2))?;
    }
    let mut taken: Vec<Place> = Vec::new();
    for point in &panel.points {
        let (x, y) = at(point);
        mark(area, point.look, (x, y))?;
        taken.push((x - 5, y - 5, 10, 10));
    }
    for point in &panel.points {
        let (x, y) = at(point);
        let long = i32::try_from(point.label.chars().count()).unwrap_or(40) * svg::LETTER_WIDTH;
        // The label takes the first place where it covers nothing: to the right, to the left,
        // above, below. A line that joins the points runs to the sides, so then the last two come
        // first.
        let mut places = [
            (x + 8, y - LETTERS / 2),
            (x - 8 - long, y - LETTERS / 2),
            (x - long / 2, y - 8 - LETTERS),
            (x - long / 2, y + 8),
        ];
        if panel.joined > 1 {
            places.rotate_left(2);
        }
        // A font's letters are higher than its size says, and some are wider than most.
        let room = |(x, y): (i32, i32)| (x - 2, y - 2, long + 4, LETTERS + 4);
        let is_free = |&(x, y): &(i32, i32)| {
            x >= from && x + long <= to + 16 && !taken.iter().any(|one| touch(*one, room((x, y))))
        };
        if let Some((x, y)) = places.into_iter().find(is_free) {
            taken.push(room((x, y)));
            let middle = (x, y + LETTERS / 2);
            svg::sized(area, &point.label, middle, point.look.letters(), HPos::Left, LETTERS)?;
        }
    }
    Ok(())
}

fn touch((x, y, width, height): Place, (left, top, wide, high): Place) -> bool {
    x < left + wide && left < x + width && y < top + high && top < y + height
}

fn mark(area: &Area<'_>, look: Look, at: (i32, i32)) -> Result<(), ReportError> {
    match look.marker() {
        Some(index) => svg::marker(area, index, at),
        None => svg::dot(area, at),
    }
}
