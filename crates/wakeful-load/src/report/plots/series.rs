//! What the plots share: the servers that they show, their looks, and which runs belong together.

use super::frame;
use crate::report::error::ReportError;
use crate::report::{html, look::Look};
use crate::{
    format,
    results::{Results, Run, Validity},
};

/// The name of the floor's line.
pub(super) const FLOOR: &str = "floor";

/// More servers than this are too many to have a colour each.
pub(super) const CROWD: usize = 8;

/// The servers, the emphasised ones first. A server has the same line in every plot.
pub(super) struct Servers<'a>(Vec<&'a str>);

/// Whether the plots are about this server.
pub(super) fn emphasised(server: &str) -> bool {
    server.starts_with("wakeful")
}

impl<'a> Servers<'a> {
    pub(super) fn of(results: &'a Results) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for run in &results.runs {
            if !names.contains(&run.server.as_str()) {
                names.push(&run.server);
            }
        }
        names.sort_by_key(|name| !emphasised(name));
        Self(names)
    }

    /// Returns the look of a server's line.
    pub(super) fn look(&self, server: &str) -> Look {
        let index = self.index(server);
        if emphasised(server) {
            Look::Strong(index)
        } else if self.0.len() > CROWD && self.0.iter().any(|name| emphasised(name)) {
            Look::Quiet(index)
        } else {
            Look::Plain(index)
        }
    }

    pub(super) fn index(&self, server: &str) -> usize {
        self.0.iter().position(|name| *name == server).unwrap_or_default()
    }

    /// Returns the key of a server: one letter, or two from the 27th server on.
    pub(super) fn key(&self, server: &str) -> String {
        let index = self.index(server);
        let letter = |i: usize| char::from(b'A' + u8::try_from(i % 26).unwrap_or_default());
        match index / 26 {
            0 => letter(index).to_string(),
            again => format!("{}{}", letter(again - 1), letter(index)),
        }
    }

    /// Returns the server with that key.
    pub(super) fn by_key(&self, key: &str) -> Option<&'a str> {
        self.0.iter().copied().find(|server| self.key(server) == key)
    }

    /// Returns the server with that key, or the key itself if there is none.
    pub(super) fn named(&self, key: &str) -> String {
        self.by_key(key).unwrap_or(key).to_owned()
    }

    /// Makes the legend of these servers, in the order of their keys.
    pub(super) fn legend(&self, shown: &[(&str, bool)]) -> Result<String, ReportError> {
        let room = frame::Frame::of(html::Window::Wide).names;
        let mut shown = shown.to_vec();
        shown.sort_by_key(|(server, _)| self.index(server));
        let entries: Vec<_> = shown
            .iter()
            .map(|(server, valid)| html::Entry {
                look: self.look(server),
                key: self.key(server),
                name: format!("{server}{}", if *valid { "" } else { " (✗ INVALID)" }),
                said: shown.len() > CROWD
                    && server.chars().count() + if *valid { 0 } else { 2 } <= room,
            })
            .collect();
        html::legend(&entries)
    }
}

/// Runs that differ only by their server.
pub(super) struct Group<'a> {
    pub(super) title: String,
    pub(super) runs: Vec<&'a Run>,
}

pub(super) fn groups(results: &Results) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for run in &results.runs {
        let title = conditions(run);
        match groups.iter_mut().find(|group| group.title == title) {
            Some(group) => group.runs.push(run),
            None => groups.push(Group { title, runs: vec![run] }),
        }
    }
    groups
}

/// Describes the conditions of a run, apart from its server.
pub(super) fn conditions(run: &Run) -> String {
    match run.rate {
        Some(rate) => format!("{}, {}", format::rate(rate), setting(run)),
        None => setting(run),
    }
}

/// Describes the conditions of a run, apart from its server and its rate.
pub(super) fn setting(run: &Run) -> String {
    let schedule = if run.schedule == "closed" { "closed loop" } else { &run.schedule };
    let s = if run.connections == 1 { "" } else { "s" };
    format!("{schedule}, {} connection{s}", format::count(run.connections as u64))
}

/// Returns the mark that stands after the name if the figures are not valid.
pub(super) fn mark(valid: bool) -> &'static str {
    if valid { "" } else { " ✗" }
}

pub(super) fn valid(run: &Run) -> bool {
    run.validity == Validity::Valid
}

/// Whether the median and the CPU time are valid. They are, even if the generator was late for a
/// few requests.
pub(super) fn median_stands(run: &Run) -> bool {
    !matches!(run.validity, Validity::Invalid { up_to: None, .. })
}
