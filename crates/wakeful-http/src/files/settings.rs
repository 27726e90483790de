//! How files are served.

use std::sync::Arc;

use http::HeaderValue;

use super::beneath::Root;
use super::jobs::Jobs;
use super::open_files::OpenFiles;

const DEFAULT_CHUNK: usize = 64 * 1024;
const DEFAULT_MAX_JOBS: usize = 4096;

/// What the clones of a service share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) root: Arc<Root>,
    /// Replaces the content type of the name's extension.
    pub(super) content_type: Option<HeaderValue>,
    pub(super) cache_control: Option<HeaderValue>,
    pub(super) precompressed: Precompressed,
    pub(super) hidden_files: HiddenFiles,
    /// The size of a chunk in bytes.
    pub(super) chunk_size: u64,
    pub(super) jobs: Jobs,
    pub(super) open_files: OpenFiles,
}

impl Shared {
    /// The defaults.
    pub(super) fn new(root: Root) -> Self {
        Self {
            root: Arc::new(root),
            content_type: None,
            cache_control: None,
            precompressed: Precompressed::Ignore,
            hidden_files: HiddenFiles::Refuse,
            chunk_size: DEFAULT_CHUNK as u64,
            jobs: Jobs::new(DEFAULT_MAX_JOBS),
            open_files: OpenFiles::default(),
        }
    }

    pub(super) fn set_chunk_size(&mut self, bytes: usize) {
        self.chunk_size = bytes.clamp(4 * 1024, 1024 * 1024) as u64;
    }

    pub(super) fn set_max_jobs(&mut self, jobs: usize) {
        self.jobs = Jobs::new(jobs.max(1));
    }

    pub(super) fn set_max_open_files(&mut self, files: Option<usize>) {
        match files {
            None => self.open_files = OpenFiles::default(),
            Some(files) => self.set_max_open_files_by(move || files),
        }
    }

    pub(super) fn set_max_open_files_by(
        &mut self,
        most: impl Fn() -> usize + Send + Sync + 'static,
    ) {
        self.open_files = OpenFiles::of(&self.root, most);
    }
}

/// Whether clients get compressed files that exist beside the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precompressed {
    /// They are treated like any other file.
    Ignore,
    /// `file.br`, or else `file.gz`, is sent instead of `file` to clients that accept it, even if
    /// it is older than `file`.
    Offer,
}

/// What happens to names that begin with a dot, such as `.git` and `.env`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenFiles {
    /// They get 404, except for `/.well-known/`, which is meant to be served (RFC 8615).
    Refuse,
    /// They are treated like any other file.
    Serve,
}
