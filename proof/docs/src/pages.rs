//! The pages, and what is set as code in them.

use std::fmt::{Display, Formatter, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A Markdown file; or a service or socket of systemd, which is one block of `ini`.
#[derive(Debug)]
pub struct Page {
    /// Below the root of the repository.
    pub file: String,
    text: String,
}

/// Where something stands, as `docs/serve.md:12`.
#[derive(Debug, Clone)]
pub struct Place {
    /// Below the root of the repository.
    pub file: String,
    /// From 1.
    pub line: usize,
}

impl Display for Place {
    fn fmt(&self, to: &mut Formatter<'_>) -> Result {
        write!(to, "{}:{}", self.file, self.line)
    }
}

/// A fenced block, without its fences and their indentation.
#[derive(Debug)]
pub struct Block {
    /// Of its first line.
    pub place: Place,
    /// As `rust`, without what stands behind it, as in `rust,no_run`.
    pub language: String,
    /// Its lines.
    pub text: String,
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages of the repository, by name.
///
/// # Panics
/// The repository cannot be read.
#[must_use]
pub fn pages() -> Vec<Page> {
    let mut files = Vec::new();
    find(&root(), &mut String::new(), &mut files);
    files.sort();
    let read = |file: String| {
        let text = fs::read_to_string(root().join(&file)).expect("a page");
        let is_unit = !has_end(&file, "md");
        Page { text: if is_unit { format!("```ini\n{text}```\n") } else { text }, file }
    };
    files.into_iter().map(read).collect()
}

/// All blocks of a language, in all pages.
#[must_use]
pub fn blocks(language: &str) -> Vec<Block> {
    let all = pages().into_iter().flat_map(|page| page.blocks());
    all.filter(|block| block.language == language).collect()
}

fn has_end(file: &str, end: &str) -> bool {
    Path::new(file).extension().is_some_and(|of_file| of_file == end)
}

fn find(folder: &Path, below: &mut String, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("a folder");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        let is_folder = entry.file_type().expect("a file").is_dir();
        if is_folder && !name.starts_with('.') && !["corpus", "out", "target"].contains(&&*name) {
            let length = below.len();
            below.push_str(&name);
            below.push('/');
            find(&entry.path(), below, files);
            below.truncate(length);
        } else if !is_folder && ["md", "service", "socket"].iter().any(|end| has_end(&name, end)) {
            files.push(format!("{below}{name}"));
        }
    }
}

impl Page {
    /// Its fenced blocks.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<(usize, Block)> = None;
        for (number, line) in (1..).zip(self.text.lines()) {
            let code = line.trim_start();
            let indent = line.len() - code.len();
            let fence = code.strip_prefix("```");
            match (&mut open, fence) {
                (None, Some(info)) => {
                    let language = info.split(',').next().unwrap_or_default().trim().to_owned();
                    let place = Place { file: self.file.clone(), line: number + 1 };
                    open = Some((indent, Block { place, language, text: String::new() }));
                }
                (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
                (Some((outer, block)), None) => {
                    block.text.push_str(&line[indent.min(*outer)..]);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block without an end", self.file);
        blocks
    }

    /// What is between backticks on one line.
    #[must_use]
    pub fn spans(&self) -> Vec<(Place, String)> {
        let mut spans = Vec::new();
        let mut is_block = false;
        for (number, line) in (1..).zip(self.text.lines()) {
            is_block ^= line.trim_start().starts_with("```");
            if is_block {
                continue;
            }
            for span in line.split('`').skip(1).step_by(2) {
                // A table has to write a bar in this way.
                let span = span.replace("\\|", "|");
                spans.push((Place { file: self.file.clone(), line: number }, span));
            }
        }
        spans
    }
}
