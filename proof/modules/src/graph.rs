//! Who imports whom.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::names::defined_in;
use crate::source::Module;

/// One file's imports from another one.
#[derive(Debug, Clone)]
pub(crate) struct Arrow<'a> {
    pub(crate) from: &'a Path,
    pub(crate) to: &'a Path,
    /// What is imported, and in which line of `from`.
    pub(crate) names: &'a BTreeMap<String, usize>,
}

impl fmt::Display for Arrow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}:", self.from.display(), self.to.display())?;
        self.names.iter().try_for_each(|(name, line)| write!(f, " {name} (line {line})"))
    }
}

#[derive(Debug)]
pub(crate) struct Graph {
    arrows: BTreeMap<(PathBuf, PathBuf), BTreeMap<String, usize>>,
}

impl Graph {
    pub(crate) fn new(modules: &[Module]) -> Self {
        let mut arrows = BTreeMap::<_, BTreeMap<_, _>>::new();
        for (number, module) in modules.iter().enumerate() {
            for (path, line) in &module.paths {
                let Some(defined) = defined_in(modules, number, path) else { continue };
                let to = &modules[defined].file;
                if *to != module.file {
                    let names = arrows.entry((module.file.clone(), to.clone())).or_default();
                    names.entry(path.last().cloned().unwrap_or_default()).or_insert(*line);
                }
            }
        }
        Self { arrows }
    }

    pub(crate) fn arrows(&self) -> impl Iterator<Item = Arrow<'_>> {
        self.arrows.iter().map(|((from, to), names)| Arrow { from, to, names })
    }

    /// The arrows of each circle.
    pub(crate) fn circles(&self) -> Vec<Vec<Arrow<'_>>> {
        let ends = self.arrows().map(|arrow| (arrow.from, arrow.to));
        let graph = DiGraphMap::<&Path, ()>::from_edges(ends);
        let together = tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1);
        let arrows_among = |files: Vec<&Path>| {
            let files: BTreeSet<_> = files.into_iter().collect();
            self.arrows()
                .filter(|arrow| files.contains(arrow.from) && files.contains(arrow.to))
                .collect()
        };
        together.map(arrows_among).collect()
    }
}
