//! Where the item is defined that a path names.

use crate::source::{Module, Name};

/// Deeper than any chain of re-exports.
const DEEPEST: usize = 32;

/// What a path names.
#[derive(Debug, Clone, Copy)]
enum Found {
    /// An item that this module defines.
    Item(usize),
    Module(usize),
}

/// The module that defines the item that `path` names in the code of the module `from`. `None`: it
/// names a module, or something of another crate.
pub(crate) fn defined_in(modules: &[Module], from: usize, path: &[String]) -> Option<usize> {
    match find(modules, from, path, true, DEEPEST)? {
        Found::Item(module) => Some(module),
        Found::Module(_) => None,
    }
}

/// `is_start`: the path begins in `from`, and has not come there by way of another module.
fn find(
    modules: &[Module],
    from: usize,
    path: &[String],
    is_start: bool,
    depth: usize,
) -> Option<Found> {
    let depth = depth.checked_sub(1)?;
    let Some((name, rest)) = path.split_first() else { return Some(Found::Module(from)) };
    match name.as_str() {
        "crate" if is_start => return find(modules, 0, rest, false, depth),
        "self" if is_start => return find(modules, from, rest, false, depth),
        "super" if is_start => {
            let is_again = rest.first().is_some_and(|name| name == "super");
            return find(modules, modules[from].parent?, rest, is_again, depth);
        }
        _ => {}
    }
    let child = modules[from].children.get(name);
    let into_child = || child.and_then(|child| find(modules, *child, rest, false, depth));
    match modules[from].names.get(name) {
        // What is both, a module and an item, is taken for the module.
        _ if child.is_some() => into_child(),
        Some(Name::Item) => Some(Found::Item(from)),
        Some(Name::Path(path)) => {
            let path: Vec<_> = path.iter().chain(rest).cloned().collect();
            find(modules, from, &path, true, depth)
        }
        None => modules[from].globs.iter().find_map(|glob| {
            let Found::Module(module) = find(modules, from, glob, true, depth)? else {
                return None;
            };
            let Module { names, children, .. } = &modules[module];
            let is_there = names.contains_key(name) || children.contains_key(name);
            is_there.then(|| find(modules, module, path, false, depth)).flatten()
        }),
    }
}
