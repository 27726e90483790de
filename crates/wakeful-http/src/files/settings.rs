//! How files are served.

use std::sync::Arc;

use http::HeaderValue;

use super::beneath::Root;
use super::jobs::Jobs;

/// What clones of a service share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) root: Arc<Root>,
    pub(super) cache_control: Option<HeaderValue>,
    pub(super) precompressed: Precompressed,
    pub(super) hidden_files: HiddenFiles,
    /// In bytes.
    pub(super) chunk_size: u64,
    pub(super) jobs: Jobs,
}

/// Whether compressed files beside the files are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precompressed {
    /// They are files like any other.
    Ignore,
    /// `file.br`, else `file.gz`, is sent in place of `file` to clients that accept it; one that is
    /// older than `file` as well.
    Offer,
}

/// What happens to names that begin with a dot, as `.git` and `.env`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenFiles {
    /// They are not there. But for `/.well-known/`, which is made for being served (RFC 8615).
    Refuse,
    /// They are files like any other.
    Serve,
}
