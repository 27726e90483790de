//! The rooms of a crate, from the top down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::graph::{Arrow, Graph};
use crate::source::Module;

#[derive(Debug)]
pub(crate) struct Layers {
    pub(crate) name: String,
    /// The root module's file.
    pub(crate) root: PathBuf,
    /// Rooms by layer, from the top down.
    layers: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct Crate {
    root: PathBuf,
    layers: Vec<String>,
}

impl Layers {
    /// Those of all crates in a file.
    pub(crate) fn read(file: &Path) -> Result<Vec<Self>, String> {
        let explain = |error: &dyn std::error::Error| format!("{}: {error}", file.display());
        let text = fs::read_to_string(file).map_err(|error| explain(&error))?;
        let crates: BTreeMap<String, Crate> =
            toml::from_str(&text).map_err(|error| explain(&error))?;
        let layers = |rooms: &String| rooms.split_whitespace().map(str::to_owned).collect();
        let crates = crates.into_iter().map(|(name, Crate { root, layers: of })| Self {
            name,
            root,
            layers: of.iter().map(layers).collect(),
        });
        Ok(crates.collect())
    }

    /// The room of a file: its folder within `src`, or its name.
    fn room(&self, file: &Path) -> String {
        let folder = self.root.parent().unwrap_or(Path::new(""));
        let within = file.strip_prefix(folder).unwrap_or(file);
        let first = within.components().next();
        let first = first.map(|first| PathBuf::from(first.as_os_str()).with_extension(""));
        first.map(|room| room.display().to_string()).unwrap_or_default()
    }

    fn layer(&self, file: &Path) -> Option<usize> {
        let room = self.room(file);
        self.layers.iter().position(|rooms| rooms.contains(&room))
    }

    /// The imports from a room into one that does not lie beneath it.
    ///
    /// # Errors
    /// A room has no layer.
    pub(crate) fn upward<'a>(&self, graph: &'a Graph) -> Result<Vec<Arrow<'a>>, String> {
        let mut upward = Vec::new();
        let layer = |file: &Path| {
            let none = || format!("{}: the room {} has no layer", self.name, self.room(file));
            self.layer(file).ok_or_else(none)
        };
        for arrow in graph.arrows() {
            // The root's own items stand above all.
            if arrow.from == self.root {
                continue;
            }
            let is_down = arrow.to != self.root && layer(arrow.from)? < layer(arrow.to)?;
            if !is_down && self.room(arrow.from) != self.room(arrow.to) {
                upward.push(arrow);
            }
        }
        Ok(upward)
    }

    /// The rooms, layer by layer: their files, their lines of code, and the rooms that each imports
    /// from.
    pub(crate) fn print(&self, modules: &[Module], graph: &Graph) {
        for rooms in &self.layers {
            println!("  --");
            for room in rooms {
                let here = modules.iter().filter(|module| self.room(&module.file) == *room);
                let files: BTreeMap<_, _> =
                    here.map(|module| (&module.file, module.lines)).collect();
                let lines: usize = files.values().sum();
                let arrows = graph.arrows().filter(|arrow| self.room(arrow.from) == *room);
                let to: BTreeSet<_> = arrows.map(|arrow| self.room(arrow.to)).collect();
                let to: Vec<_> = to.into_iter().filter(|to| to != room).collect();
                println!("  {room} ({} files, {lines} lines) -> {}", files.len(), to.join(" "));
            }
        }
    }
}
