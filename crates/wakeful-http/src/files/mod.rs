//! Serves the files of a directory ([`ServeDir`]) or a single file ([`ServeFile`]). Both are tower
//! services, for `Server::serve` or axum's `fallback_service`, `nest_service` and `route_service`.
//!
//! No loop waits for a disk. Each request is one job on the [blocking
//! pool](wakeful::task::spawn_blocking) that opens the file, decides on the response, and reads the
//! first chunk. If the file is larger, further jobs read it one chunk ahead of the client. No path
//! and no link can open a file outside the directory.

// `path` and `beneath` keep requests within the directory, `answer` builds the response,
// `conditional` and `ranges` implement RFC 9110 without I/O, `body` is the response's body,
// `version` notices that its file was rewritten, `otherwise` is the fallback for a missing file,
// `jobs` bounds the pool's work, `open_files` the files that are open.

mod answer;
mod beneath;
mod body;
mod conditional;
mod encoding;
mod jobs;
mod open_files;
mod otherwise;
mod path;
mod ranges;
mod response_future;
mod serve_file;
mod settings;
mod version;

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response, StatusCode};
use tower_service::Service;

pub use body::FileBody;
pub use response_future::ResponseFuture;
pub use serve_file::ServeFile;
pub use settings::{HiddenFiles, Precompressed};

use otherwise::Otherwise;
use settings::Shared;

/// Serves the files of a directory.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use wakeful_http::files::ServeDir;
///
/// fn main() -> std::io::Result<()> {
///     let app = Router::new()
///         .route("/api", get(|| async { "hello" }))
///         .fallback_service(ServeDir::new("public")?);
///     wakeful_http::Server::bind("127.0.0.1:8080")?.serve(app)
/// }
/// ```
///
/// | setting | default | range | what it does |
/// |---|---|---|---|
/// | [`cache_control`](Self::cache_control) | none | any value | `cache-control` of 200, 206 and 304 |
/// | [`precompressed`](Self::precompressed) | [`Precompressed::Ignore`] | | whether clients that accept compression get `file.br` or `file.gz` instead of `file` |
/// | [`hidden_files`](Self::hidden_files) | [`HiddenFiles::Refuse`] | | whether files whose names begin with a dot are served |
/// | [`chunk_size`](Self::chunk_size) | 64 KiB | 4 KiB to 1 MiB | bytes that one job reads and sends |
/// | [`max_jobs`](Self::max_jobs) | 4,096 | 1 and more | further requests get 503 with `retry-after: 1` |
/// | [`max_open_files`](Self::max_open_files) | none | 3 and more, or `None` | further requests wait, 30 s at most; then 503 with `retry-after: 1` |
/// | [`fallback`](Self::fallback) | none | [`ServeFile`] | the file that is sent instead of a missing file |
/// | [`not_found_service`](Self::not_found_service) | none | [`ServeFile`] | the same, with the status 404 |
///
/// # What it answers
/// * It serves GET and HEAD, and answers any other method with 405 and `allow`. For a directory it
///   serves `index.html`. If the path of a directory does not end with a slash, it redirects (301,
///   relative) to the path with the slash.
/// * It answers `range` requests with 206, or with 416 if no part begins within the file. Several
///   parts, up to 16, are sent as `multipart/byteranges`. It ignores a `range` header that is
///   malformed, that asks for more than 16 parts, or whose parts have more bytes together than the
///   file, as RFC 9110 allows.
/// * It answers 412 if the condition of `if-match` or `if-unmodified-since` fails, and 304 if that
///   of `if-none-match` or `if-modified-since` fails. If `if-range` does not match, it sends the
///   whole file. The entity tag consists of inode, size and modification time. The tag is weak
///   while the modification time is less than a second ago, because a further change could have the
///   same time. Copies of a file on several machines have different tags.
/// * It sets `content-type` by the extension of the name, with `x-content-type-options: nosniff`.
///   Text is declared as UTF-8.
/// * It answers 404 for a file that is missing, is not a regular file, or is outside the directory.
///   It follows a symbolic link that stays within the directory. (On kernels before Linux 5.6, or
///   if a seccomp profile forbids `openat2`, it follows no link.) It finds out what a file is by
///   opening it. So a process that waits to write into a FIFO below the directory goes on, and then
///   finds no reader; and the open of a device has the effects that the device gives it.
/// * It answers 403 if the file system denies access, and 503 if there are no descriptors or no
///   memory, if there are too many jobs, if it has waited too long for another file to close, or if
///   no thread can be started (`ulimit -u`, `pids.max`). The last three cases count as
///   [`Refusal::FileJobs`](crate::Refusal::FileJobs),
///   [`Refusal::OpenFiles`](crate::Refusal::OpenFiles) and
///   [`Refusal::NoThread`](crate::Refusal::NoThread).
/// * If a file becomes shorter or is rewritten in place while it is sent, or there is no memory for
///   its next chunk, the connection (HTTP/2: the stream) ends. If it becomes shorter before its
///   first chunk is read, the answer is 500. If a file grows, only its original length is sent. (A
///   file that is rewritten and longer than before counts as one that has grown. A new time of
///   modification alone, as `touch` sets it, counts as rewritten.) A file, or a part of one, that
///   fits into one chunk and is rewritten before it is read, is answered with as it is then, and
///   after three attempts with 500. In the middle of a write a file has its new time already: then
///   a mixture may come under a weak entity tag. A file that is replaced by a rename, or removed,
///   is sent to its end. So replace files by a rename, and do not write into them.
///
/// A path with two slashes in a row, an encoded slash, `.` or `..` gets 404. Names need not be
/// UTF-8.
///
/// With a prefix, as in `nest_service("/static", …)`, let links point to `/static/`. axum also
/// answers `/static`, but a browser resolves the relative links of that page wrongly.
///
/// The directory is opened again for each request, so a deployment may replace it.
///
/// # Threads
/// `Send` and `Sync`. Clones share their settings and limits.
#[derive(Debug, Clone)]
pub struct ServeDir {
    shared: Arc<Shared>,
    otherwise: Option<Otherwise>,
}

impl ServeDir {
    /// Makes a service for the files beneath `root`. A relative path starts at the current working
    /// directory.
    ///
    /// # Errors
    /// `root` does not exist, is not a directory, or may not be opened.
    pub fn new(root: impl AsRef<Path>) -> io::Result<Self> {
        let root = root.as_ref();
        let opened = beneath::Root::new(root).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot serve {}: {error}", root.display()))
        })?;
        Ok(Self { shared: Arc::new(Shared::new(opened)), otherwise: None })
    }

    /// Sets the `cache-control` header, for example `max-age=3600` or `no-cache`.
    #[must_use]
    pub fn cache_control(self, value: HeaderValue) -> Self {
        self.with(|shared| shared.cache_control = Some(value))
    }

    /// Sets whether clients get compressed files that exist beside the files: the name with `.br`
    /// or `.gz` appended.
    #[must_use]
    pub fn precompressed(self, precompressed: Precompressed) -> Self {
        self.with(|shared| shared.precompressed = precompressed)
    }

    /// Sets whether files whose names begin with a dot are served.
    #[must_use]
    pub fn hidden_files(self, hidden: HiddenFiles) -> Self {
        self.with(|shared| shared.hidden_files = hidden)
    }

    /// Sets how many bytes one job reads. The response to a slow client keeps two such chunks in
    /// memory.
    #[must_use]
    pub fn chunk_size(self, bytes: usize) -> Self {
        self.with(|shared| shared.set_chunk_size(bytes))
    }

    /// Sets how many jobs of this service and its clones may run or wait on the blocking pool.
    /// Beyond that, requests get 503. Responses that have begun continue, with one job each.
    #[must_use]
    pub fn max_jobs(self, jobs: usize) -> Self {
        self.with(|shared| shared.set_max_jobs(jobs))
    }

    /// Sets how many files (and directories) this service and its clones may have open at a time,
    /// on all loops together. A request opens up to three for a moment (four if the kernel or a
    /// seccomp profile refuses `openat2`). Then it keeps one, until the last chunk of its response
    /// is read, or the response is dropped. So two responses fewer than the limit may be under way
    /// at a time: with the smallest limit, 3, each slow client holds up all others. `None` disables
    /// the limit.
    ///
    /// Beyond the limit requests wait, in the order of their arrival. Half of the limit is for the
    /// first request in flight of each connection: the further ones, which only HTTP/2 connections
    /// have, share the other half. (A handler that calls this service in another task counts as
    /// such a first one.) The server's limits apply meanwhile (such as
    /// [`Limits::request_timeout`](crate::Limits::request_timeout)). A request that has waited for
    /// 30 s gets 503, and counts as [`Refusal::OpenFiles`](crate::Refusal::OpenFiles). A client
    /// that reads its responses too slowly loses them
    /// ([`Limits::min_rate`](crate::Limits::min_rate)), but one that reads just fast enough may
    /// hold many files for long.
    ///
    /// Set this if clients may use HTTP/2. One HTTP/2 connection asks for up to 200 files at a
    /// time, and a server keeps one descriptor for each connection
    /// ([`Descriptors::per_connection`](wakeful::accept::Descriptors::per_connection)). So without
    /// this limit, a few such clients could use up all descriptors, and accepting would fail.
    /// [`Descriptors::beside_connections`](wakeful::accept::Descriptors::beside_connections)
    /// returns the number:
    ///
    /// ```no_run
    /// use wakeful::accept::Descriptors;
    /// use wakeful_http::Server;
    /// use wakeful_http::files::ServeDir;
    ///
    /// fn main() -> std::io::Result<()> {
    ///     Descriptors::raise_limit()?;
    ///     // For the loops (four for each), and what else the program opens while it serves.
    ///     let others = 100;
    ///     let kept = Descriptors::new().per_connection(1).also_spare(others);
    ///     let most = kept.beside_connections(None).map(|all| all.saturating_sub(others));
    ///     let files = ServeDir::new("public")?.max_open_files(most);
    ///     Server::bind("127.0.0.1:8080")?.descriptors(kept).serve(files)
    /// }
    /// ```
    #[must_use]
    pub fn max_open_files(self, files: impl Into<Option<usize>>) -> Self {
        self.with(|shared| shared.set_max_open_files(files.into()))
    }

    /// Like [`max_open_files`](Self::max_open_files), for a number that may grow. `most` is called
    /// now, and when further requests come to wait, at most once a second.
    #[doc(hidden)]
    #[must_use]
    pub fn max_open_files_by(self, most: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        self.with(|shared| shared.set_max_open_files_by(most))
    }

    /// Serves `file` instead of a 404 response, as if the path named `file`. Use this for a
    /// single-page application, whose script reads the path. Every path without a file then gets
    /// the page, even a mistyped path of a script or an image. If that matters, serve scripts and
    /// images with a separate `nest_service`.
    ///
    /// ```no_run
    /// use axum::Router;
    /// use http::HeaderValue;
    /// use wakeful_http::files::{ServeDir, ServeFile};
    ///
    /// fn main() -> std::io::Result<()> {
    ///     let page = ServeFile::new("app/index.html")?
    ///         .cache_control(HeaderValue::from_static("no-cache"));
    ///     let app = Router::new()
    ///         .nest_service("/assets", ServeDir::new("app/assets")?)
    ///         .fallback_service(ServeDir::new("app")?.fallback(page));
    ///     wakeful_http::Server::bind("127.0.0.1:8080")?.serve(app)
    /// }
    /// ```
    ///
    /// `file` has its own settings, except for [`max_jobs`](Self::max_jobs) and
    /// [`max_open_files`](Self::max_open_files): the directory's job reads it.
    #[must_use]
    pub fn fallback(self, file: ServeFile) -> Self {
        Self { otherwise: Some(Otherwise::found(file)), ..self }
    }

    /// Serves `file` as the body of 404 responses. Conditions and ranges of the request do not
    /// apply to it. If both this and [`fallback`](Self::fallback) are called, the last call
    /// applies.
    #[must_use]
    pub fn not_found_service(self, file: ServeFile) -> Self {
        Self { otherwise: Some(Otherwise::not_found(file)), ..self }
    }

    fn with(mut self, set: impl FnOnce(&mut Shared)) -> Self {
        set(Arc::make_mut(&mut self.shared));
        self
    }
}

impl<B> Service<Request<B>> for ServeDir {
    type Response = Response<FileBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        let (parts, _) = request.into_parts();
        if let Some(refused) = ResponseFuture::of_method(&parts.method) {
            return refused;
        }
        let target = path::resolve(parts.uri.path(), self.shared.hidden_files);
        if target.is_none() && self.otherwise.is_none() {
            return ResponseFuture::ready(answer::plain(StatusCode::NOT_FOUND));
        }
        let (shared, otherwise) = (self.shared.clone(), self.otherwise.clone());
        ResponseFuture::of_job(&self.shared, move |mut place| {
            let (method, uri, headers) = (&parts.method, &parts.uri, &parts.headers);
            let response = match target {
                Some(target) => answer::answer(&shared, target, method, uri, headers, &mut place),
                None => answer::plain(StatusCode::NOT_FOUND),
            };
            match otherwise {
                Some(otherwise) if response.status() == StatusCode::NOT_FOUND => {
                    otherwise.answer(method, headers, &mut place)
                }
                _ => response,
            }
        })
    }
}
