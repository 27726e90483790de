//! The program `module-graph`: who imports whom among the modules of a crate, and whether that is
//! in order.
//!
//! `layers.toml` names the rooms of each crate (the files and folders of its `src`), from the top
//! down. In order means:
//! * no circle: no module imports, by way of others or not, one that imports it;
//! * no import that runs up: a room imports from rooms of lower layers only.
//!
//! A module is a file. It imports another one if its code names an item that is defined there; by
//! which re-export it does so makes no difference, and a re-export by itself is no import. Tests
//! are left out.

mod cfg;
mod graph;
mod layers;
mod names;
mod source;

use std::path::Path;
use std::process::ExitCode;

use crate::graph::Graph;
use crate::layers::Layers;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(layers), None) = (args.next(), args.next()) else {
        eprintln!("usage: module-graph LAYERS.toml");
        return ExitCode::from(2);
    };
    match check(Path::new(&layers)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(faults) => {
            eprintln!("{faults} imports are not in order");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints each crate's rooms and returns how much is not in order.
fn check(layers: &Path) -> Result<usize, String> {
    let mut faults = 0;
    for layers in Layers::read(layers)? {
        let modules = source::read(&layers.root)?;
        let graph = Graph::new(&modules);
        println!("{}", layers.name);
        layers.print(&modules, &graph);
        for circle in graph.circles() {
            faults += 1;
            println!("  CIRCLE, tied by {} imports", circle.len());
            for arrow in circle {
                println!("    {arrow}");
            }
        }
        for arrow in layers.upward(&graph)? {
            faults += 1;
            println!("  UP {arrow}");
        }
    }
    Ok(faults)
}
