//! Reads a crate's modules: what each defines, what it gives other names, and which paths its code
//! has.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

use crate::cfg::is_product;

/// What a name in a module stands for.
#[derive(Debug, Clone)]
pub(crate) enum Name {
    /// An item that is defined in the module.
    Item,
    /// Another path, as it was written.
    Path(Vec<String>),
}

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) parent: Option<usize>,
    pub(crate) file: PathBuf,
    pub(crate) lines: usize,
    pub(crate) names: HashMap<String, Name>,
    /// The modules in it, by their numbers. One may have the name of an item.
    pub(crate) children: HashMap<String, usize>,
    /// The modules whose names are names here (`use …::*`), as they were written.
    pub(crate) globs: Vec<Vec<String>>,
    /// The paths in its code, and the lines where they stand.
    pub(crate) paths: Vec<(Vec<String>, usize)>,
}

/// The modules of the crate whose root is this file; the root is the first.
pub(crate) fn read(root: &Path) -> Result<Vec<Module>, String> {
    let mut reader = Reader { modules: Vec::new() };
    let folder = root.parent().unwrap_or(Path::new("")).to_owned();
    reader.file(root, &folder, None)?;
    Ok(reader.modules)
}

struct Reader {
    modules: Vec<Module>,
}

impl Reader {
    /// Reads a module's file, and the files of the modules in it, which are in `folder`.
    fn file(&mut self, file: &Path, folder: &Path, parent: Option<usize>) -> Result<usize, String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let parsed =
            syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let lines = text.lines().count();
        self.module(&parsed.items, file, folder, parent, lines)
    }

    fn module(
        &mut self,
        items: &[Item],
        file: &Path,
        folder: &Path,
        parent: Option<usize>,
        lines: usize,
    ) -> Result<usize, String> {
        let number = self.modules.len();
        self.modules.push(Module {
            parent,
            file: file.to_owned(),
            lines,
            names: HashMap::new(),
            children: HashMap::new(),
            globs: Vec::new(),
            paths: Vec::new(),
        });
        for item in items.iter().filter(|item| is_product(attributes(item))) {
            if let Item::Mod(module) = item {
                let name = module.ident.to_string();
                let folder = folder.join(&name);
                let child = match &module.content {
                    Some((_, items)) => self.module(items, file, &folder, Some(number), 0)?,
                    None => {
                        let flat = folder.with_extension("rs");
                        let file = if flat.exists() { flat } else { folder.join("mod.rs") };
                        self.file(&file, &folder, Some(number))?
                    }
                };
                self.modules[number].children.insert(name, child);
            } else {
                let mut code = Code { module: &mut self.modules[number] };
                code.item(item);
            }
        }
        Ok(number)
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The code of one module.
struct Code<'a> {
    module: &'a mut Module,
}

impl Code<'_> {
    fn item(&mut self, item: &Item) {
        let defined = match item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        if let Some(name) = defined {
            self.module.names.insert(name.to_string(), Name::Item);
        }
        match item {
            Item::Use(item) => {
                let is_private = matches!(item.vis, Visibility::Inherited);
                self.import(&item.tree, &mut Vec::new(), is_private);
            }
            _ => self.visit_item(item),
        }
    }

    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>, is_private: bool) {
        let (name, last) = match tree {
            UseTree::Path(tree) => {
                before.push(tree.ident.to_string());
                self.import(&tree.tree, before, is_private);
                before.pop();
                return;
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, before, is_private));
            }
            UseTree::Glob(_) => return self.module.globs.push(before.clone()),
            UseTree::Name(tree) => (&tree.ident, &tree.ident),
            UseTree::Rename(tree) => (&tree.rename, &tree.ident),
        };
        let mut path = before.clone();
        if last != "self" {
            path.push(last.to_string());
        }
        let name = if name == "self" { path.last().cloned() } else { Some(name.to_string()) };
        // `self` names the module.
        if is_private && last != "self" {
            self.module.paths.push((path.clone(), last.span().start().line));
        }
        if let Some(name) = name {
            // A macro of its own is given its own name, to be seen elsewhere.
            self.module.names.entry(name).or_insert(Name::Path(path));
        }
    }

    /// What looks like a path in a macro's tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut line, mut colons) = (Vec::new(), 0, 0);
        let mut paths = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        paths.push((std::mem::take(&mut path), line));
                        line = name.span().start().line;
                    }
                    colons = 0;
                    path.push(name.to_string());
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    colons = 0;
                    self.tokens(group.stream());
                }
                _ => colons = 0,
            }
        }
        paths.push((path, line));
        self.module.paths.extend(paths.into_iter().filter(|(path, _)| path.len() > 1));
    }
}

impl<'ast> Visit<'ast> for Code<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let line = path.segments[0].ident.span().start().line;
            self.module.paths.push((names, line));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // Within a function.
        self.import(&item.tree, &mut Vec::new(), true);
    }

    /// `pub(in path)` is no import.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}
