//! The servers' CPU time: against the rate, or as bars if there is only one rate.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::series::{Group, Servers, groups, valid};
use super::{axis::Axis, frame::cut, lines, rates};
use crate::{
    format,
    report::{
        ReportError,
        html::{self, Figure, Ids, Window},
        role::Role,
        svg::{self, Caption},
    },
    results::{Results, Run},
};

pub(super) fn figures(
    results: &Results,
    servers: &Servers<'_>,
    ids: &mut Ids,
) -> Result<String, ReportError> {
    let mut out = String::new();
    let sweeps = rates::sweeps(results);
    for sweep in &sweeps {
        let lines = sweep.lines(servers, |run| run.cpu.map(|cpu| cpu.share));
        let highest = lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
        let highest = highest.fold(0.0, f64::max);
        if highest == 0.0 {
            continue;
        }
        let title = format!("CPU of the servers, {}", sweep.title);
        let label = |share: f64| format!("{:.*} %", usize::from(highest < 0.04), share * 100.0);
        let figure = Figure {
            title: &title,
            description: "100 % is one whole CPU; lower is better. ✗ is not valid.",
            legend: &servers.legend(&sweep.shown())?,
            table: &sweep.table(&title, share)?,
            small: false,
        };
        let y = Axis::linear(highest, label, "share of one CPU");
        let plot = lines::Plot { x: Axis::rates(&sweep.rates), y, lines };
        out.push_str(&figure.html(ids, |window, caption| plot.draw(window, caption))?);
    }
    // Runs that belong to no line are drawn as bars.
    for group in groups(results) {
        let swept = sweeps.iter().flat_map(|sweep| &sweep.runs);
        let swept: Vec<*const Run> = swept.map(|run| std::ptr::from_ref(*run)).collect();
        let known = |run: &&Run| run.cpu.is_some() && !swept.contains(&std::ptr::from_ref(*run));
        let runs: Vec<&Run> = group.runs.iter().copied().filter(known).collect();
        if !runs.is_empty() {
            out.push_str(&bars(&Group { title: group.title, runs }, servers, ids)?);
        }
    }
    Ok(out)
}

fn share(run: &Run) -> String {
    run.cpu.map_or_else(|| "not known".to_owned(), |cpu| format::percent(cpu.share))
}

fn bars(group: &Group<'_>, servers: &Servers<'_>, ids: &mut Ids) -> Result<String, ReportError> {
    let rows: Vec<Vec<String>> = group
        .runs
        .iter()
        .map(|run| {
            let cpu = run.cpu.unwrap_or_default();
            vec![
                run.server.clone(),
                share(run),
                format!("{} s", format::number(cpu.user)),
                format!("{} s", format::number(cpu.system)),
                format!("{} s", format::number(cpu.run_queue_wait)),
                format::count(cpu.voluntary_switches),
                format::count(cpu.involuntary_switches),
            ]
        })
        .collect();
    let title = format!("CPU of the servers, {}", group.title);
    let header = [
        "server",
        "share",
        "user",
        "system",
        "waited to run",
        "switches, slept",
        "switches, displaced",
    ];
    let figure = Figure {
        title: &title,
        description: "100 % is one whole CPU; lower is better. ✗ is not valid.",
        legend: "",
        table: &html::table(&title, &header, &rows)?,
        small: false,
    };
    figure.html(ids, |window, caption| draw(group, servers, window, caption))
}

fn draw(
    group: &Group<'_>,
    servers: &Servers<'_>,
    window: Window,
    caption: Caption<'_>,
) -> Result<String, ReportError> {
    let width: i32 = if window == Window::Wide { 860 } else { 360 };
    let (row, room) = (38, width - 90);
    let height = row * i32::try_from(group.runs.len()).unwrap_or(1) + 6;
    let shares = || group.runs.iter().filter_map(|run| run.cpu).map(|cpu| cpu.share);
    let highest = shares().fold(1e-9, f64::max);
    svg::draw(caption, (width, height), |area| {
        for ((run, value), top) in group.runs.iter().zip(shares()).zip((4..).step_by(38)) {
            let name = format!(
                "{} {}{}",
                servers.key(&run.server),
                cut(&run.server, if window == Window::Wide { 90 } else { 34 }),
                if valid(run) { "" } else { " ✗ INVALID" }
            );
            svg::text(area, &name, (2, top + 7), servers.look(&run.server).letters(), HPos::Left)?;
            let end = ((value / highest * f64::from(room)) as i32).max(1);
            let bar = [(2, top + 16), (2 + end, top + 30)];
            svg::draw_on(area, &Rectangle::new(bar, servers.look(&run.server).fill()))?;
            svg::text(area, &share(run), (end + 8, top + 23), Role::Text, HPos::Left)?;
        }
        Ok(())
    })
}
